"""Writes one batch in one transaction: rows to set, rows to delete, and late rows to
undo.

Every statement compares stamps, so a batch may be repeated, late, or written twice at
once. The order of steps decides between two transactions that meet on a key:

- One that deletes rows first notes that (deleted, covered) and then removes the rows.
- One that sets rows sets them first. Then it searches, with locks, for a newer note, and
  removes its row if there is one.

So either the deleting transaction waits for the row, or the setting one waits for the
note. If both wait for each other, the server breaks the deadlock and the caller retries.
Rows without such a note are not locked, so batches of different keys do not wait for each
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rowtide.connectors.rows import Refused, SinkBatch, SinkRow
from rowtide.connectors.sinks.mysql.connections import MySqlConnection, ValueRefused
from rowtide.connectors.sinks.mysql.keys import KEYS_AT_ONCE, join_names, quote_name
from rowtide.connectors.sinks.mysql.table import BY_STAMP, STAMP, TargetTable
from rowtide.connectors.sinks.mysql.values import key_literal, literal

__all__ = ["BatchWriter", "newest"]

STATEMENT_BYTES = 1 << 20
"""A longer statement takes more of the server's memory and is not faster."""
PACKET_SPARE = 1024
BY_KEY = "FORCE INDEX (PRIMARY)"
"""Without this the server may scan a small table, and wait for the rows of other batches."""
_S = quote_name(STAMP)


