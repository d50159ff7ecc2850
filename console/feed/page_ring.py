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
from typing import Self

from rowtide.console.feed.record_text import change_text, filter_row
from rowtide.core.records.change import Change
from rowtide.core.values.variant import Scalar

__all__ = ["FeedPage", "FeedRecord", "PageRing"]

RECORD_BYTES, PAGE_BYTES = 200, 600
"""What the objects of a record and of a page need besides the text."""
TEXT_BYTES = 150
"""What a text has besides names and values. It stands for that of a change without a text yet."""


class FeedRecord:
    """One change, and the variant of its partition key.

    The text that viewers get is made when it is first needed: of most changes, sampled viewers get
    no more than the count.
    """

    __slots__ = ("_change", "_hidden", "_row", "_text", "partition_key", "sequence")

    def __init__(self, sequence: int, partition_key: bytes, text: bytes) -> None:
        self.sequence = sequence
        self.partition_key = partition_key
        self._text = text
        self._change: Change | None = None
        self._hidden: frozenset[str] = frozenset()
        self._row: Mapping[str, Scalar] | None = None

    @classmethod
    def of(cls, change: Change, hidden: frozenset[str]) -> Self:
        """Return the record of a change, without the columns that are hidden."""
        record = cls(change.sequence, change.partition_key, b"")
        record._change, record._hidden = change, hidden
        return record

    @property
    def text(self) -> bytes:
        """Return the text as viewers get it."""
        if self._change is not None:
            self._text = change_text(self._change, self._hidden)
            self._change = None
        return self._text

    @property
    def size(self) -> int:
        """Return about how many bytes of memory it needs."""
        known = len(self._text) if self._change is None else TEXT_BYTES + self._change.size
        return RECORD_BYTES + known

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
    size: int = field(init=False, default=0)
    """About its bytes of memory, as ``measure`` found them."""
    _by_key: dict[bytes, list[FeedRecord]] | None = field(init=False, default=None)

    def measure(self) -> int:
        """Set ``size`` to what the page needs now, and return it: more texts may be made later."""
        self.size = PAGE_BYTES + sum([record.size for record in self.records])
        return self.size

    def slice_records(
        self, begin: int, end: int, partition_key: bytes | None = None
    ) -> Sequence[FeedRecord]:
        """Return the records at these offsets, ``end`` excluded, perhaps those of one key alone."""
        records = self.records if partition_key is None else self._find_records(partition_key)
        if begin <= self.begin and end >= self.end:
            return records
        return [record for record in records if begin <= record.sequence < end]

    def forget_keys(self) -> None:
        """Free what finds the records of a key."""
        self._by_key = None

    def _find_records(self, partition_key: bytes) -> Sequence[FeedRecord]:
        """Return the records of a key. Thousands of viewers of one key each walk a page at once."""
        if self._by_key is None:
            self._by_key = {}
            for record in self.records:
                self._by_key.setdefault(record.partition_key, []).append(record)
        return self._by_key.get(partition_key, ())


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
        self.size += page.measure()
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

    def forget_keys(self) -> None:
        """Free what finds the records of a key in a page; a walk makes it again."""
        for page in self._pages:
            page.forget_keys()

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
