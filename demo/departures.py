"""Days of flights as they happen: scheduled, delayed, departed or cancelled, by a fast clock.

A flight becomes a row two hours before it is due. If it is late, it is first updated to a short
delay, and at its departure to the true one. A cancelled flight is deleted. Minutes are those of the
clock, from the midnight of the first day on.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from demo.load import Loader
from demo.source import TABLES, Change, Key, Row, Source

__all__ = ["Departures", "Step", "plan_days"]

FEBRUARY, STORM = 2, 8
FLIGHTS = TABLES[-1]
DAY = 24 * 60
KNOWN_BEFORE = 120
CANCELLED_AFTER = 30
LATE = 15
"""A flight that leaves more than this after its time is shown as delayed first."""
SCHEDULE = (
    *("year", "month", "day", "hour", "minute", "time_hour"),
    *("sched_dep_time", "sched_arr_time", "tailnum", "dest", "distance"),
)
STATUS = "status"


class Step(NamedTuple):
    """What happens to one flight at a minute: a row that is put, or a change of it."""

    minute: int
    write: Row | Change

    @property
    def status(self) -> str:
        """Return what the flight is then; empty for a cancelled one, which has no row."""
        write = self.write
        return str((write.columns if isinstance(write, Row) else write.puts).get(STATUS, ""))


def plan_days(days: Iterator[list[Row]]) -> Iterator[Step]:
    """Yield the steps of one day after the other, in the order of their minutes."""
    waiting: list[tuple[int, int, Step]] = []
    numbers = itertools.count()
    for day, flights in enumerate(days):
        for row in flights:
            for step in _steps(row, day * DAY):
                heapq.heappush(waiting, (step.minute, next(numbers), step))
        # No flight of the next day is known before its midnight.
        while waiting and waiting[0][0] < (day + 1) * DAY:
            yield heapq.heappop(waiting)[2]


def _steps(row: Row, midnight: int) -> Iterator[Step]:
    due = int(row.columns["sched_dep_time"])
    due = midnight + due // 100 * 60 + due % 100
    known = {name: row.columns[name] for name in SCHEDULE if name in row.columns}
    yield Step(max(midnight, due - KNOWN_BEFORE), Row(row.key, {**known, STATUS: "scheduled"}))
    if "dep_delay" not in row.columns:
        yield Step(due + CANCELLED_AFTER, Change(row.key, {}, ()))
        return
    delay = int(row.columns["dep_delay"])
    if delay > LATE:
        yield Step(due, Change(row.key, {"dep_delay": LATE, STATUS: "delayed"}, ()))
    rest = {name: value for name, value in row.columns.items() if name not in known}
    yield Step(due + delay, Change(row.key, {**rest, STATUS: "departed"}, ()))


def _days() -> Iterator[list[Row]]:
    """Yield the flights of each day of February, again and again, from the storm of the 8th on."""
    by_day = itertools.groupby(
        sorted(Source(FEBRUARY).rows(FLIGHTS), key=lambda row: row.key[1]),
        key=lambda row: row.key[1],
    )
    days = [list(flights) for _, flights in by_day]
    return itertools.cycle(days[STORM - 1 :] + days[: STORM - 1])


class Departures:
    """Writes the steps up to ``until``, ``minutes_per_s`` of the clock in a second.

    It begins with the first flight of the day. A step is repeated until it is acknowledged, and the
    clock catches up afterwards.
    """

    def __init__(self, loader: Loader, *, minutes_per_s: float, until: int | None = None) -> None:
        self.minute = 0
        """The minute of the last acknowledged step."""
        self.cancelled = 0
        self._loader = loader
        self._minutes_per_s = minutes_per_s
        self._until = until
        self._statuses: dict[Key, str] = {}
        self._ends = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="departures", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join(timeout=10)

    @property
    def is_running(self) -> bool:
        """True until the last step is acknowledged."""
        return self._thread.is_alive()

    def require_sound(self) -> None:
        """Raise what ended the replay early, if anything did."""
        if self._failure is not None:
            raise self._failure

    def count(self) -> Counter[str]:
        """Return how many flights have each status."""
        return Counter(self._statuses.copy().values())

    def _run(self) -> None:
        try:
            self._write_steps()
        except Exception as error:  # noqa: BLE001 - raised by ``require_sound``.
            self._failure = error

    def _write_steps(self) -> None:
        began_s, first = time.monotonic(), None
        for step in plan_days(_days()):
            if self._until is not None and step.minute > self._until:
                return
            first = step.minute if first is None else first
            due_s = began_s + (step.minute - first) / self._minutes_per_s
            if self._ends.wait(max(0.0, due_s - time.monotonic())):
                return
            self._loader.write_step(FLIGHTS, step.write)
            self.minute = step.minute
            if step.status:
                self._statuses[step.write.key] = step.status
            else:
                self.cancelled += 1
                del self._statuses[step.write.key]
