"""The newest records of a table, kept in memory for viewers who come back.

A page holds what one read of a shard returned: the records between two offsets. The pages of a
shard follow each other without a gap. The ring drops the oldest pages of all shards once the texts
of its records exceed ``bytes_max``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowtide.console.feed.record_text import filter_row
from rowtide.core.values.variant import Scalar

__all__ = ["FeedPage", "FeedRecord", "PageRing"]

RECORD_BYTES, PAGE_BYTES = 200, 600
"""What the objects of a record and of a page need besides the text."""


@dataclass(slots=True)
class FeedRecord:
    """One change: its text as viewers get it, and the variant of its partition key."""

    sequence: int
    partition_key: bytes
    text: bytes
    _row: Mapping[str, Scalar] | None = None

    @property
    def row(self) -> Mapping[str, Scalar]:
        """Return what a filter tests. It is kept until ``forget_row``."""
        if self._row is None:
            self._row = filter_row(self.text)
        return self._row

    def forget_row(self) -> None:
        """Free what ``row`` keeps."""
        self._row = None


@dataclass(slots=True)
class FeedPage:
    """The records of one shard from the offset ``begin`` on, before ``end``.

    Changes behind the page were committed after ``time_us``. ``has_ended``: there are none. ``end``
    grows while the page is the newest of its shard and only hidden entries follow it.
    """

    shard: str
    begin: int
    end: int
    records: Sequence[FeedRecord]
    time_us: int
    has_ended: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = PAGE_BYTES + sum(RECORD_BYTES + len(record.text) for record in self.records)

    def slice_records(self, begin: int, end: int) -> Sequence[FeedRecord]:
        """Return the records at these offsets, ``end`` excluded."""
        if begin <= self.begin and end >= self.end:
            return self.records
        return [record for record in self.records if begin <= record.sequence < end]


class PageRing:
    """Pages of all shards, the oldest first. ``size`` is about their bytes of memory."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self._pages: deque[FeedPage] = deque()
        self._by_shard: dict[str, deque[FeedPage]] = {}

    def add(self, page: FeedPage) -> None:
        """Add the page that follows the last one of its shard, and drop what is too old."""
        pages = self._by_shard.setdefault(page.shard, deque())
        last = pages[-1] if pages else None
        assert last is None or last.end == page.begin, f"{page.shard}: a gap before {page.begin}"
        if last is not None and not page.records:
            last.end, last.has_ended = page.end, page.has_ended
            last.time_us = max(last.time_us, page.time_us)
            return
        pages.append(page)
        self._pages.append(page)
        self.size += page.size
        self.shrink(self.bytes_max)

    def shrink(self, bytes_max: int) -> None:
        """Drop the oldest pages until no more than these bytes are left. One page is kept."""
        while self.size > bytes_max and len(self._pages) > 1:
            page = self._pages.popleft()
            self.size -= page.size
            pages = self._by_shard[page.shard]
            assert pages.popleft() is page, "pages of a shard are in order"
            if not pages:
                del self._by_shard[page.shard]

    def find(self, shard: str, offset: int) -> FeedPage | None:
        """Return the page that holds an offset, or a page that ended its shard there."""
        pages = self._by_shard.get(shard)
        if not pages or offset < pages[0].begin:
            return None
        at = bisect_right(pages, offset, key=lambda page: page.begin) - 1
        page = pages[at]
        if offset < page.end or (offset == page.end and page.has_ended):
            return page
        return None
