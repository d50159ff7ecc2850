"""Times, spans and sizes as pages show them, the same in every language."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from rowtide.core.values.time_span import span_text

__all__ = ["FORMATS", "size_text", "time_element", "value_text"]


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


def value_text(value: object) -> str:
    """Return a number of a dashboard as a page shows it.

    A double has six digits, or two after the point if it is large. ``dashboards/values.js`` has the
    same rule.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    short = round(value, 2) if abs(value) >= LARGE else float(f"{value:.6g}")
    return str(int(short)) if short.is_integer() and abs(short) < WHOLE_MAX else repr(short)


LARGE = 100_000
WHOLE_MAX = 1e21
"""JavaScript writes larger numbers with an exponent."""

FORMATS = {"time": time_element, "span": span_text, "size": size_text, "value": value_text}
"""By the names that templates use."""
