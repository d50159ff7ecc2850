"""Reads several timelines as one, in the order of their ids."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Mapping

from rowtide.client.timeline.timeline import Timeline, TimelineEntry
from rowtide.core.values.limits import INT64_MAX

__all__ = ["MergedScan", "Scan", "merge_scans", "scan_page", "take"]

Scan = AsyncGenerator[TimelineEntry, None]
MergedScan = AsyncGenerator[tuple[str, TimelineEntry], None]


async def merge_scans(scans: Mapping[str, Scan], *, newest_first: bool = False) -> MergedScan:
    """Yield the entries of all scans, each with its scan's name, in the order of the ids.

    Those with one id are in the order of the names. The scans are closed at the end.
    """
    heads: list[tuple[int, str, TimelineEntry]] = []

    async def push_next(name: str) -> None:
        entry = await anext(scans[name], None)
        if entry is not None:
            heapq.heappush(heads, (-entry.id if newest_first else entry.id, name, entry))

    try:
        for name in scans:
            await push_next(name)
        while heads:
            _, name, entry = heapq.heappop(heads)
            yield name, entry
            await push_next(name)
    finally:
        for scan in scans.values():
            await scan.aclose()


async def take(merged: MergedScan, count: int) -> list[tuple[str, TimelineEntry]]:
    """Return up to so many of the next entries."""
    found: list[tuple[str, TimelineEntry]] = []
    while len(found) < count and (one := await anext(merged, None)) is not None:
        found.append(one)
    return found


async def scan_page(
    timeline: Timeline, name: str, last: tuple[int, str] | None, limit: int
) -> Scan:
    """Yield a timeline's part of a page of merged ones, newest first.

    ``last`` is the id and the name of the last entry of the page before.
    """
    high = INT64_MAX
    if last is not None:
        # An entry of a later name with the same id follows that one.
        high = last[0] - (name <= last[1])
    if high > 0:
        async for entry in timeline.backward(high, limit=limit):
            yield entry
