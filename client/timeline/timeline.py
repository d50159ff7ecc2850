"""Timelines of a table: store messages, read them both ways, follow new ones.

Ids of a timeline rise in the order of the commits. A read sees every write that was answered
before it began. So a reader that has passed an id never finds a smaller one later, and "everything
after N" is all that a device has to remember. For ids that a writer chooses this does not hold.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rowtide.client.async_client import AsyncClient
from rowtide.client.batches import BatchFailed, PutRow, RowOutcome
from rowtide.client.predicates import Predicate
from rowtide.client.row_values import RowDict
from rowtide.client.table_requests import SecondaryIndex
from rowtide.client.timeline.change_watch import ChangeWatch, Outage
from rowtide.client.timeline.exact_sending import send_once
from rowtide.client.timeline.message import FieldInput, Fields, decode_fields, encode_fields
from rowtide.client.timeline.schema import (
    MESSAGE_ID,
    TTL_FOREVER,
    VERSION_DEVIATION_S,
    TimelineSchema,
)
from rowtide.client.timeline.searched_table import SearchedTable
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable, invalid
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.variant import Scalar

__all__ = ["Timeline", "TimelineEntry", "TimelineExpired", "TimelineHit", "Timelines"]

SCAN_LIMIT = 100
"""Messages that a scan returns by default, as in the Java library."""

EXPIRED_AT_ONCE = 1000
"""Rows that a scan reads at once where many have expired."""

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


@dataclass(frozen=True, slots=True)
class TimelineHit:
    """A message that a search found, and the identifier of its timeline."""

    identifier: tuple[Scalar, ...]
    entry: TimelineEntry


class Timelines(SearchedTable[TimelineHit]):
    """The timelines of one table. ``search_folder`` is for the indexes of searches."""

    def __init__(
        self, client: AsyncClient, schema: TimelineSchema, *, search_folder: Path | None = None
    ) -> None:
        super().__init__(client, schema.table, search_folder)
        self.schema = schema

    def _hit(self, row: RowDict) -> TimelineHit:
        names = self.schema.key.names
        identifier = {name: row[name] for name in names}
        entry = Timeline(self, identifier).entry_of(row)
        return TimelineHit(tuple(identifier.values()), entry)

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

    def require_one_text(self, who: str) -> None:
        """Raise OTSParameterInvalid unless a timeline is named by one text, as ``who`` need it."""
        key = self.schema.key
        if [kind for _, kind in key.columns] != [str]:
            raise invalid(
                f"{who} need one text as identifier; table '{self.schema.table}' has "
                f"({', '.join(key.names)})."
            )

    async def get_many(
        self, references: Sequence[tuple[int | str | bytes, int]]
    ) -> list[TimelineEntry | None]:
        """Return the message of each (identifier, id), or None if it is absent.

        For tables with one identifier column.
        """
        name = self.schema.key.names[0]
        keys = [{name: identifier, self.schema.sequence: id} for identifier, id in references]
        rows = await self.client.get_many(self.schema.table, keys) if keys else []
        names = (*self.schema.key.names, self.schema.sequence)
        return [
            None
            if row is None or self.schema.has_expired(row)
            else TimelineEntry(id, decode_fields(row, key=names, lists=self.schema.lists))
            for (_, id), row in zip(references, rows, strict=True)
        ]


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
        return self.entry_of(row | await self.client.put(self.schema.table, row))

    async def send(self, fields: Mapping[str, FieldInput], *, message_id: str) -> TimelineEntry:
        """Store a message unless one with this ``message_id`` is stored; return the first entry.

        A repeat returns the first entry, whichever process sends it, as long as the message is not
        deleted. The message has the field ``__message_id``.
        """
        columns = self._columns({**fields, MESSAGE_ID: message_id})
        found = await send_once(
            self.client, self.schema, self.identifier, columns, message_id=message_id
        )
        return self.entry_of(found)

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
            self.entry_of(row | (outcome.key or {}))
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
        return None if row is None or self.schema.has_expired(row) else self.entry_of(row)

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
        _check_after(id)
        async for entry in self.scan_after(id, limit=limit):
            yield entry

    async def follow(self, *, after: int = 0) -> AsyncIterator[TimelineEntry]:
        """Yield the messages after an id, then each new one as it is stored. It does not end.

        Failures of up to a minute are bridged. Raises ``TimelineExpired`` as ``after`` does. A
        table without a stream is read twice a second.
        """
        _check_after(after)
        watch = ChangeWatch(self.client, self.schema.table, [self.identifier])
        outage = Outage()
        complete_us = 0
        while True:
            try:
                await watch.begin()
                began_us = self.now_us
                async for entry in self.scan_after(after, complete_us=complete_us):
                    after = entry.id
                    yield entry
                complete_us = began_us
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
        rows = self._rows(from_id, to_id, limit, filter, fields, reverse=reverse)
        if self.schema.ttl_s != TTL_FOREVER:
            rows = self._live_rows(from_id, to_id, limit, filter, fields, reverse=reverse)
        return self._entries(rows)

    def _rows(
        self,
        from_id: int,
        to_id: int,
        limit: int | None,
        filter: Predicate | None,
        fields: Sequence[str],
        *,
        reverse: bool = False,
    ) -> AsyncIterator[RowDict]:
        return self.client.range(
            self.schema.table,
            {**self.identifier, self.schema.sequence: from_id},
            {**self.identifier, self.schema.sequence: to_id},
            reverse=reverse,
            columns=fields,
            filter=filter,
            limit=limit,
        )

    async def _live_rows(
        self,
        from_id: int,
        to_id: int,
        limit: int | None,
        filter: Predicate | None,
        fields: Sequence[str],
        *,
        reverse: bool,
    ) -> AsyncIterator[RowDict]:
        """Yield the rows of a scan without those that have expired, which the server still has.

        Rows are read with all their fields, because one without fields has expired.
        """
        left, at_once = limit, limit
        kept = {*self._key_names, *fields}
        while True:
            last, count = from_id, 0
            async for row in self._rows(from_id, to_id, at_once, filter, (), reverse=reverse):
                last, count = self._id_of(row), count + 1
                if self.schema.has_expired(row):
                    continue
                yield {name: row[name] for name in row if name in kept} if fields else row
                if left is not None and (left := left - 1) == 0:
                    return
            from_id = last - 1 if reverse else last + 1
            if at_once is None or count < at_once or from_id == to_id:
                return
            # Old messages expire together: do not read them one by one.
            at_once = min(max(at_once * 10, SCAN_LIMIT), EXPIRED_AT_ONCE)

    async def _entries(self, rows: AsyncIterator[RowDict]) -> AsyncIterator[TimelineEntry]:
        async for row in rows:
            yield self.entry_of(row)

    @property
    def now_us(self) -> int:
        """The server's time in microseconds, as its last answer had it."""
        return self.client.endpoint.answered_us or time.time_ns() // 1000

    async def scan_after(
        self, after: int, *, limit: int | None = None, complete_us: int = 0
    ) -> AsyncGenerator[TimelineEntry, None]:
        """Yield the messages after an id. Raises what ``require_kept`` does, before the first."""
        entries = self.forward(after + 1, limit=limit)
        first = await anext(entries, None)
        # The answer has the server's present time, so it costs no request to look.
        await self.require_kept(after, complete_us=complete_us)
        if first is not None:
            yield first
            async for entry in entries:
                yield entry

    async def require_kept(self, after: int, *, complete_us: int = 0) -> None:
        """Raise ``TimelineExpired`` if messages after an id may have expired unread.

        Call it when the messages were read: it uses the time of the last answer. An id that the
        server assigned is a time in microseconds. A reader that has read everything at a time
        ``complete_us`` has missed nothing before, however old the last message is.
        """
        if self.schema.ttl_s == TTL_FOREVER or self.schema.manual_sequence or not after:
            return
        kept_us = (self.schema.ttl_s - EXPIRY_MARGIN_S) * 1_000_000
        if max(after, complete_us) < self.now_us - kept_us:
            oldest = await anext(self.forward(limit=1), None)
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
        if not fields and self.schema.ttl_s != TTL_FOREVER:
            raise invalid(
                f"A message of table '{self.schema.table}' needs a field: its messages expire, and "
                f"one without fields has expired."
            )
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

    def entry_of(self, row: RowDict) -> TimelineEntry:
        """Return the message in a row."""
        fields = decode_fields(row, key=self._key_names, lists=self.schema.lists)
        return TimelineEntry(self._id_of(row), fields)

    def _id_of(self, row: RowDict) -> int:
        id = row[self.schema.sequence]
        assert isinstance(id, int), "the sequence column is an integer"
        return id


def _check_after(id: int) -> None:
    if not 0 <= id < INT64_MAX - 1:
        raise invalid(f"A reader goes on after an id of 0 to {INT64_MAX - 2}, not {id}.")


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
