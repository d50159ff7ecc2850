"""Times, spans and sizes as pages show them, the same in every language."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

__all__ = ["FORMATS", "size_text", "span_text", "time_element"]


def time_element(unix_s: float) -> Markup:
    """Return an HTML element with a time in UTC, to the second."""
    at = datetime.fromtimestamp(int(unix_s), UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def span_text(seconds: float) -> str:
    """Return a time span in its two largest units."""
    whole = max(0, round(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def size_text(size: float) -> str:
    """Return a number of bytes with three or four digits and its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


FORMATS = {"time": time_element, "span": span_text, "size": size_text}
"""By the names that templates use."""
