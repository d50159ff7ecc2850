"""One batch in one transaction: what it sets, what it ends, and what was too late.

Every statement is guarded by the stamp, so a batch may come again, late, or twice at once. Two
transactions that meet on a key are told apart by the order of their steps:

- whoever ends a row notes that first (deleted, covered) and removes the row then;
- whoever sets a row sets it first, looks then, with locks, for a note that is newer, and takes the
  row back where there is one.

So either the one that ends waits for the row, or the one that sets waits for the note; two that
wait for each other are a deadlock, which the server breaks and the caller repeats. Rows that no
such note is about are not locked: batches of different keys do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rowtide.connectors.rows import Refused, SinkBatch, SinkRow
from rowtide.connectors.sinks.mysql.connections import MySqlConnection, ValueRefused
from rowtide.connectors.sinks.mysql.keys import KEYS_AT_ONCE, listed, quoted
from rowtide.connectors.sinks.mysql.table import BY_STAMP, STAMP, TargetTable
from rowtide.connectors.sinks.mysql.values import key_literal, literal

__all__ = ["BatchWriter", "newest"]

STATEMENT_BYTES = 1 << 20
"""A longer statement holds the server's memory for no gain in speed."""
PACKET_SPARE = 1024
BY_KEY = "FORCE INDEX (PRIMARY)"
"""Left to itself the server reads a small table whole, and waits for the rows of other batches."""
_S = quoted(STAMP)


