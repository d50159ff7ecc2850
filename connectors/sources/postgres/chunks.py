"""Parts of tables as of one moment: rows in key order, or which of some keys exist.

All calls block. A part has the transactions that its moment sees. If the moment does not
see all required transactions yet, there is no part.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import Key
from rowtide.connectors.sources.chunk_size import CHUNK_BYTES, ChunkSizes
from rowtide.connectors.sources.copying.seam import TableUnread
from rowtide.connectors.sources.postgres.partitions import read_partitions
from rowtide.connectors.sources.postgres.rows import Cells, cells_reader, key_reader
from rowtide.connectors.sources.postgres.server import (
    CHANGED,
    REFUSED,
    UNREADABLE,
    Lines,
    PostgresServer,
    quote_name,
    quote_text,
)
from rowtide.connectors.sources.postgres.tables import PostgresTable
from rowtide.connectors.sources.postgres.values import key_text, reader_of, split_line
from rowtide.connectors.sources.postgres.visibility import Visible

__all__ = [
    "Chunks",
    "ExistingPostgresTable",
    "PostgresChunk",
    "PostgresTableChanged",
    "Required",
    "TableRefused",
]


class PostgresTableChanged(TableUnread):
    """A table has changed since it was last read from the catalog."""


class TableRefused(PostgresTableChanged):
    """The server refuses to read a table: a grant was revoked, or a policy hides rows."""


class Required(NamedTuple):
    """What a moment must see: all transactions below ``floor``, and those of ``xids``."""

    floor: int
    xids: Collection[int]

    def is_met(self, visible: Visible) -> bool:
        """True if all of them are visible."""
        return visible.xmin >= self.floor and all(map(visible.sees, self.xids))


class PostgresChunk(NamedTuple):
    """Rows of a table. ``cursor`` is the key of the last one, None if there are no more."""

    rows: Sequence[tuple[Key, Cells]]
    cursor: list[str] | None
    visible: Visible
    time_ms: int


class ExistingPostgresTable(NamedTuple):
    """Which of some keys a table has."""

    keys: Collection[Key]
    visible: Visible
    time_ms: int


class Chunks:
    """Reads parts over its own session, each of at most ``CHUNK_BYTES`` and one row.

    After each part for which the stream waits, it writes a mark to the stream.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        # A caller that stops waiting for a part does not end the thread that reads it.
        self._one_at_a_time = threading.Lock()
        self._sizes = ChunkSizes(server.settings.chunk_rows)

    def read(
        self, table: PostgresTable, cursor: Sequence[str] | None, required: Required
    ) -> PostgresChunk | None:
        """Return the rows after a key, None if the moment is too early."""
        limit = self._sizes.rows(table.oid)
        query = _chunk_query(table, cursor, limit)
        found = self._as_of_one_moment(table, query, required, bytes_max=CHUNK_BYTES)
        if found is None:
            return None
        lines, visible, time_ms = found
        return PostgresChunk(_rows(table, lines), self._end(table, lines, limit), visible, time_ms)

    def again(self, table: PostgresTable, key: Key, required: Required) -> PostgresChunk | None:
        """Return the row of a key, if it exists; None if the moment is too early."""
        found = self._of_keys(table, _columns(table), [key], required)
        if found is None:
            return None
        lines, visible, time_ms = found
        return PostgresChunk(_rows(table, lines), None, visible, time_ms)

    def existing(
        self, table: PostgresTable, keys: Sequence[Key], required: Required
    ) -> ExistingPostgresTable | None:
        """Return which keys the table has, None if the moment is too early."""
        names = [column.name for column in table.key]
        found = self._of_keys(table, _names(names), keys, required)
        if found is None:
            return None
        lines, visible, time_ms = found
        key_of = key_reader(table, names)
        return ExistingPostgresTable({key_of(split_line(line)) for line in lines}, visible, time_ms)

    def page(
        self, table: PostgresTable, cursor: Sequence[str] | None
    ) -> tuple[list[tuple[Key, Cells]], list[str] | None]:
        """Return current rows after a key, and the last one's key if there are more."""
        limit = self._sizes.rows(table.oid)
        lines = self._server.copy_lines(_chunk_query(table, cursor, limit), bytes_max=CHUNK_BYTES)
        return _rows(table, lines), self._end(table, lines, limit)

    def look_up(self, table: PostgresTable, keys: Sequence[Key]) -> list[tuple[Key, Cells]]:
        """Return the current rows of some keys."""
        where = f"FROM {_name(table)} WHERE {_is_one_of(table, keys)}"
        return _rows(table, self._server.copy_lines(f"SELECT {_columns(table)} {where}"))

    def _of_keys(
        self, table: PostgresTable, columns: str, keys: Sequence[Key], required: Required
    ) -> tuple[Lines, Visible, int] | None:
        """Return COPY lines of some columns for the rows of keys, and their moment.

        A client may have written rows to rowtide's table that the source can't have.
        """

        def read_keys(keys: Sequence[Key]) -> tuple[Lines, Visible, int] | None:
            where = f"FROM {_name(table)} WHERE {_is_one_of(table, keys)}"
            return self._as_of_one_moment(table, f"SELECT {columns} {where}", required)

        keys = [key for key in keys if all("\0" not in key_text(value) for _, value in key)]
        try:
            return read_keys(keys)
        except UNREADABLE:
            return read_keys(self._fit(table, keys))

    def _fit(self, table: PostgresTable, keys: Sequence[Key]) -> Sequence[Key]:
        """Return the keys that the server accepts as keys of the table."""
        try:
            with self._one_at_a_time:
                # The server checks constants before it reads rows.
                self._server.rows(
                    f"SELECT 1 FROM {_name(table)} WHERE {_is_one_of(table, keys)} LIMIT 0"
                )
        except CHANGED as error:
            raise PostgresTableChanged(f"{table.full_name}: {error}") from error
        except UNREADABLE:
            middle = len(keys) // 2
            if not middle:
                return ()
            return [*self._fit(table, keys[:middle]), *self._fit(table, keys[middle:])]
        return keys

    def _end(self, table: PostgresTable, lines: Lines, limit: int) -> list[str] | None:
        """Return the last line's key as texts, None if the line is the table's last."""
        self._sizes.note(table.oid, len(lines), lines.size)
        if len(lines) < limit and not lines.cut:
            return None
        names = [column.name for column in table.columns]
        last = dict(zip(names, split_line(lines[-1]), strict=True))
        return [(last[column.name] or b"").decode() for column in table.key]

    def columns_of(
        self, table: PostgresTable, key: Key, names: Collection[str], required: Required
    ) -> Cells | None:
        """Return some columns of a row, empty if it was deleted, None if it is too early."""
        wanted = [column for column in table.columns if column.name in names]
        if not wanted:
            return {}
        columns = _names([column.name for column in wanted])
        query = f"SELECT {columns} FROM {_name(table)} WHERE {_is_one_of(table, [key])}"
        found = self._as_of_one_moment(table, query, required, copying=False)
        if found is None:
            return None
        return {
            column.name: reader_of(column.type_oid)(text)
            for line in found[0]
            for column, text in zip(wanted, split_line(line), strict=True)
            if text is not None
        }

    def _as_of_one_moment(
        self,
        table: PostgresTable,
        query: str,
        required: Required,
        *,
        copying: bool = True,
        bytes_max: int | None = None,
    ) -> tuple[Lines, Visible, int] | None:
        """Return a query's lines and their moment.

        ``copying``: mark the stream after it, and require the partitions of the last
        look: rows that come or go with other partitions are not in the stream.
        """
        with self._one_at_a_time:
            found = self._read_moment(
                table, query, required, bytes_max, parts=table.parts if copying else None
            )
            if found is not None and copying:
                self._server.mark()
            return found

    def _read_moment(
        self,
        table: PostgresTable,
        query: str,
        required: Required,
        bytes_max: int | None,
        *,
        parts: Mapping[int, str] | None,
    ) -> tuple[Lines, Visible, int] | None:
        server = self._server
        server.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            # Lock the table before the moment. Otherwise a rewritten or truncated table
            # would show no rows at a moment from before, though it had some.
            server.run(f"LOCK TABLE {_name(table)} IN ACCESS SHARE MODE")
            [(text, time_ms)] = server.rows(_MOMENT)
            visible = Visible.parse(text)
            met = required.is_met(visible)
            if met and parts is not None and _parts(server, table) != parts:
                raise PostgresTableChanged(f"{table.full_name} has other partitions now")
            lines = server.copy_lines(query, bytes_max=bytes_max) if met else None
        except CHANGED as error:
            raise PostgresTableChanged(f"{table.full_name}: {error}") from error
        except REFUSED as error:
            raise TableRefused(" ".join(str(error).split())) from error
        finally:
            server.run("ROLLBACK")
        return None if lines is None else (lines, visible, time_ms)


