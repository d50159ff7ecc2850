"""Counts the units that requests consume, stores them by the hour, and reports them.

Sums are written to the file every minute and at a drain, so a crash loses at most one
minute of them. Each worker counts the consumption of its own shards.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any

from rowtide.core.cluster.metering import (
    HOUR_S,
    NO_TABLE,
    HourOf,
    Metering,
    PartitionUnits,
    Taken,
    Use,
)
from rowtide.core.protocol.worker_messages import ConsumptionAnswer
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.schema import Table
from rowtide.stream.measures.consumption_file import ConsumptionFile

__all__ = ["Consumption", "decode_taken", "encode_taken", "hours"]

logger = logging.getLogger(__name__)

FLUSH_S = 60.0


class Consumption:
    """The one place where operations are counted. ``clock_s`` gives Unix seconds.

    ``partition_units_max`` is the limit of one partition key per second, in units; 0: no
    limit.
    """

    def __init__(self, clock_s: Callable[[], float], *, partition_units_max: int = 0) -> None:
        self._clock_s = clock_s
        self._metering = Metering(clock_s())
        self._partitions = PartitionUnits(partition_units_max) if partition_units_max else None
        self.by_partition_key = self._partitions is not None
        """True if an operation's partition key must be counted."""
        self._file: ConsumptionFile | None = None
        self._tables: Callable[[], Iterable[Table]] = tuple
        self._flushing = asyncio.Lock()

    def keep(self, file: ConsumptionFile, tables: Callable[[], Iterable[Table]]) -> None:
        """Store in ``file`` from now on; ``tables`` returns the tables that may have
        reservations.
        """
        self._file, self._tables = file, tables

    # Calls from operations.

    def require(self, table: Table, partition_key: bytes) -> None:
        """Raise OTSCapacityUnitExhausted if a partition key has used its units of this second."""
        if self._partitions is not None:
            self._partitions.require(table, partition_key, self._clock_s())

    def count(self, table: Table, partition_key: bytes | None, read: int, write: int) -> None:
        """Count an operation on a table. ``partition_key`` is None if it has several."""
        self._metering.count(table, read, write, self._clock_s())
        if self._partitions is not None and partition_key is not None:
            self._partitions.add(table, partition_key, read + write)

    def count_missing(self, instance: str, *, read: int = 0, write: int = 0) -> None:
        """Count an operation on a table that does not exist."""
        self._metering.count_missing(instance, read, write, self._clock_s())

    # Storing and reporting.

    def totals(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return (read, written) units by (instance, table) since this process started."""
        return self._metering.totals(self._clock_s())

    async def run(self) -> None:
        """Store every ``FLUSH_S`` seconds until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Store the counted units; units that cannot be stored are kept for the next time."""
        async with self._flushing:
            taken = self._metering.take(self._clock_s(), self._tables())
            if self._file is None or not (taken.uses or taken.seconds):
                return
            try:
                await asyncio.to_thread(self._file.add, taken)
            except (sqlite3.Error, OSError) as error:
                logger.warning("cannot store consumption, retrying in %s s: %s", FLUSH_S, error)
                self._metering.put_back(taken)

    async def find(
        self, instance: str, table: str | None, begin_s: int | None, end_s: int | None
    ) -> Taken:
        """Return this worker's count of an instance up to now, of one table or of all.

        An hour belongs to the range that holds its first second.
        """
        await self.flush()
        if self._file is None:
            return Taken()
        bounds = begin_s or 0, INT64_MAX if end_s is None else end_s
        async with self._flushing:
            found = await asyncio.to_thread(self._file.find, instance, table, *bounds)
        found.seconds = {hour_s: min(s, HOUR_S) for hour_s, s in found.seconds.items()}
        return found


def encode_taken(found: Taken) -> bytes:
    """Return a count as one worker sends it to another."""
    uses = [[*hour_of, *astuple(use)] for hour_of, use in found.uses.items()]
    return ConsumptionAnswer(uses, found.seconds).encode()


def decode_taken(encoded: bytes) -> Taken:
    """Return another worker's count."""
    answer = ConsumptionAnswer.decode(encoded)
    uses = {HourOf(*use[:3]): Use(*use[3:]) for use in answer.uses}
    return Taken(uses, {int(hour_s): seconds for hour_s, seconds in answer.seconds.items()})


def hours(found: Taken) -> list[dict[str, Any]]:
    """Return the hours as operators see them, in order."""
    return [_describe_hour(hour_of, use, found) for hour_of, use in sorted(found.uses.items())]


def _describe_hour(hour_of: HourOf, use: Use, found: Taken) -> dict[str, Any]:
    """Return an hour as operators see it; reservations are averaged over the time counted.

    For several workers this is the average of all: each counts every table's reservation.
    """
    seconds = found.seconds.get(hour_of.hour_s, 0.0)
    return {
        "hour_s": hour_of.hour_s,
        "table": None if hour_of.table == NO_TABLE else hour_of.table,
        "read": use.read,
        "write": use.write,
        "read_reserved": round(use.read_reserved_s / seconds, 3) if seconds else 0.0,
        "write_reserved": round(use.write_reserved_s / seconds, 3) if seconds else 0.0,
        "read_on_demand": use.read_on_demand,
        "write_on_demand": use.write_on_demand,
    }
