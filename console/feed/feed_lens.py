"""What a group of viewers sees of a table: one filter, columns, partition key, shards and mode.

Viewers with equal wishes share a lens. So a record is filtered, narrowed and encoded once for them
all. A lens collects the records of one window and turns them into one frame.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rowtide.connectors.runtime.row_filter import RowTest
from rowtide.console.feed.page_ring import FeedRecord
from rowtide.console.feed.record_text import narrow_text

__all__ = [
    "EVERY",
    "MODES",
    "SAMPLED",
    "SAMPLED_RECORDS_MAX",
    "FeedLens",
    "FeedMode",
    "FrameWindow",
    "LensKey",
]

FeedMode = Literal["every", "sampled"]
EVERY: FeedMode = "every"
"""All records."""
SAMPLED: FeedMode = "sampled"
"""The newest records of each window, and how many were left out."""
MODES = (EVERY, SAMPLED)
SAMPLED_RECORDS_MAX = 20


class LensKey(NamedTuple):
    """What makes two viewers' wishes equal.

    ``columns`` None are all. ``partition_key`` is the variant of the one value to follow.
    ``shards`` are those to follow with their descendants; None are all.
    """

    mode: FeedMode = EVERY
    filter: RowTest | None = None
    columns: frozenset[str] | None = None
    partition_key: bytes | None = None
    shards: frozenset[str] | None = None


class FeedLens:
    """The lens of a key."""

    def __init__(self, key: LensKey) -> None:
        self.key = key

    def select(self, record: FeedRecord) -> bytes | None:
        """Return the text of a record as these viewers get it, None if it does not match."""
        key = self.key
        if key.partition_key is not None and record.partition_key != key.partition_key:
            return None
        if key.filter is not None and not key.filter.holds(record.row):
            return None
        if key.columns is None:
            return record.text
        return narrow_text(record.text, key.columns)

    def select_all(self, records: Iterable[FeedRecord]) -> list[bytes]:
        """Return the texts of the records that match."""
        return [text for record in records if (text := self.select(record)) is not None]

    def fill(self, window: FrameWindow, records: Sequence[FeedRecord]) -> None:
        """Add the records that match to a window."""
        key = self.key
        if key.partition_key is None and key.filter is None and key.columns is None:
            # Texts that no frame would have are not even made.
            left_out = max(0, len(records) - window.records_max)
            window.add([record.text for record in records[left_out:]], left_out)
        else:
            window.add(self.select_all(records))


@dataclass(slots=True)
class FrameWindow:
    """The matches since the last frame. In sampled mode only the newest are kept."""

    mode: FeedMode
    count: int = 0
    _texts: deque[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._texts = deque(maxlen=SAMPLED_RECORDS_MAX if self.mode == SAMPLED else None)

    @property
    def records_max(self) -> int:
        """Return how many records a frame has at most."""
        return sys.maxsize if self._texts.maxlen is None else self._texts.maxlen

    @property
    def frame_records(self) -> int:
        """Return how many records the next frame has."""
        return len(self._texts)

    def add(self, texts: Sequence[bytes], left_out: int = 0) -> None:
        """Add matches in their order; ``left_out`` are older ones that are only counted.

        Then there must be ``records_max`` texts.
        """
        self._texts.extend(texts)
        self.count += left_out + len(texts)

    def take(self) -> bytes:
        """Return the frame's data, and begin anew."""
        left_out = self.count - len(self._texts)
        more = b',"left_out":%d' % left_out if self.mode == SAMPLED else b""
        frame = b'{"records":[%b]%b}' % (b",".join(self._texts), more)
        self._texts.clear()
        self.count = 0
        return frame
