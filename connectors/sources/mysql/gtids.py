"""Sets of global transaction ids, for both kinds of servers: the transactions that were
read.

MariaDB numbers transactions per domain, so the last of each domain is enough:
``0-1-57,5-1-3``. MySQL numbers those of each server and tag, and a set has gaps:
``UUID:1-57:60,UUID:tag:1-3``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Any, Protocol
from uuid import UUID

__all__ = ["DomainGtids", "Gtids", "IntervalGtids", "parse_gtids"]

_EIGHT = Struct("<Q")
_TAGGED = 1


class Gtids(Protocol):
    """A set of transactions, with the server's names."""

    def __contains__(self, gtid: str) -> bool:
        """True if a transaction is in the set."""

    def add(self, gtid: str) -> None:
        """Add a transaction that comes after all others of its series."""

    def includes(self, other: Any) -> bool:
        """True if the set contains all of another set."""

    def text(self) -> str:
        """Return the set in the server's form."""


def parse_gtids(text: str) -> Gtids:
    """Return the set of a server's text. An empty text fits either kind."""
    return IntervalGtids(text) if ":" in text else DomainGtids(text)


class DomainGtids:
    """MariaDB's sets: the last transaction of each domain."""

    def __init__(self, text: str = "") -> None:
        self._last: dict[int, str] = {}
        for part in text.split(","):
            if part.strip():
                self.add(part.strip())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DomainGtids) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, gtid: str) -> bool:
        last = self._last.get(_domain(gtid))
        return last is not None and _sequence(gtid) <= _sequence(last)

    def add(self, gtid: str) -> None:
        """See ``Gtids``."""
        self._last[_domain(gtid)] = gtid

    def includes(self, other: DomainGtids) -> bool:
        """See ``Gtids``."""
        return all(gtid in self for gtid in other._last.values())

    def text(self) -> str:
        """See ``Gtids``."""
        return ",".join(gtid for _, gtid in sorted(self._last.items()))


def _domain(gtid: str) -> int:
    return int(gtid.split("-")[0])


def _sequence(gtid: str) -> int:
    return int(gtid.rsplit("-")[-1])


class IntervalGtids:
    """MySQL's sets: intervals of numbers by server and tag (``UUID`` or ``UUID:tag``)."""

    def __init__(self, text: str = "") -> None:
        # A list of first numbers and one of exclusive ends for each. Intervals do not
        # touch.
        self._found: dict[str, tuple[list[int], list[int]]] = {}
        for part in text.replace("\n", "").split(","):
            if part.strip():
                self._read(part.strip())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalGtids) and self._found == other._found

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, gtid: str) -> bool:
        source, _, number = gtid.rpartition(":")
        return self._has(source, int(number), int(number) + 1)

    def add(self, gtid: str) -> None:
        """See ``Gtids``."""
        source, _, number = gtid.rpartition(":")
        self._add(source, int(number), int(number) + 1)

    def includes(self, other: IntervalGtids) -> bool:
        """See ``Gtids``."""
        return all(self._has(source, begin, end) for source, begin, end in other._intervals())

    def text(self) -> str:
        """See ``Gtids``."""
        parts = []
        for source, (begins, ends) in sorted(self._found.items()):
            shown = [
                f"{begin}-{end - 1}" if end - begin > 1 else str(begin)
                for begin, end in zip(begins, ends, strict=True)
            ]
            parts.append(":".join([source, *shown]))
        return ",".join(parts)

    def encode(self) -> bytes:
        """Return the set in the form of ``COM_BINLOG_DUMP_GTID``.

        Number of entries, 8; each: UUID 16, with tags in the set: twice the tag's length
        1, tag; number of intervals, 8; each: first number 8, end 8. With tags, the number
        of entries is in the middle of its 8 bytes, between two marks.
        """
        tagged = any(":" in source for source in self._found)
        count = len(self._found)
        if tagged:
            count = _TAGGED << 56 | count << 8 | _TAGGED
        parts = [_EIGHT.pack(count)]
        for source, (begins, ends) in sorted(self._found.items()):
            uuid, _, tag = source.partition(":")
            parts.append(UUID(uuid).bytes)
            if tagged:
                parts.append(bytes([2 * len(tag)]) + tag.encode())
            parts.append(_EIGHT.pack(len(begins)))
            for begin, end in zip(begins, ends, strict=True):
                parts.append(_EIGHT.pack(begin) + _EIGHT.pack(end))
        return b"".join(parts)

    def _read(self, part: str) -> None:
        uuid, *rest = part.lower().split(":")
        source = uuid
        for each in rest:
            each = each.strip()
            if not each[0].isdigit():
                source = f"{uuid}:{each}"  # The next intervals have this tag.
                continue
            first, _, last = each.partition("-")
            self._add(source, int(first), int(last or first) + 1)

    def _intervals(self) -> Iterator[tuple[str, int, int]]:
        for source, (begins, ends) in self._found.items():
            for begin, end in zip(begins, ends, strict=True):
                yield source, begin, end

    def _has(self, source: str, begin: int, end: int) -> bool:
        begins, ends = self._found.get(source, ([], []))
        at = bisect_right(begins, begin) - 1
        return at >= 0 and end <= ends[at]

    def _add(self, source: str, begin: int, end: int) -> None:
        begins, ends = self._found.setdefault(source, ([], []))
        at = bisect_right(begins, begin)
        if at and ends[at - 1] >= begin:  # It touches or overlaps the interval before.
            at -= 1
            ends[at] = max(ends[at], end)
        else:
            begins.insert(at, begin)
            ends.insert(at, end)
        while at + 1 < len(begins) and begins[at + 1] <= ends[at]:
            ends[at] = max(ends[at], ends.pop(at + 1))
            del begins[at + 1]