class BatchWriter:
    """Writes a batch in a transaction that the caller begins and ends.

    The table's layout must have every column of the rows.
    """

    def __init__(self, connection: MySqlConnection, table: TargetTable) -> None:
        self._connection = connection
        self._table = table
        self._keys = table.keys
        self._columns = table.layout.columns
        self.refused: list[Refused] = []

    async def write(self, batch: SinkBatch, rows: Sequence[SinkRow]) -> None:
        """Write the newest row of each key, and delete what a page lacks."""
        gone = [row for row in rows if row.columns is None]
        there = [row for row in rows if row.columns is not None]
        if batch.covers is not None:
            await self._note_range(batch)
        if gone:
            await self._end(gone)
        if there:
            await self.set_rows(there)
            await self._undo_by_deletes(there)
            await self._undo_by_ranges(there)
        if batch.covers is not None:
            within = self._keys.within(*batch.covers)
            await self._run(
                f"DELETE FROM {self._table.name} WHERE {_S} < {batch.stamp} AND {within}"
            )

    async def _note_range(self, batch: SinkBatch) -> None:
        assert batch.covers is not None, "a page"
        begin, end = (f"x'{bound.hex()}'" for bound in batch.covers)
        await self._run(
            f"INSERT INTO {self._table.covered} (`range_begin`, `range_end`, {_S})"
            f" VALUES ({begin}, {end}, {batch.stamp})"
        )

    async def _end(self, rows: Sequence[SinkRow]) -> None:
        keys, table = self._keys, self._table
        for some in chunk_rows(rows):
            values = (f"({','.join(keys.primary_values(row))},{row.stamp})" for row in some)
            await self._run(
                f"INSERT INTO {table.deleted} ({join_names(keys.primary)}, {_S})"
                f" VALUES {','.join(values)}"
                f" ON DUPLICATE KEY UPDATE {_S} = GREATEST({_S}, VALUES({_S}))"
            )
            these = " OR ".join(
                f"({keys.one_of([keys.primary_values(row)])} AND {_S} <= {row.stamp})"
                for row in some
            )
            await self._remove(table.name, these)

    async def set_rows(self, rows: Sequence[SinkRow]) -> None:
        """Set rows unless the table has a later stamp. This does not check notes of deletes."""
        head, tail = self._upsert(rows)
        limit = self._connection.packet_bytes_max - PACKET_SPARE - len(head) - len(tail)
        group: list[tuple[SinkRow, bytes]] = []
        size = 0
        for row, values in zip(rows, self._values(rows), strict=True):
            if len(values) > limit:
                why = (
                    f"a statement for it has {len(values)} bytes, max_allowed_packet leaves {limit}"
                )
                self.refused.append(Refused(row, why))
                continue
            if group and size + len(values) > min(limit, STATEMENT_BYTES):
                await self._insert(head, group, tail)
                group, size = [], 0
            group.append((row, values))
            size += len(values) + 1
        if group:
            await self._insert(head, group, tail)

    async def _insert(
        self, head: bytes, group: Sequence[tuple[SinkRow, bytes]], tail: bytes
    ) -> None:
        """Insert rows. If the server refuses one, find it by halving."""
        statement = head + b",".join([values for _, values in group]) + tail
        try:
            await self._connection.run(statement)
        except ValueRefused as error:
            # A failed statement is undone as a whole. The transaction goes on.
            if len(group) == 1:
                self.refused.append(Refused(group[0][0], str(error)))
                return
            middle = len(group) // 2
            await self._insert(head, group[:middle], tail)
            await self._insert(head, group[middle:], tail)

    def _upsert(self, rows: Sequence[SinkRow]) -> tuple[bytes, bytes]:
        """Return the parts of an insert before and after its values."""
        columns = self._columns
        used = self._pick_columns(rows)
        names = [
            *(quote_name(n) for n in self._key_names()),
            *(quote_name(columns[n][0]) for n in used),
        ]
        newer = f"VALUES({_S}) >= {_S}"
        changes = [f"{quote_name(columns[n][0])} = " for n in columns]
        for at, name in enumerate(columns):
            column = quote_name(columns[name][0])
            value = f"VALUES({column})" if name in used else "NULL"
            changes[at] += f"IF({newer}, {value}, {column})"
        # Assign the stamp last: the assignments before it must see the old one.
        changes.append(f"{_S} = GREATEST({_S}, VALUES({_S}))")
        head = f"INSERT INTO {self._table.name} ({','.join(names)},{_S}) VALUES "
        return head.encode(), f" ON DUPLICATE KEY UPDATE {', '.join(changes)}".encode()

    def _key_names(self) -> Sequence[str]:
        keys = self._keys
        return (*keys.primary, *keys.names) if keys.hashed else keys.names

    def _pick_columns(self, rows: Sequence[SinkRow]) -> dict[str, None]:
        """Return the columns that any of the rows has, in the table's order."""
        met: set[str] = set()
        for row in rows:
            met.update(row.columns or ())
        return {name: None for name in self._columns if name in met}

    def _values(self, rows: Sequence[SinkRow]) -> Iterator[bytes]:
        columns = self._columns
        used = [(name, columns[name][1]) for name in self._pick_columns(rows)]
        row_values, width = self._keys.row_values, self._table.width
        for row in rows:
            assert row.columns is not None, "a row that exists"
            get = row.columns.get
            parts = row_values(row)
            parts += [literal(get(name), kind, width=width) for name, kind in used]
            yield f"({','.join(parts)},{row.stamp})".encode()

    async def _undo_by_deletes(self, rows: Sequence[SinkRow]) -> None:
        keys, table = self._keys, self._table
        if not await self._has_notes(rows):
            return
        for some in chunk_rows(rows):
            by_key = {tuple(keys.primary_values(row)): row for row in some}
            condition = keys.one_of(list(by_key))
            shown = ",".join(quote_name(name) for name in keys.primary)
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
        """True if a key between the least and the greatest may be deleted, also uncommitted."""
        keys, table = self._keys, self._table
        if keys.hashed:
            return True  # Between two hashes are keys of other batches too.
        ordered = sorted(rows, key=lambda row: row.key_bytes)
        # The range includes the greatest key. A longer key begins with it.
        condition = keys.within(ordered[0].key_bytes, ordered[-1].key_bytes + b"\xff")
        query = (
            f"SELECT 1 FROM {table.deleted} {BY_KEY} WHERE {condition} LIMIT 1 LOCK IN SHARE MODE"
        )
        return bool(await self._connection.rows(query))

    async def _undo_by_ranges(self, rows: Sequence[SinkRow]) -> None:
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


def chunk_rows(rows: Sequence[SinkRow]) -> Iterator[Sequence[SinkRow]]:
    """Yield rows in groups that fit into one condition."""
    for at in range(0, len(rows), KEYS_AT_ONCE):
        yield rows[at : at + KEYS_AT_ONCE]


def newest(rows: Iterable[SinkRow]) -> list[SinkRow]:
    """Return for each key the row with the highest stamp, in key order."""
    found: dict[bytes, SinkRow] = {}
    for row in rows:
        held = found.get(row.key_bytes)
        if held is None or held.stamp <= row.stamp:
            found[row.key_bytes] = row
    # All batches use this order, so two with the same keys wait and do not deadlock.
    return [found[key] for key in sorted(found)]