class BatchWriter:
    """Writes a batch in a transaction that somebody else begins and ends.

    The table's layout holds every column that the rows have.
    """

    def __init__(self, connection: MySqlConnection, table: TargetTable) -> None:
        self._connection = connection
        self._table = table
        self._keys = table.keys
        self._columns = table.layout.columns
        self.refused: list[Refused] = []

    async def write(self, batch: SinkBatch, rows: Sequence[SinkRow]) -> None:
        """Write the newest row of each key, and what a page says by leaving out."""
        gone = [row for row in rows if row.columns is None]
        there = [row for row in rows if row.columns is not None]
        if batch.covers is not None:
            await self._note_covered(batch)
        if gone:
            await self._end(gone)
        if there:
            await self.set_rows(there)
            await self._take_back_deleted(there)
            await self._take_back_covered(there)
        if batch.covers is not None:
            within = self._keys.within(*batch.covers)
            await self._run(
                f"DELETE FROM {self._table.name} WHERE {_S} < {batch.stamp} AND {within}"
            )

    async def _note_covered(self, batch: SinkBatch) -> None:
        assert batch.covers is not None, "a page"
        begin, end = (f"x'{bound.hex()}'" for bound in batch.covers)
        await self._run(
            f"INSERT INTO {self._table.covered} (`range_begin`, `range_end`, {_S})"
            f" VALUES ({begin}, {end}, {batch.stamp})"
        )

    async def _end(self, rows: Sequence[SinkRow]) -> None:
        keys, table = self._keys, self._table
        for some in chunked(rows):
            values = (f"({','.join(keys.primary_values(row))},{row.stamp})" for row in some)
            await self._run(
                f"INSERT INTO {table.deleted} ({listed(keys.primary)}, {_S})"
                f" VALUES {','.join(values)}"
                f" ON DUPLICATE KEY UPDATE {_S} = GREATEST({_S}, VALUES({_S}))"
            )
            these = " OR ".join(
                f"({keys.one_of([keys.primary_values(row)])} AND {_S} <= {row.stamp})"
                for row in some
            )
            await self._remove(table.name, these)

    async def set_rows(self, rows: Sequence[SinkRow]) -> None:
        """Set rows, but those that the table has as of a later stamp; no note is looked at."""
        head, tail = self._upsert(rows)
        limit = self._connection.packet_bytes_max - PACKET_SPARE - len(head) - len(tail)
        told: list[tuple[SinkRow, bytes]] = []
        size = 0
        for row, values in zip(rows, self._values(rows), strict=True):
            if len(values) > limit:
                why = (
                    f"a statement for it has {len(values)} bytes, max_allowed_packet leaves {limit}"
                )
                self.refused.append(Refused(row, why))
                continue
            if told and size + len(values) > min(limit, STATEMENT_BYTES):
                await self._insert(head, told, tail)
                told, size = [], 0
            told.append((row, values))
            size += len(values) + 1
        if told:
            await self._insert(head, told, tail)

    async def _insert(
        self, head: bytes, told: Sequence[tuple[SinkRow, bytes]], tail: bytes
    ) -> None:
        """Insert rows; where the server refuses one, find it by halves."""
        statement = head + b",".join([values for _, values in told]) + tail
        try:
            await self._connection.run(statement)
        except ValueRefused as error:
            # A statement that fails is undone whole, the transaction goes on.
            if len(told) == 1:
                self.refused.append(Refused(told[0][0], str(error)))
                return
            middle = len(told) // 2
            await self._insert(head, told[:middle], tail)
            await self._insert(head, told[middle:], tail)

    def _upsert(self, rows: Sequence[SinkRow]) -> tuple[bytes, bytes]:
        """Return what stands before and behind the values of an insert."""
        columns = self._columns
        used = self._used(rows)
        names = [*(quoted(n) for n in self._key_names()), *(quoted(columns[n][0]) for n in used)]
        newer = f"VALUES({_S}) >= {_S}"
        changes = [f"{quoted(columns[n][0])} = " for n in columns]
        for at, name in enumerate(columns):
            column = quoted(columns[name][0])
            value = f"VALUES({column})" if name in used else "NULL"
            changes[at] += f"IF({newer}, {value}, {column})"
        # The stamp last: what stands before it must see the one that was there.
        changes.append(f"{_S} = GREATEST({_S}, VALUES({_S}))")
        head = f"INSERT INTO {self._table.name} ({','.join(names)},{_S}) VALUES "
        return head.encode(), f" ON DUPLICATE KEY UPDATE {', '.join(changes)}".encode()

    def _key_names(self) -> Sequence[str]:
        keys = self._keys
        return (*keys.primary, *keys.names) if keys.hashed else keys.names

    def _used(self, rows: Sequence[SinkRow]) -> dict[str, None]:
        """Return the columns that a row of these has, in the table's order."""
        met: set[str] = set()
        for row in rows:
            met.update(row.columns or ())
        return {name: None for name in self._columns if name in met}

    def _values(self, rows: Sequence[SinkRow]) -> Iterator[bytes]:
        columns = self._columns
        used = [(name, columns[name][1]) for name in self._used(rows)]
        row_values, width = self._keys.row_values, self._table.width
        for row in rows:
            assert row.columns is not None, "a row that is there"
            get = row.columns.get
            parts = row_values(row)
            parts += [literal(get(name), kind, width=width) for name, kind in used]
            yield f"({','.join(parts)},{row.stamp})".encode()

    async def _take_back_deleted(self, rows: Sequence[SinkRow]) -> None:
        keys, table = self._keys, self._table
        if not await self._has_notes(rows):
            return
        for some in chunked(rows):
            by_key = {tuple(keys.primary_values(row)): row for row in some}
            condition = keys.one_of(list(by_key))
            shown = ",".join(quoted(name) for name in keys.primary)
            notes = await self._connection.rows(
                f"SELECT {shown}, {_S} FROM {table.deleted} {BY_KEY} WHERE {condition} FOR UPDATE"
            )
            late: list[str] = []
            past: list[str] = []
            for *parts, stamp in notes:
                key = tuple(key_literal(part) for part in parts)
                row, this = by_key[key], keys.one_of([key])
                if stamp > row.stamp:
                    late.append(f"({this} AND {_S} < {stamp})")
                else:
                    past.append(f"({this} AND {_S} <= {row.stamp})")
            if late:
                await self._remove(table.name, " OR ".join(late))
            if past:
                await self._remove(table.deleted, " OR ".join(past))

    async def _has_notes(self, rows: Sequence[SinkRow]) -> bool:
        """True if any key from the least to the greatest was deleted, uncommitted included."""
        keys, table = self._keys, self._table
        if keys.hashed:
            return True  # From one hash to another there are everybody's keys.
        ordered = sorted(rows, key=lambda row: row.key_bytes)
        # Behind the greatest key itself: a longer one begins with it.
        condition = keys.within(ordered[0].key_bytes, ordered[-1].key_bytes + b"\xff")
        query = (
            f"SELECT 1 FROM {table.deleted} {BY_KEY} WHERE {condition} LIMIT 1 LOCK IN SHARE MODE"
        )
        return bool(await self._connection.rows(query))

    async def _take_back_covered(self, rows: Sequence[SinkRow]) -> None:
        least = min(row.stamp for row in rows)
        notes = await self._connection.rows(
            f"SELECT `range_begin`, `range_end`, {_S} FROM {self._table.covered}"
            f" FORCE INDEX ({BY_STAMP}) WHERE {_S} > {least} LOCK IN SHARE MODE"
        )
        for begin, end, stamp in notes:
            late = [
                self._keys.primary_values(row)
                for row in rows
                if row.stamp < stamp and begin <= row.key_bytes and (not end or row.key_bytes < end)
            ]
            for at in range(0, len(late), KEYS_AT_ONCE):
                these = self._keys.one_of(late[at : at + KEYS_AT_ONCE])
                await self._run(
                    f"DELETE FROM {self._table.name} WHERE ({these}) AND {_S} < {stamp}"
                )

    async def _remove(self, table: str, condition: str) -> None:
        await self._run(f"DELETE t FROM {table} t {BY_KEY} WHERE {condition}")

    async def _run(self, statement: str) -> None:
        await self._connection.run(statement)


def chunked(rows: Sequence[SinkRow]) -> Iterator[Sequence[SinkRow]]:
    """Yield rows by as many as stand in one condition."""
    for at in range(0, len(rows), KEYS_AT_ONCE):
        yield rows[at : at + KEYS_AT_ONCE]


def newest(rows: Iterable[SinkRow]) -> list[SinkRow]:
    """Return of each key the row of the highest stamp, in keys' order."""
    found: dict[bytes, SinkRow] = {}
    for row in rows:
        held = found.get(row.key_bytes)
        if held is None or held.stamp <= row.stamp:
            found[row.key_bytes] = row
    # One order for all: two batches with the same keys then wait, and do not lock in a circle.
    return [found[key] for key in sorted(found)]
