"""Counts the requests that clients send about rows, by table and second.

A request counts once for each table that it names, however many rows it has. The table's name is
the first field of these messages, so it is read from the first bytes of the body. Counting is on
every request's way: it parses nothing else, and the figures of a second are made when it is over.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection
from enum import Enum

from rowtide.core.cluster.table_figures import (
    LATENCY_BOUNDS_S,
    TABLES_MAX,
    SecondFigures,
    TableFigures,
    percentile_bin,
)
from rowtide.core.protocol.operations import OPERATIONS, Latency

__all__ = ["TableNaming", "TableTally", "naming_of", "tables_at_front"]

CLASSES = frozenset(
    (Latency.READ, Latency.RANGE, Latency.WRITE, Latency.BATCH_WRITE, Latency.TRANSACTION)
)
"""Operations on rows. Those on tables and streams are not counted here."""

FIRST_FIELD = 0x0A
"""Field 1 of a protobuf message, if its value has a length."""

NAMES_READ_MAX = 128
"""Tables of one batch that are counted. Others wait while names are read."""

NAME_BYTES_MAX = 300
"""More than the longest name of a table with its length."""

CLOCK_STEP_S = 2.0
"""If the machine's clock is so far ahead of ours, it was set, or the machine was suspended."""


class TableNaming(Enum):
    """Where the body of a request names its tables."""

    FIRST = "its first field is the name"
    EACH = "its first field is repeated: a message whose first field is the name"


_FIRST = TableNaming.FIRST
"""Python 3.11 takes 0.3 us to find a member of an enum, too long for every request's way."""


def naming_of(operation: str) -> TableNaming | None:
    """Return where the requests of an operation name their tables; None if it is not about rows."""
    spec = OPERATIONS.get(operation)
    if spec is None or spec.latency not in CLASSES or not hasattr(spec.request, "DESCRIPTOR"):
        return None
    first = spec.request.DESCRIPTOR.fields_by_number[1]
    if first.name == "table_name":
        return TableNaming.FIRST
    nested = first.message_type
    is_nested = nested is not None and nested.fields_by_number[1].name == "table_name"
    return TableNaming.EACH if is_nested else None


class _Interval:
    """What was counted of one table in the present second."""

    __slots__ = ("errors", "within")

    def __init__(self) -> None:
        self.errors = 0
        self.within = [0] * (len(LATENCY_BOUNDS_S) + 1)


class TableTally:
    """The figures of one worker. ``is_table`` tells whether an instance has a table.

    ``clock_s`` gives Unix seconds. ``steady_s`` never goes back, and times the seconds: if the
    machine's clock goes back, seconds go on as they were.
    """

    def __init__(
        self,
        is_table: Callable[[str, str], bool],
        *,
        clock_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._is_table = is_table
        self._clock_s = clock_s
        self._steady_s = steady_s
        self._offset_s = clock_s() - steady_s()
        self._figures = TableFigures()
        self._intervals: dict[tuple[str, bytes], _Interval] = {}
        self._by_front: dict[tuple[str, bytes], _Interval] = {}
        """The same intervals by the front of a request's body: its first field, the name."""
        self._second = 0
        self._ends_s = 0.0
        """When the present second ends, on the steady clock."""
        self._turn(steady_s())

    # Positional: each named argument costs on every request's way.
    def count(
        self,
        naming: TableNaming,
        instance: str,
        body: bytes,
        seconds: float,
        now_s: float,
        ok: bool,
    ) -> None:
        """Count a request that took ``seconds`` and was answered at ``now_s``, steadily."""
        if now_s >= self._ends_s:
            self._turn(now_s)
        if naming is _FIRST and len(body) > 1:
            interval = self._by_front.get((instance, body[: 2 + body[1]]))
            if interval is not None:
                interval.within[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
                if not ok:
                    interval.errors += 1
                return
        self._count_by_name(naming, instance, body, seconds, ok)

    def _count_by_name(
        self, naming: TableNaming, instance: str, body: bytes, seconds: float, ok: bool
    ) -> None:
        """Count a request of several tables, or the first one of a table in a second."""
        bin_number = bisect_left(LATENCY_BOUNDS_S, seconds)
        for name in tables_at_front(naming, body):
            interval = self._intervals.get((instance, name)) or self._begin(instance, name)
            if interval is not None:
                interval.within[bin_number] += 1
                interval.errors += not ok

    def figures(self) -> tuple[TableFigures, int]:
        """Return the figures, and the last second that is over."""
        now_s = self._steady_s()
        if now_s >= self._ends_s:
            self._turn(now_s)
        return self._figures, self._second - 1

    def _begin(self, instance: str, name: bytes) -> _Interval | None:
        """Return a new interval; None if there is no such table: anybody can send any name."""
        is_full = len(self._intervals) >= TABLES_MAX
        if is_full or not self._is_table(instance, name.decode("utf-8", "replace")):
            return None
        interval = self._intervals[instance, name] = _Interval()
        if len(name) < 0x80:  # Longer names have two bytes of length, and are always looked for.
            self._by_front[instance, bytes((FIRST_FIELD, len(name))) + name] = interval
        return interval

    def _turn(self, now_s: float) -> None:
        """Keep the figures of the second that is over, and begin the one of ``now_s``."""
        for (instance, name), interval in self._intervals.items():
            figures = SecondFigures(
                self._second,
                sum(interval.within),
                interval.errors,
                percentile_bin(interval.within, 0.5),
                percentile_bin(interval.within, 0.99),
            )
            self._figures.add(instance, name.decode(), figures)
        self._intervals, self._by_front = {}, {}
        if self._clock_s() - now_s > self._offset_s + CLOCK_STEP_S:
            self._offset_s = self._clock_s() - now_s
        unix_s = now_s + self._offset_s
        self._second = int(unix_s)
        self._ends_s = now_s + (self._second + 1 - unix_s)


def tables_at_front(naming: TableNaming, body: bytes) -> Collection[bytes]:
    """Return the names of a request's tables as bytes, as far as the body begins with them.

    Every encoder of protobuf writes fields in their order. A body that does not, or that is broken,
    names none here: then its request is not counted.
    """
    try:
        if body[0] != FIRST_FIELD:
            return ()
        if naming is _FIRST:
            size = body[1]
            if size < 0x80:
                return (body[2 : 2 + size],)
            return (body[3 : 3 + (size & 0x7F | body[2] << 7)],)
        return _each(body)
    except IndexError:
        return ()


def _each(body: bytes) -> set[bytes]:
    """Return the names of the tables of a batch. Raises IndexError."""
    found: set[bytes] = set()
    at, end = 0, len(body)
    for _ in range(NAMES_READ_MAX):
        if at >= end or body[at] != FIRST_FIELD:
            break
        at += 1
        size = 0
        for shift in range(0, 35, 7):
            byte = body[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        found.update(tables_at_front(_FIRST, body[at : at + min(size, NAME_BYTES_MAX)]))
        at += size
    return found
