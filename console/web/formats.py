"""Times, spans and sizes as pages show them, the same in every language."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from rowtide.core.values.time_span import span_text

__all__ = ["FORMATS", "size_text", "time_element"]


def time_element(unix_s: float) -> Markup:
    """Return an HTML element with a time in UTC, to the second."""
    at = datetime.fromtimestamp(int(unix_s), UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def size_text(size: float) -> str:
    """Return a number of bytes with three or four digits and its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


FORMATS = {"time": time_element, "span": span_text, "size": size_text}
"""By the names that templates use."""
