"""The current rows by a topic's records: for each key the record with the highest stamp.

The topic is read from its start once, then on from where the last read ended. The whole
table is in memory. This is for comparison, not for serving.
"""

from __future__ import annotations

from typing import Protocol

from rowtide.connectors.sinks.kafka.envelope import RowColumns
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader
from rowtide.stream.log.kafka.fetch import FetchPartition

__all__ = ["STAMP", "TopicRows"]

STAMP = "rowtide.stamp"
"""The header with a record's stamp, in decimal digits."""


class _Form(Protocol):
    async def read_record(
        self, key: bytes, value: bytes
    ) -> tuple[RowColumns, RowColumns | None]: ...

    def convert_columns(self, columns: RowColumns) -> RowColumns: ...


class TopicRows:
    """The current rows of a topic."""

    def __init__(self, brokers: Brokers, topic: str, partitions: int, form: _Form) -> None:
        self._form = form
        self._parts = [
            (FetchPartition(brokers, topic, at), KafkaChangelogReader(brokers, topic, at))
            for at in range(partitions)
        ]
        self._begun = False
        self._rows: dict[bytes, tuple[int, RowColumns | None]] = {}

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return living rows of a range in key order."""
        await self._catch_up()
        keys = sorted(key for key in self._rows if begin <= key and (not end or key < end))
        found: list[HeldRow] = []
        for key in keys:
            stamp, columns = self._rows[key]
            if columns is not None and len(found) < limit:
                found.append(HeldRow(key, stamp, self._form.convert_columns(columns)))
        return found

    async def living(self) -> dict[bytes, int]:
        """Return the stamps of the living rows by key."""
        await self._catch_up()
        return {key: stamp for key, (stamp, columns) in self._rows.items() if columns is not None}

    async def _catch_up(self) -> None:
        for partition, reader in self._parts:
            start = reader.position if self._begun else await reader.start()
            async for entries in reader.read(start, await partition.find_decided_end()):
                for entry in entries:
                    await self._fold(entry)
        self._begun = True

    async def _fold(self, entry: ChangelogEntry) -> None:
        if entry.value is None:
            return  # The record before a tombstone already says that the row is deleted.
        stamp = next((int(value) for name, value in entry.headers if name == STAMP), None)
        if stamp is None:
            return  # Not written by rowtide.
        key, columns = await self._form.read_record(entry.key, entry.value)
        key_bytes = key_order.encode([variant.encode(value) for value in key.values()])
        held = self._rows.get(key_bytes)
        if held is None or held[0] < stamp:
            self._rows[key_bytes] = (stamp, columns)
