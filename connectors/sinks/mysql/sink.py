"""A table's rows in MySQL or MariaDB: one whole row each, as of its stamp.

See ``table.py`` for the target's tables, ``batch.py`` for writing a batch, ``values.py``
for types and ``keys.py`` for keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from rowtide.connectors.double_text import ANY_WIDTH, MYSQL_WIDTH
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Key, Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.mysql.batch import BatchWriter, newest
from rowtide.connectors.sinks.mysql.connections import (
    Deadlock,
    MySqlConnection,
    MySqlConnections,
    ServerSettings,
)
from rowtide.connectors.sinks.mysql.keys import KeyLayout, join_names, quote_name
from rowtide.connectors.sinks.mysql.table import NAME_MAX, STAMP, TargetTable
from rowtide.connectors.sinks.mysql.types import parse_column_types
from rowtide.connectors.sinks.mysql.values import Kind, as_held, choose_kind, exact_sql, from_server
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.records.change import ROW
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["MySqlSinkSettings", "MysqlSink", "make_sink"]

ATTEMPTS = 4
BATCHES_BETWEEN_SWEEPS = 64
SWEPT_AT_ONCE = 5000
HOUR_US = 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class MySqlSinkSettings:
    """The server, and choices about the target.

    ``keep_deleted_h``: how long the stamps of deleted rows are kept. If it is shorter
    than the time that a stream keeps changes (168 h at most), an old change could bring a
    deleted row back.
    """

    server: ServerSettings
    table: str = ""
    hashed: bool = False
    keep_deleted_h: int = 192
    types: Mapping[str, str] = field(default_factory=dict)
    """Types in the server's words, by rowtide's column name. A column with one is never altered."""


class LayoutChanged(Unavailable):
    """The table has other columns than were read. A retry of the batch may succeed at once."""


class MysqlSink:
    """One table at the target. Batches of several shards are applied at once, each in a
    transaction.
    """

    def __init__(self, settings: MySqlSinkSettings) -> None:
        self._settings = settings
        self._connections = MySqlConnections(settings.server)
        self._table: TargetTable | None = None
        self._applied = 0

    @property
    def table(self) -> TargetTable:
        assert self._table is not None, "opened before"
        return self._table

    async def open(self, table: TableShape) -> None:
        """Create the tables if they are missing. Raises ``Rejected`` for one that is unfit."""
        name = self._settings.table or table.name
        if len(name) > NAME_MAX:
            raise Rejected(
                "OTSParameterInvalid",
                f"A table of MySQL has at most {NAME_MAX} characters in its name; "
                f"give `table` for {name}.",
            )
        if of_key := sorted(self._settings.types.keys() & {column.name for column in table.key}):
            raise Rejected(
                "OTSParameterInvalid",
                f"`columns` has {', '.join(of_key)}, of the key. `primary_key` decides the types "
                f"of key columns: remove it from `columns`.",
            )
        async with self._connections.lend() as connection:
            [(version,)] = await connection.rows("SELECT VERSION()")
            maria = "mariadb" in str(version).lower()
            width = ANY_WIDTH if maria else MYSQL_WIDTH
            collation = "utf8mb4_nopad_bin" if maria else "utf8mb4_0900_bin"
            keys = KeyLayout(table.key, hashed=self._settings.hashed, collation=collation)
            types, database = self._settings.types, self._settings.server.database
            made = TargetTable(database, name, keys, width=width, types=types)
            await made.make(connection)
        self._table = made

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply a batch in one transaction. Return the rows that the server refuses."""
        refused: list[Refused] = []
        rows = self._fitting(batch, refused)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return refused + await self._apply_once(batch, rows)
            except (Deadlock, LayoutChanged):
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return columns as they are read back, see ``Comparable``."""
        there, width = self.table.layout.columns, self.table.width
        return {
            name: as_held(value, there[name][1], width=width) if name in there else value
            for name, value in columns.items()
        }

    async def convert_rows(
        self, rows: Mapping[bytes, Mapping[str, Scalar]]
    ) -> Mapping[bytes, Mapping[str, Scalar]]:
        """Return rows as they are read back, see ``ConvertsRows``.

        Only the server knows how columns of types that are not ours convert values. So
        the values are written to a temporary table. A row that the server refuses is
        returned as it is.
        """
        expected = {key: self.convert_columns(columns) for key, columns in rows.items()}
        table, foreign = self.table, self.table.foreign
        asked = [
            SinkRow(self._key(key), key, 0, columns, ROW)
            for key, columns in rows.items()
            if not foreign.keys().isdisjoint(columns)
        ]
        if not asked:
            return expected
        async with self._connections.lend() as connection, table.temporary_copy(connection) as copy:
            await BatchWriter(connection, copy).set_rows(asked)
            for row in await self._read(connection, copy, b"", b"", limit=len(asked)):
                expected[row.key_bytes] = {**expected[row.key_bytes], **row.columns}
        return expected

    def _key(self, encoded: bytes) -> Key:
        values = map(variant.decode, key_order.decode(encoded))
        return tuple(zip(self.table.keys.names, values, strict=True))

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return the living rows of a range, see ``Comparable``."""
        async with self._connections.lend() as connection:
            await self.table.read(connection)
            return await self._read(connection, self.table, begin, end, limit=limit)

    async def _read(
        self,
        connection: MySqlConnection,
        table: TargetTable,
        begin: bytes,
        end: bytes,
        *,
        limit: int,
    ) -> list[HeldRow]:
        """Return the rows of a range in a table of this layout."""
        keys = table.keys
        columns = [(name, *column) for name, column in table.layout.columns.items()]
        values = [exact_sql(quote_name(column), kind) for _, column, kind in columns]
        names = ",".join([join_names([*keys.names, STAMP]), *values])
        found = await connection.rows(
            f"SELECT {names} FROM {table.name} WHERE {keys.within(begin, end)}"
            f" ORDER BY {keys.order()} LIMIT {limit}"
        )
        return [self._make_row(row, columns) for row in found]

    def _make_row(self, row: Sequence[object], columns: Sequence[tuple[str, str, Kind]]) -> HeldRow:
        count = len(self.table.keys.names)
        key = [from_server(value, Kind.FOREIGN) for value in row[:count]]
        stamp = row[count]
        assert isinstance(stamp, int), "a BIGINT"
        values = {
            name: from_server(value, kind)
            for (name, _, kind), value in zip(columns, row[count + 1 :], strict=True)
            if value is not None
        }
        return HeldRow(key_order.encode([variant.encode(v) for v in key]), stamp, values)

    def _fitting(self, batch: SinkBatch, refused: list[Refused]) -> list[SinkRow]:
        """Return the newest row of each key. Rows of a page get at least the page's stamp."""
        rows = newest(batch.rows)
        if batch.covers is not None:
            stamp = batch.stamp
            rows = [dataclasses.replace(r, stamp=max(r.stamp, stamp)) for r in rows]
        found: list[SinkRow] = []
        for row in rows:
            if why := self.table.keys.too_long(row):
                refused.append(Refused(row, why))
            else:
                found.append(row)
        return found

    async def _apply_once(self, batch: SinkBatch, rows: list[SinkRow]) -> list[Refused]:
        async with self._connections.lend() as connection:
            refused, rows = await self._widen(connection, rows)
            async with connection.transaction():
                if not await self.table.is_as_read(connection):
                    await self.table.read(connection)
                    raise LayoutChanged("another process changed the table's columns just now")
                writer = BatchWriter(connection, self.table)
                await writer.write(batch, rows)
            await self._sweep(connection, rows)
        return refused + writer.refused

    async def _widen(
        self, connection: MySqlConnection, rows: list[SinkRow]
    ) -> tuple[list[Refused], list[SinkRow]]:
        """Widen the columns for rows. Return the rows that do not fit, and the others."""
        wanted = self._find_missing_kinds(rows)
        if not wanted:
            return [], rows
        lacking = await self.table.widen(connection, wanted)
        if not lacking:
            return [], rows
        refused: list[Refused] = []
        fit: list[SinkRow] = []
        for row in rows:
            why = next((lacking[name] for name in row.columns or () if name in lacking), None)
            if why is None:
                fit.append(row)
            else:
                refused.append(Refused(row, why))
        return refused, fit

    def _find_missing_kinds(self, rows: Sequence[SinkRow]) -> dict[str, Kind]:
        """Return the columns that are missing or too narrow, with the kinds that they need."""
        there = {name: kind for name, (_, kind) in self.table.layout.columns.items()}
        wanted: dict[str, Kind] = {}
        get = there.get
        for row in rows:
            for name, value in (row.columns or {}).items():
                has = get(name)
                kind = choose_kind(has, value)
                if kind != has:
                    there[name] = wanted[name] = kind
        # A large integer may have come before the first double.
        doubles = [name for name, kind in wanted.items() if kind == Kind.DOUBLE]
        for name in doubles:
            values = (row.columns[name] for row in rows if row.columns and name in row.columns)
            wanted[name] = max(choose_kind(Kind.DOUBLE, value) for value in values)
        return wanted

    async def _sweep(self, connection: MySqlConnection, rows: Sequence[SinkRow]) -> None:
        """From time to time remove notes so old that no earlier change can arrive."""
        self._applied += 1
        if self._applied % BATCHES_BETWEEN_SWEEPS or not rows:
            return
        before = max(row.stamp for row in rows) - self._settings.keep_deleted_h * HOUR_US
        for name in (self.table.deleted, self.table.covered):
            # The batch is applied, so a later sweep can do this.
            with suppress(Unavailable):
                await connection.run(
                    f"DELETE FROM {name} WHERE {quote_name(STAMP)} < {before} LIMIT {SWEPT_AT_ONCE}"
                )


def make_sink(fields: Fields, surroundings: ConnectorContext) -> MysqlSink:
    """Return the sink that settings describe."""
    server = ServerSettings(
        host=fields.text("host"),
        port=fields.integer("port", 3306, least=1, most=65535),
        user=fields.text("user"),
        password=fields.text("password", ""),
        database=fields.text("database"),
        tls=fields.flag("tls", False),
        cafile=fields.text("cafile", ""),
        connections=fields.integer("connections", 4, least=1, most=64),
    )
    key = fields.choice("primary_key", ("native", "hashed"), "native")
    return MysqlSink(
        MySqlSinkSettings(
            server,
            table=fields.text("table", ""),
            hashed=key == "hashed",
            keep_deleted_h=fields.integer("keep_deleted_hours", 192, least=1, most=87_600),
            types=parse_column_types(fields.inner("columns")),
        )
    )
