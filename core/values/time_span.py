"""Spans of time as people read them, in pages and in commands."""

from __future__ import annotations

__all__ = ["span_text"]


def span_text(seconds: float) -> str:
    """Return a time span in its two largest units: ``3 d 4 h``, ``1 min 0 s``."""
    whole = max(0, round(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
