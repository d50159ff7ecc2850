"""Parts of tables as of one moment: rows in their key's order, or which of some keys are there.

Everything here blocks. A part says which transactions its moment sees; where it must see some, and
does not yet, there is no part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rowtide.connectors.postgres.rows import Cells, cells_reader, key_reader
from rowtide.connectors.postgres.server import CHANGED, Server, quoted, quoted_name
from rowtide.connectors.postgres.tables import SourceTable
from rowtide.connectors.postgres.values import copied_fields, key_text, reader_of
from rowtide.connectors.postgres.visibility import Visible
from rowtide.connectors.rows import Key

__all__ = ["Chunk", "Chunks", "Existing", "Required", "TableChanged"]


class TableChanged(Exception):
    """A table is not as it was when it was last looked at."""


class Required(NamedTuple):
    """What a moment must see: all transactions below ``floor``, and those of ``xids``."""

    floor: int
    xids: Collection[int]

    def met(self, visible: Visible) -> bool:
        """Say whether it sees them."""
        return visible.xmin >= self.floor and all(map(visible.sees, self.xids))


class Chunk(NamedTuple):
    """Rows of a table. ``cursor`` is the key of the last one; None: there are no more."""

    rows: Sequence[tuple[Key, Cells]]
    cursor: list[str] | None
    visible: Visible
    time_ms: int


class Existing(NamedTuple):
    """Which of some keys a table has."""

    keys: Collection[Key]
    visible: Visible
    time_ms: int


class Chunks:
    """Reads parts over a session of its own, and marks the stream behind those it will wait for."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def read(
        self, table: SourceTable, cursor: Sequence[str] | None, required: Required
    ) -> Chunk | None:
        """Return the rows after a key; None where the moment is too early."""
        limit = self._server.settings.chunk_rows
        key = ", ".join(quoted_name(column.name) for column in table.key)
        after = f" WHERE ({key}) > ({', '.join(map(quoted, cursor))})" if cursor else ""
        columns = ", ".join(quoted_name(column.name) for column in table.columns)
        query = f"SELECT {columns} FROM ONLY {_name(table)}{after}"
        found = self._as_of_one_moment(table, f"{query} ORDER BY {key} LIMIT {limit}", required)
        if found is None:
            return None
        self._server.mark()
        lines, visible, time_ms = found
        names = [column.name for column in table.columns]
        key_of, cells_of = key_reader(table, names), cells_reader(table)
        rows = []
        fields: list[bytes | None] = []
        for line in lines:
            fields = copied_fields(line)
            rows.append((key_of(fields), cells_of(fields)))
        last = dict(zip(names, fields, strict=False))
        end = [(last[column.name] or b"").decode() for column in table.key] if fields else []
        return Chunk(rows, end if len(lines) == limit else None, visible, time_ms)

    def existing(
        self, table: SourceTable, keys: Sequence[Key], required: Required
    ) -> Existing | None:
        """Return which keys the table has; None where the moment is too early."""
        key = ", ".join(quoted_name(column.name) for column in table.key)
        wanted = ", ".join(
            f"({', '.join(quoted(key_text(value)) for _, value in one)})" for one in keys
        )
        query = f"SELECT {key} FROM ONLY {_name(table)} WHERE ({key}) IN ({wanted})"
        found = self._as_of_one_moment(table, query, required)
        if found is None:
            return None
        self._server.mark()
        lines, visible, time_ms = found
        key_of = key_reader(table, [column.name for column in table.key])
        return Existing({key_of(copied_fields(line)) for line in lines}, visible, time_ms)

    def columns_of(
        self, table: SourceTable, key: Key, names: Collection[str], required: Required
    ) -> Cells | None:
        """Return some columns of a row; nothing where it is gone, None where it is too early."""
        wanted = [column for column in table.columns if column.name in names]
        if not wanted:
            return {}
        columns = ", ".join(quoted_name(column.name) for column in wanted)
        where = " AND ".join(
            f"{quoted_name(name)} = {quoted(key_text(value))}" for name, value in key
        )
        query = f"SELECT {columns} FROM ONLY {_name(table)} WHERE {where}"
        found = self._as_of_one_moment(table, query, required)
        if found is None:
            return None
        return {
            column.name: reader_of(column.type_oid)(text)
            for line in found[0]
            for column, text in zip(wanted, copied_fields(line), strict=True)
            if text is not None
        }

    def _as_of_one_moment(
        self, table: SourceTable, query: str, required: Required
    ) -> tuple[list[bytes], Visible, int] | None:
        """Return a query's lines and their moment."""
        server = self._server
        server.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            # Locked before the moment: a rewritten or emptied table would show no rows at one
            # from before, though it had some.
            server.run(f"LOCK TABLE ONLY {_name(table)} IN ACCESS SHARE MODE")
            [(text, time_ms)] = server.rows(_MOMENT)
            visible = Visible.parsed(text)
            lines = server.copied(query) if required.met(visible) else None
        except CHANGED as error:
            raise TableChanged(f"{table.full_name}: {error}") from error
        finally:
            server.run("ROLLBACK")
        return None if lines is None else (lines, visible, time_ms)


def _name(table: SourceTable) -> str:
    return quoted_name(table.schema, table.name)


_MOMENT = """
SELECT pg_current_snapshot(), (extract(epoch FROM transaction_timestamp()) * 1000)::int8
"""
