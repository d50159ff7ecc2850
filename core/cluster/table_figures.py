"""Requests of each table by the second, for the last hour: how many, how many failed, how long.

A worker keeps the figures of the requests that clients sent to it. The console keeps those of all
workers. A second without requests takes no memory. A table that was busy in every second takes
``SECONDS_KEPT_MAX`` entries of 14 bytes, 54 KB. There are at most ``TABLES_MAX`` tables, so all
figures take at most 14 MB. Another table replaces the one that was silent for longest.

Nothing here reads a clock. Seconds are whole Unix seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = [
    "HOUR_S",
    "LATENCY_BOUNDS_S",
    "SECONDS_KEPT_MAX",
    "TABLES_MAX",
    "SecondFigures",
    "TableFigures",
    "TableSeconds",
    "latency_us",
    "percentile_bin",
]

HOUR_S = 3600
TABLES_MAX = 256
SPARE_ENTRIES = 256
"""Entries that may be too old: they are removed together."""
SECONDS_KEPT_MAX = HOUR_S + SPARE_ENTRIES

_STEP = 1.2
LATENCY_BOUNDS_S = tuple(50e-6 * _STEP**number for number in range(72))
"""Inclusive upper ends of the bins of latencies: from 50 us to 21 s, each 20 % above the last."""

_LATENCY_US = (*(round(bound * 1_000_000) for bound in LATENCY_BOUNDS_S), 30_000_000)


_COLUMNS = ("seconds", "requests", "errors", "p50_us", "p99_us")


class SecondFigures(NamedTuple):
    """One second of one table. ``p50`` and ``p99`` are bins of ``LATENCY_BOUNDS_S``."""

    second: int
    requests: int
    errors: int
    p50: int
    p99: int


def percentile_bin(within: Sequence[int], share: float) -> int:
    """Return the bin below or in which ``share`` of the counted are; ``within`` counts by bin."""
    wanted = share * sum(within)
    total = 0
    for number, count in enumerate(within):
        total += count
        if total and total >= wanted:
            return number
    return 0


def latency_us(number: int) -> int:
    """Return the upper end of a bin in microseconds."""
    return _LATENCY_US[number]


class TableSeconds:
    """The figures of one table, oldest second first."""

    __slots__ = ("_errors", "_p50", "_p99", "_requests", "_seconds")

    def __init__(self) -> None:
        self._seconds = array("I")
        self._requests = array("I")
        self._errors = array("I")
        self._p50 = array("B")
        self._p99 = array("B")

    def __len__(self) -> int:
        return len(self._seconds)

    @property
    def last(self) -> int:
        """The newest second; 0 without any."""
        return self._seconds[-1] if self._seconds else 0

    def add(self, figures: SecondFigures) -> None:
        """Add a second that is later than all others; another one is ignored."""
        if figures.second <= self.last:
            return
        for column, value in zip(self._columns(), figures, strict=True):
            column.append(value)
        self._remove_old(figures.second)

    def count(self, after: int, until: int) -> int:
        """Return how many entries are later than ``after`` and not later than ``until``."""
        return bisect_right(self._seconds, until) - bisect_right(self._seconds, after)

    def requests(self, after: int, until: int) -> int:
        """Return the requests of the same entries."""
        first, end = bisect_right(self._seconds, after), bisect_right(self._seconds, until)
        return sum(self._requests[first:end])

    def figures(self, after: int, until: int) -> Iterator[SecondFigures]:
        """Yield the entries later than ``after`` and not later than ``until``."""
        for entry in zip(*self.columns(after, until), strict=True):
            yield SecondFigures(*entry)

    def columns(self, after: int, until: int) -> list[array[int]]:
        """Return the same entries as columns, in the order of the fields of ``SecondFigures``."""
        first, end = bisect_right(self._seconds, after), bisect_right(self._seconds, until)
        return [column[first:end] for column in self._columns()]

    def _columns(self) -> tuple[array[int], ...]:
        return self._seconds, self._requests, self._errors, self._p50, self._p99

    def _remove_old(self, now: int) -> None:
        first = bisect_left(self._seconds, now - HOUR_S)
        if first >= SPARE_ENTRIES:
            for column in self._columns():
                del column[:first]


class TableFigures:
    """The figures of all tables that one worker serves, by (instance, table)."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], TableSeconds] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def add(self, instance: str, table: str, figures: SecondFigures) -> None:
        """Add a second of a table; see ``TableSeconds.add``."""
        known = self._tables.get((instance, table))
        if known is None:
            if len(self._tables) >= TABLES_MAX:
                self._make_room(figures.second)
            known = self._tables[instance, table] = TableSeconds()
        known.add(figures)

    def tables(self) -> Iterator[tuple[str, str, TableSeconds]]:
        """Yield instance, table and seconds of every table."""
        for (instance, table), seconds in self._tables.items():
            yield instance, table, seconds

    def of_table(self, instance: str, table: str) -> TableSeconds:
        """Return the seconds of a table; none if it had no request."""
        return self._tables.get((instance, table)) or TableSeconds()

    def page(self, after: int, until: int, *, entries_max: int) -> dict[str, Any]:
        """Return entries later than ``after`` as columns for JSON, at most about ``entries_max``.

        ``until_s`` of the answer is the second up to which it is complete: at most ``until``, less
        if there are too many entries. One second is always complete.
        """
        after = max(after, until - HOUR_S)
        while until - after > 1 and self._count(after, until) > entries_max:
            until = after + (until - after) // 2
        found = []
        for instance, table, seconds in self.tables():
            entries = list(seconds.figures(after, until))
            if entries:
                found.append({"instance": instance, "table": table, **_columns_of(entries)})
        return {"until_s": max(after, until), "tables": found}

    def add_page(self, page: dict[str, Any]) -> None:
        """Add what ``page`` of another object returned."""
        for table in page["tables"]:
            for second, requests, errors, p50_us, p99_us in zip(
                *(table[name] for name in _COLUMNS), strict=True
            ):
                figures = SecondFigures(second, requests, errors, _bin_of(p50_us), _bin_of(p99_us))
                self.add(table["instance"], table["table"], figures)

    def _count(self, after: int, until: int) -> int:
        return sum(seconds.count(after, until) for seconds in self._tables.values())

    def _make_room(self, now: int) -> None:
        """Forget the tables without a request in the last hour, or else the longest silent one."""
        old = [key for key, known in self._tables.items() if known.last < now - HOUR_S]
        silent = min(self._tables, key=lambda key: self._tables[key].last)
        for key in old or [silent]:
            del self._tables[key]


def _columns_of(entries: Sequence[SecondFigures]) -> dict[str, list[int]]:
    columns = [list(column) for column in zip(*entries, strict=True)]
    columns[3:] = [[latency_us(number) for number in column] for column in columns[3:]]
    return dict(zip(_COLUMNS, columns, strict=True))


def _bin_of(us: int) -> int:
    return min(bisect_left(_LATENCY_US, us), len(_LATENCY_US) - 1)
