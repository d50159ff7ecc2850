"""Timelines of a table: store messages, read them both ways, follow new ones.

Ids of a timeline rise in the order of the commits. A read sees every write that was answered
before it began. So a reader that has passed an id never finds a smaller one later, and "everything
after N" is all that a device has to remember. For ids that a writer chooses this does not hold.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rowtide.client.async_client import AsyncClient
from rowtide.client.batches import BatchFailed, PutRow, RowOutcome
from rowtide.client.predicates import Predicate
from rowtide.client.row_values import RowDict
from rowtide.client.table_requests import SecondaryIndex
from rowtide.client.timeline.change_watch import ChangeWatch, Outage
from rowtide.client.timeline.exact_sending import send_once
from rowtide.client.timeline.message import FieldInput, Fields, decode_fields, encode_fields
from rowtide.client.timeline.schema import MESSAGE_ID, VERSION_DEVIATION_S, TimelineSchema
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable, invalid
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.variant import Scalar

__all__ = ["Timeline", "TimelineEntry", "TimelineExpired", "Timelines"]

SCAN_LIMIT = 100
"""Messages that a scan returns by default, as in the Java library."""

EXPIRY_MARGIN_S = 60
"""A message may expire while it is read: a reader that is this close to it counts as late."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A message with its id. ``fields`` are as a read returns them."""

    id: int
    fields: Fields


class TimelineExpired(Rejected):
    """Messages after the given id may have expired. ``oldest`` is the first one kept, or 0."""

    def __init__(self, after: int, oldest: int) -> None:
        super().__init__(
            "OTSTrimmedDataAccess",
            f"Messages after id {after} may have expired; the oldest message has id {oldest}. "
            f"Read it from there, and the rest from the store table.",
        )
        self.oldest = oldest


class Timelines:
    """The timelines of one table."""

    def __init__(self, client: AsyncClient, schema: TimelineSchema) -> None:
        self.client = client
        self.schema = schema

    async def create(self, *, if_missing: bool = False) -> bool:
        """Create the table; return True if it was created."""
        schema = self.schema
        indexes = (
            []
            if schema.index is None
            else [SecondaryIndex(schema.index, [schema.key.names[0], MESSAGE_ID], is_local=True)]
        )
        return await self.client.create_table(
            schema.table,
            schema.key_columns(),
            defined_columns={MESSAGE_ID: str} if indexes else None,
            indexes=indexes,
            time_to_live_s=schema.ttl_s,
            version_deviation_s=VERSION_DEVIATION_S,
            stream_hours=schema.stream_hours,
            if_missing=if_missing,
        )

    async def drop(self) -> None:
        """Delete the table with all its timelines."""
        await self.client.delete_table(self.schema.table)

    def of(self, *identifier: int | str | bytes) -> Timeline:
        """Return one timeline, by the values of the identifier columns in order."""
        return Timeline(self, self.schema.key.row(identifier, self.client.limits))


