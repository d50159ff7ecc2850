"""What tables consume: capacity units per second, summed by hour.

Within a second a table's reservation covers what it can; the excess is on demand. Within an hour
the reservation is averaged and the on-demand use is summed. Times are Unix seconds; the first
second of an hour names it. Nothing here reads a clock, and nothing is durable: the caller takes the
sums and stores them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import Table

__all__ = ["HOUR_S", "NO_TABLE", "HourOf", "Metering", "PartitionUnits", "Taken", "Use"]

HOUR_S = 3600
NO_TABLE = ""
"""In place of a table name: requests for tables that do not exist."""


class HourOf(NamedTuple):
    """One hour of one table."""

    hour_s: int
    instance: str
    table: str


@dataclass(slots=True)
class Use:
    """Units in an hour. Reserved use is in units times seconds."""

    read: int = 0
    write: int = 0
    read_on_demand: int = 0
    write_on_demand: int = 0
    read_reserved_s: float = 0.0
    write_reserved_s: float = 0.0

    def add(self, other: Use) -> None:
        """Add another part of the same hour."""
        self.read += other.read
        self.write += other.write
        self.read_on_demand += other.read_on_demand
        self.write_on_demand += other.write_on_demand
        self.read_reserved_s += other.read_reserved_s
        self.write_reserved_s += other.write_reserved_s


@dataclass(slots=True)
class Taken:
    """The counts since the last ``take``: by table and hour, and the seconds counted per hour."""

    uses: dict[HourOf, Use] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def add(self, other: Taken) -> None:
        """Add the counts of another time."""
        for hour_of, use in other.uses.items():
            self.use(hour_of).add(use)
        for hour_s, seconds in other.seconds.items():
            self.seconds[hour_s] = self.seconds.get(hour_s, 0.0) + seconds

    def use(self, hour_of: HourOf) -> Use:
        """Return a table's use in an hour, to add to."""
        return self.uses.setdefault(hour_of, Use())


@dataclass(slots=True)
class Second:
    """One table's use in the present second, and its reservation at that time."""

    instance: str
    table: str
    read: int = 0
    write: int = 0
    reserved_read: int = 0
    reserved_write: int = 0


class Metering:
    """Counts units. The first count in another second closes the present one."""

    def __init__(self, now_s: float) -> None:
        self._begin_s = int(now_s)
        self._end_s = self._begin_s + 1
        self._tables: dict[int, Second] = {}
        self._missing: dict[str, Second] = {}
        self._taken = Taken()
        self._totals: dict[tuple[str, str], tuple[int, int]] = {}
        self._seen_s = now_s

    def count(self, table: Table, read: int, write: int, now_s: float) -> None:
        """Count an operation. Every request calls this, so it must stay short."""
        if not self._begin_s <= now_s < self._end_s:
            self._turn(now_s)
        used = self._tables.get(table.table_id)
        if used is None:
            used = self._second(table)
        used.read += read
        used.write += write

    def count_missing(self, instance: str, read: int, write: int, now_s: float) -> None:
        """Count an operation on a table that does not exist."""
        if not self._begin_s <= now_s < self._end_s:
            self._turn(now_s)
        used = self._missing.setdefault(instance, Second(instance, NO_TABLE))
        used.read += read
        used.write += write

    def take(self, now_s: float, tables: Iterable[Table]) -> Taken:
        """Return the counts since the last call; ``tables`` have reservations."""
        self._turn(now_s)
        self._reserve(now_s, tables)
        taken, self._taken = self._taken, Taken()
        return taken

    def totals(self, now_s: float) -> dict[tuple[str, str], tuple[int, int]]:
        """Return (read, written) units by (instance, table) since the start."""
        self._turn(now_s)
        return self._totals

    def put_back(self, taken: Taken) -> None:
        """Add counts that could not be stored to the next ``take``."""
        self._taken.add(taken)

    def _second(self, table: Table) -> Second:
        # Made in each second, so that it has the reservation at the second's start.
        second = Second(table.instance, table.name, 0, 0, table.reserved_read, table.reserved_write)
        self._tables[table.table_id] = second
        return second

    def _turn(self, now_s: float) -> None:
        """Close the present second. If the clock went back, the next one begins there."""
        hour_s = self._begin_s - self._begin_s % HOUR_S
        for used in (*self._tables.values(), *self._missing.values()):
            use = self._taken.use(HourOf(hour_s, used.instance, used.table))
            use.read += used.read
            use.write += used.write
            place = used.instance, used.table
            read, write = self._totals.get(place, (0, 0))
            self._totals[place] = read + used.read, write + used.write
            use.read_on_demand += max(0, used.read - used.reserved_read)
            use.write_on_demand += max(0, used.write - used.reserved_write)
        self._tables.clear()
        self._missing.clear()
        self._begin_s = int(now_s)
        self._end_s = self._begin_s + 1

    def _reserve(self, now_s: float, tables: Iterable[Table]) -> None:
        """Count the time since the last call, and the units reserved in it.

        If more than an hour has passed, nothing was running, and the time is not counted.
        """
        reserved = [table for table in tables if table.reserved_read or table.reserved_write]
        at_s, self._seen_s = self._seen_s, now_s
        if now_s - at_s > HOUR_S:
            return
        while at_s < now_s:
            hour_s = int(at_s) - int(at_s) % HOUR_S
            passed_s = min(now_s, hour_s + HOUR_S) - at_s
            at_s += passed_s
            self._taken.seconds[hour_s] = self._taken.seconds.get(hour_s, 0.0) + passed_s
            for table in reserved:
                use = self._taken.use(HourOf(hour_s, table.instance, table.name))
                use.read_reserved_s += table.reserved_read * passed_s
                use.write_reserved_s += table.reserved_write * passed_s


class PartitionUnits:
    """Bounds the units of one partition key per second; later requests are rejected."""

    def __init__(self, units_max: int) -> None:
        self._units_max = units_max
        self._second = 0
        self._used: dict[tuple[int, bytes], int] = {}

    def require(self, table: Table, partition_key: bytes, now_s: float) -> None:
        """Raise OTSCapacityUnitExhausted if the second's units are used up."""
        if int(now_s) != self._second:
            self._second = int(now_s)
            self._used.clear()
        if self._used.get((table.table_id, partition_key), 0) >= self._units_max:
            raise Unavailable(
                f"The capacity units of one partition key are exhausted: {self._units_max} per "
                f"second.",
                "OTSCapacityUnitExhausted",
            )

    def add(self, table: Table, partition_key: bytes, units: int) -> None:
        """Count units in the present second."""
        place = table.table_id, partition_key
        self._used[place] = self._used.get(place, 0) + units
