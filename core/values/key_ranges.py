"""Sets of keys as ranges of encoded keys: begin <= key < end, an empty end is unbounded."""

from __future__ import annotations

from collections.abc import Iterable

from rowtide.core.values.errors import Unavailable

__all__ = ["Range", "Ranges", "holds", "require", "subtract_ranges", "within"]

Range = tuple[bytes, bytes]
Ranges = tuple[Range, ...]


def holds(ranges: Ranges, key: bytes) -> bool:
    """True if a key is in one of the ranges."""
    return any(begin <= key and (not end or key < end) for begin, end in ranges)


def require(keys: Range, key: bytes) -> None:
    """Raise ``Unavailable`` unless a key is in the range. The caller knows other shards then."""
    begin, end = keys
    if key < begin or (end and key >= end):
        raise Unavailable("The partition is not available: it does not hold the key.")


def within(ranges: Iterable[Range], outer: Range) -> Ranges:
    """Return the parts of the ranges that are within ``outer``, in order."""
    found: list[Range] = []
    for begin, end in ranges:
        low = max(begin, outer[0])
        high = min(end, outer[1]) if end and outer[1] else end or outer[1]
        if not high or low < high:
            found.append((low, high))
    return tuple(sorted(found))


def subtract_ranges(whole: Range, taken: Iterable[Range]) -> Ranges:
    """Return the parts of a range that are in none of the others, in order."""
    left: list[Range] = []
    at, end = whole
    for begin, stop in within(taken, whole):
        if at < begin:
            left.append((at, begin))
        if not stop:
            return tuple(left)
        at = max(at, stop)
    if not end or at < end:
        left.append((at, end))
    return tuple(left)