class Timeline:
    """One timeline. Calls raise ``Rejected``, ``Unavailable`` or ``OutcomeUnknown``."""

    def __init__(self, timelines: Timelines, identifier: Mapping[str, Scalar]) -> None:
        self.client = timelines.client
        self.schema = timelines.schema
        self.identifier = dict(identifier)
        """The key columns that all messages of the timeline share."""
        self._key_names = (*self.identifier, self.schema.sequence)

    # ---- Writing ----

    async def store(
        self, fields: Mapping[str, FieldInput], *, id: int | None = None
    ) -> TimelineEntry:
        """Store a message in one request; return its entry.

        It is stored at least once if you repeat it after a lost answer; ``send`` stores it once.
        ``id`` is for a table with manual ids, and there replaces a message with this id.
        """
        row = self._new_row(fields, id)
        return self._entry(row | await self.client.put(self.schema.table, row))

    async def send(self, fields: Mapping[str, FieldInput], *, message_id: str) -> TimelineEntry:
        """Store a message unless one with this ``message_id`` is stored; return the first entry.

        A repeat returns the first entry, whichever process sends it, as long as the message is not
        deleted. The message has the field ``__message_id``.
        """
        columns = self._columns({**fields, MESSAGE_ID: message_id})
        found = await send_once(
            self.client, self.schema, self.identifier, columns, message_id=message_id
        )
        return self._entry(found)

    async def store_many(
        self, messages: Iterable[Mapping[str, FieldInput]], *, ids: Sequence[int] | None = None
    ) -> list[TimelineEntry]:
        """Store messages in few requests; return their entries in order.

        Ids rise in the order of the messages of one request. Each message succeeds or fails
        separately: ``BatchFailed`` has the outcome of each one. ``ids`` are for manual ids.
        """
        given = list(messages)
        if ids is not None and len(ids) != len(given):
            raise invalid(f"There are {len(given)} messages, but {len(ids)} ids.")
        rows = [
            self._new_row(fields, None if ids is None else ids[number])
            for number, fields in enumerate(given)
        ]
        outcomes: list[RowOutcome] = []
        for batch in self._batches(rows):
            try:
                keys = await self.client.write([PutRow(self.schema.table, row) for row in batch])
            except BatchFailed as failure:
                outcomes += failure.outcomes
                raise BatchFailed(_add_unsent(outcomes, len(rows))) from failure
            except (Unavailable, OutcomeUnknown, Rejected) as failure:
                outcomes += [RowOutcome(None, failure)] * len(batch)
                raise BatchFailed(_add_unsent(outcomes, len(rows))) from failure
            outcomes += [RowOutcome(key, None) for key in keys]
        return [
            self._entry(row | (outcome.key or {}))
            for row, outcome in zip(rows, outcomes, strict=True)
        ]

    async def update(
        self, id: int, fields: Mapping[str, FieldInput], *, delete: Sequence[str] = ()
    ) -> None:
        """Set some fields of a message and delete others; keep the rest.

        Raises ``ConditionFailed`` if there is no such message, so a late update cannot bring back
        a deleted one.
        """
        row = self._row_key(id) | self._columns(fields)
        await self.client.update(self.schema.table, row, delete=delete, expect="exists")

    async def delete(self, id: int) -> None:
        """Delete a message. An absent one is not an error."""
        await self.client.delete(self.schema.table, self._row_key(id))

    # ---- Reading ----

    async def get(self, id: int) -> TimelineEntry | None:
        """Return a message, or None if there is none."""
        row = await self.client.get(self.schema.table, self._row_key(id))
        return None if row is None else self._entry(row)

    def forward(
        self,
        from_id: int = 0,
        to_id: int = INT64_MAX,
        *,
        limit: int | None = SCAN_LIMIT,
        filter: Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> AsyncIterator[TimelineEntry]:
        """Yield messages from ``from_id`` on and before ``to_id``, the smallest id first.

        ``limit`` None yields all. ``fields`` are those to read, which a filter sees; none are all.
        """
        if not 0 <= from_id < to_id:
            raise invalid(f"A forward scan needs 0 <= from_id < to_id, not {from_id} and {to_id}.")
        return self._scan(from_id, to_id, limit, filter, fields)

    def backward(
        self,
        from_id: int = INT64_MAX,
        to_id: int = 0,
        *,
        limit: int | None = SCAN_LIMIT,
        filter: Predicate | None = None,
        fields: Sequence[str] = (),
    ) -> AsyncIterator[TimelineEntry]:
        """Yield messages from ``from_id`` down and above ``to_id``, the largest id first.

        ``limit`` None yields all. ``fields`` are those to read, which a filter sees; none are all.
        """
        if not 0 <= to_id < from_id:
            raise invalid(f"A backward scan needs from_id > to_id >= 0, not {from_id} and {to_id}.")
        return self._scan(from_id, to_id, limit, filter, fields, reverse=True)

    async def latest(self) -> TimelineEntry | None:
        """Return the message with the largest id, or None if the timeline is empty."""
        return await anext(self.backward(limit=1), None)

    async def latest_id(self) -> int:
        """Return the largest id, or 0 if the timeline is empty."""
        found = await anext(self.backward(limit=1, fields=[self.schema.sequence]), None)
        return 0 if found is None else found.id

    async def after(
        self, id: int, *, limit: int | None = SCAN_LIMIT
    ) -> AsyncIterator[TimelineEntry]:
        """Yield the messages after ``id`` that a device has not seen.

        Raises ``TimelineExpired`` if some of them may have expired, so there is no silent gap.
        """
        if not 0 <= id < INT64_MAX - 1:
            raise invalid(f"A reader goes on after an id of 0 to {INT64_MAX - 2}, not {id}.")
        await self._require_kept(id)
        async for entry in self.forward(id + 1, limit=limit):
            yield entry

    async def follow(self, *, after: int = 0) -> AsyncIterator[TimelineEntry]:
        """Yield the messages after an id, then each new one as it is stored. It does not end.

        Failures of up to a minute are bridged. Raises ``TimelineExpired`` as ``after`` does. A
        table without a stream is read twice a second.
        """
        watch = ChangeWatch(self.client, self.schema.table, self.identifier)
        outage = Outage()
        while True:
            try:
                await watch.begin()
                async for entry in self.after(after, limit=None):
                    after = entry.id
                    yield entry
                outage.end()
                await watch.wait()
            except (Unavailable, OutcomeUnknown) as failure:
                watch.drop()
                await outage.pause(failure)

    # ---- Rows ----

    def _scan(
        self,
        from_id: int,
        to_id: int,
        limit: int | None,
        filter: Predicate | None,
        fields: Sequence[str],
        *,
        reverse: bool = False,
    ) -> AsyncIterator[TimelineEntry]:
        if limit is not None and limit < 1:
            raise invalid(f"The limit of a scan is 1 at least, not {limit}.")
        for name, value in (("from_id", from_id), ("to_id", to_id)):
            if value > INT64_MAX:
                raise invalid(f"{name} is {value}, which does not fit 64 bits.")
        rows = self.client.range(
            self.schema.table,
            {**self.identifier, self.schema.sequence: from_id},
            {**self.identifier, self.schema.sequence: to_id},
            reverse=reverse,
            columns=fields,
            filter=filter,
            limit=limit,
        )
        return self._entries(rows)

    async def _entries(self, rows: AsyncIterator[RowDict]) -> AsyncIterator[TimelineEntry]:
        async for row in rows:
            yield self._entry(row)

    async def _require_kept(self, after: int) -> None:
        """Raise ``TimelineExpired`` if messages after an id may have expired.

        An id that the server assigned is a time in microseconds. The answer with the oldest message
        also brings the server's present time.
        """
        if self.schema.ttl_s < 0 or self.schema.manual_sequence or not after:
            return
        oldest = await anext(self.forward(limit=1, fields=[self.schema.sequence]), None)
        now_us = self.client.endpoint.answered_us or time.time_ns() // 1000
        if after < now_us - (self.schema.ttl_s - EXPIRY_MARGIN_S) * 1_000_000:
            raise TimelineExpired(after, 0 if oldest is None else oldest.id)

    def _batches(self, rows: Sequence[RowDict]) -> Iterable[list[RowDict]]:
        """Yield the rows in parts that fit one request each."""
        limits = self.client.limits
        batch: list[RowDict] = []
        left = limits.batch_write_bytes_max
        for row in rows:
            size = _row_bytes(row)
            if batch and (size > left or len(batch) == limits.batch_write_rows_max):
                yield batch
                batch, left = [], limits.batch_write_bytes_max
            batch.append(row)
            left -= size
        if batch:
            yield batch

    def _new_row(self, fields: Mapping[str, FieldInput], id: int | None) -> dict[str, Scalar]:
        row = self.identifier | self._columns(fields)
        sequence = self.schema.sequence
        if not self.schema.manual_sequence:
            if id is not None:
                raise invalid(f"'{sequence}' is assigned by the server: no id can be given.")
            return row
        if id is None:
            raise invalid(f"'{sequence}' is manual in table '{self.schema.table}': give an id.")
        _check_id(sequence, id)
        if not 0 < id < INT64_MAX:
            # A backward scan excludes 0, and a forward scan excludes the largest number.
            raise invalid(f"'{sequence}' is 1 to {INT64_MAX - 1}, not {id}.")
        return row | {sequence: id}

    def _columns(self, fields: Mapping[str, FieldInput]) -> dict[str, Scalar]:
        return encode_fields(fields, key=self._key_names, limits=self.client.limits)

    def _row_key(self, id: int) -> dict[str, Scalar]:
        _check_id(self.schema.sequence, id)
        return {**self.identifier, self.schema.sequence: id}

    def _entry(self, row: RowDict) -> TimelineEntry:
        id = row[self.schema.sequence]
        assert isinstance(id, int), "the sequence column is an integer"
        return TimelineEntry(id, decode_fields(row, key=self._key_names, lists=self.schema.lists))


def _check_id(sequence: str, id: object) -> None:
    if isinstance(id, bool) or not isinstance(id, int):
        raise invalid(f"'{sequence}' takes an integer, not {type(id).__name__}.")
    if not -(2**63) <= id < 2**63:
        raise invalid(f"'{sequence}': {id} does not fit 64 bits.")


def _row_bytes(row: Mapping[str, Scalar]) -> int:
    """Return an upper bound of a row's bytes in a request."""
    return sum(64 + 4 * len(name) + _value_bytes(value) for name, value in row.items())


def _value_bytes(value: Scalar) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 8


def _add_unsent(outcomes: Sequence[RowOutcome], count: int) -> list[RowOutcome]:
    """Return outcomes for ``count`` messages: those after a failed request were not sent."""
    unsent = Unavailable("Not sent: an earlier request of the same call failed.")
    return [*outcomes, *[RowOutcome(None, unsent)] * (count - len(outcomes))]