def _parts(server: PostgresServer, table: PostgresTable) -> dict[int, str]:
    return {part.oid: part.state for part in read_partitions(server, [table.oid])[table.oid]}


def _rows(table: PostgresTable, lines: Sequence[bytes]) -> list[tuple[Key, Cells]]:
    names = [column.name for column in table.columns]
    key_of, cells_of = key_reader(table, names), cells_reader(table)
    return [(key_of(fields), cells_of(fields)) for line in lines for fields in [split_line(line)]]


def _chunk_query(table: PostgresTable, cursor: Sequence[str] | None, limit: int) -> str:
    key = _names([column.name for column in table.key])
    after = f" WHERE ({key}) > ({', '.join(map(quote_text, cursor))})" if cursor else ""
    query = f"SELECT {_columns(table)} FROM {_name(table)}{after}"
    return f"{query} ORDER BY {key} LIMIT {limit}"


def _is_one_of(table: PostgresTable, keys: Sequence[Key]) -> str:
    if not keys:
        return "false"
    wanted = ", ".join(
        f"({', '.join(quote_text(key_text(value)) for _, value in key)})" for key in keys
    )
    return f"({_names([column.name for column in table.key])}) IN ({wanted})"


def _name(table: PostgresTable) -> str:
    """Return a table's name for statements: with partitions, without inheriting tables."""
    return ("ONLY " if table.parts is None else "") + quote_name(table.schema, table.name)


def _columns(table: PostgresTable) -> str:
    return _names([column.name for column in table.columns])


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quote_name, names))


_MOMENT = """
SELECT pg_current_snapshot(), (extract(epoch FROM transaction_timestamp()) * 1000)::int8
"""
