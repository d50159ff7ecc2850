"""One table's rows in a DuckDB file. All of it blocks and belongs to one thread.

Behind the view with the table's name is NAME__rows: a row for each key, with deleted rows
marked, so that a late update cannot bring one back. NAME__covers has the floors
(``connectors/floors.py``). A batch is one transaction of both. New columns are added
before it.

Only one process can open a DuckDB file. ``close`` may be called at any time: the next
call opens the file again. Other readers use a copy (``copy``). It has only the living
rows, as a plain table.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.columnar import presentation
from rowtide.connectors.sinks.columnar.arrow_rows import DELETED, KEY, STAMP, arrow_rows
from rowtide.connectors.sinks.columnar.layout import (
    Cells,
    Layout,
    Seen,
    TargetColumn,
    kind_of,
    writable_rows,
)
from rowtide.connectors.sinks.columnar.settling import floors_of, merge_batches
from rowtide.connectors.sinks.duckdb import statements
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values import schema
from rowtide.core.values.errors import Unavailable

__all__ = ["Database"]

_OWN = (KEY, STAMP, DELETED)
_STAGED = "_rowtide_batch"
_BUSY = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.TransactionException)
"""Another process has the file, the disk or memory is full, or another connection was faster."""
_BROKEN = (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException)
"""The file must be opened again. It has what was committed."""
_KEY_KINDS = {schema.INTEGER: "key integer", schema.STRING: "key text", schema.BINARY: "key binary"}


class Database:
    """The rows of ``table`` in ``file``, shown as ``view``, with at most ``columns_max``
    columns.
    """

    def __init__(
        self,
        file: Path,
        table: TableShape,
        view: str,
        *,
        columns_max: int,
        types: Mapping[str, str],
        read_only: bool = False,
    ) -> None:
        self.file = file
        self._types = types
        self._read_only = read_only
        self._table = table
        self._view = view
        self._columns_max = columns_max
        self._connection: Any = None
        self._layout = Layout(table, _OWN, statements.NAMING)
        self._floors = Floors()
        self._large: set[str] = set()
        """Attributes of integers and doubles that have an integer which no double equals."""

    def open(self) -> None:
        """Open the file and create what is missing. Raises Unavailable if another process
        has it.
        """
        with self._use_connection():
            pass

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def commit(self, batches: Sequence[SinkBatch]) -> list[Refused]:
        """Apply batches in one transaction. When this returns, it is on disk."""
        with self._use_connection():
            new = floors_of(batches)
            floors = self._floors.merge(new) if new else self._floors
            rows: Sequence[SinkRow] = merge_batches(batches, floors)
            rows, cells, refused = writable_rows(rows, self._layout, self._columns_max)
            self._write(rows, cells, new, floors)
            self._floors = floors
        return refused

    def read_rows(self, begin: bytes, end: bytes, limit: int) -> list[HeldRow]:
        """Return living rows in key order."""
        with self._use_connection():
            bounds = [begin, end] if end else [begin]
            query = statements.select_rows(self._view, self._layout, bounded=bool(end))
            found = self._connection.execute(query, [*bounds, limit]).fetchall()
            names = [column.name for column in self._layout]
        return [
            HeldRow(key, stamp, {n: v for n, v in zip(names, values, strict=True) if v is not None})
            for key, stamp, *values in found
        ]

    def copy(self, target: Path) -> None:
        """Write the living rows as a table to another file, which is replaced as a whole."""
        staging = target.with_name(f".{target.name}.{secrets.token_hex(8)}.incoming")
        with self._use_connection():
            staging.unlink(missing_ok=True)
            path = str(staging).replace("'", "''")
            self._connection.execute(f"ATTACH '{path}' AS _rowtide_copy")
            try:
                self._connection.execute(statements.living(self._view, "_rowtide_copy"))
            finally:
                self._connection.execute("DETACH _rowtide_copy")
            os.replace(staging, target)

    def _connect(self) -> None:
        if not self._read_only:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        self._connection = duckdb.connect(str(self.file), read_only=self._read_only)
        with self._transaction():
            layout = Layout(self._table, _OWN, statements.NAMING)
            if not self._read_only:
                for statement in statements.create(self._view, layout, self._table):
                    self._connection.execute(statement)
            self._read_columns(layout)
            self._layout = layout
            if not self._read_only:
                self._read_rest()

    def _read_rest(self) -> None:
        """Read what else a writer needs, and show the existing columns."""
        self._floors = Floors(self._read_floors())
        self._large = set()
        for column in presentation.find_mixed_numbers(self._layout):
            self._judge(column)
        self._show()

    def _read_columns(self, layout: Layout) -> None:
        """Read the existing columns. Refuse a file with another table of this name."""
        rows = statements.names(self._view)[0]
        known = self._connection.execute(
            f"SELECT rows_table, name, kind, place FROM {statements.COLUMNS}"
            " WHERE lower(rows_table) = lower(?) ORDER BY rowid",
            [rows],
        ).fetchall()
        wanted = [
            (rows, column.name, _KEY_KINDS[column.type], place)
            for column, place in zip(self._table.key, layout.keys, strict=True)
        ]
        keys = [found for found in known if found[2].startswith("key ")]
        if not known:
            self._remember(wanted)
        elif keys != wanted:
            raise SettingsRefused(
                f"{self.file} holds another table as {self._view}: its key is "
                f"{[(name, kind) for _, name, kind, _ in keys]} in {known[0][0]}."
            )
        for _, name, kind, place in known:
            if not kind.startswith("key "):
                layout.hold(TargetColumn(name, kind, place))

    def _remember(self, columns: Sequence[tuple[str, str, str, str]]) -> None:
        for column in columns:
            self._connection.execute(
                f"INSERT INTO {statements.COLUMNS} VALUES (?, ?, ?, ?)", column
            )

    def _write(
        self, rows: Sequence[SinkRow], cells: Cells, new: Sequence[Floor], floors: Floors
    ) -> None:
        missing = [seen for seen in cells if self._layout.find(seen) is None]
        if missing:
            self._widen(missing)
        mixed = [column.name for column in presentation.find_mixed_numbers(self._layout)]
        larger = presentation.inexact(cells, mixed) - self._large
        with self._transaction():
            if larger:
                self._large |= larger
                self._show()
            if rows:
                self._upsert(rows, cells)
            for floor in new:
                self._end_rows(floor)
            if new:
                self._keep_floors(new, floors)

    def _widen(self, missing: Sequence[Seen]) -> None:
        """Add columns so that DuckDB's own log has nothing before and nothing after them.

        A log with both rows and a new column is read wrongly after a kill. 2.0.0 loses a
        text that was set on NULL, and releases before 1.5.6 end the process
        (duckdb/duckdb issue 25928).
        """
        self._connection.execute("CHECKPOINT")
        with self._transaction():
            self._add_columns(missing)
            self._show()
        self._connection.execute("CHECKPOINT")

    def _add_columns(self, missing: Sequence[Seen]) -> None:
        rows = statements.names(self._view)[0]
        for seen in missing:
            column = self._layout.add(seen)
            self._connection.execute(statements.add_column(self._view, column))
            self._remember([(rows, *column)])
        added = {seen[0] for seen in missing if kind_of(seen) in ("integer", "double")}
        for column in presentation.find_mixed_numbers(self._layout):
            if column.name in added:
                self._judge(column)

    def _judge(self, column: TargetColumn) -> None:
        """Check whether an attribute of integers and doubles has an inexact integer."""
        rows, place = statements.names(self._view)[0], statements.quote_name(column.place)
        limit = presentation.EXACT_MAX
        found = self._connection.execute(
            f"SELECT 1 FROM {statements.quote_name(rows)}"
            f" WHERE {place} > {limit} OR {place} < -{limit} LIMIT 1"
        ).fetchall()
        if found:
            self._large.add(column.name)

    def _show(self) -> None:
        attributes = presentation.choose_presentations(self._layout, self._large)
        self._connection.execute(statements.view(self._view, self._layout, attributes, self._types))

    def _upsert(self, rows: Sequence[SinkRow], cells: Cells) -> None:
        staged = arrow_rows(rows, cells, self._layout, self._table)
        self._connection.register(_STAGED, staged)
        try:
            self._connection.execute(
                statements.upsert(self._view, _STAGED, staged.column_names, self._layout)
            )
        finally:
            self._connection.unregister(_STAGED)

    def _end_rows(self, floor: Floor) -> None:
        query = statements.end_rows(self._view, self._layout, bounded=bool(floor.end))
        bounds = [floor.begin, floor.end] if floor.end else [floor.begin]
        self._connection.execute(query, [floor.stamp, floor.stamp, *bounds])

    def _keep_floors(self, new: Sequence[Floor], floors: Floors) -> None:
        covers = statements.quote_name(statements.names(self._view)[1])
        for floor in new:
            self._connection.execute(f"INSERT INTO {covers} VALUES (?, ?, ?)", list(floor))
            for old in self._read_floors(below=floor):
                if floors.hides(old):
                    self._connection.execute(
                        f"DELETE FROM {covers} WHERE begin = ? AND until = ? AND stamp = ?",
                        list(old),
                    )

    def _read_floors(self, *, below: Floor | None = None) -> list[Floor]:
        """Return the stored floors, or with ``below`` the lower ones that overlap it."""
        covers = statements.quote_name(statements.names(self._view)[1])
        query = f"SELECT begin, until, stamp FROM {covers}"
        bounds: list[int | bytes] = []
        if below is not None:
            query += " WHERE stamp < ? AND (until > ? OR until = ''::BLOB)"
            bounds = [below.stamp, below.begin]
            if below.end:
                query += " AND begin < ?"
                bounds.append(below.end)
        found = self._connection.execute(query, bounds).fetchall()
        return [Floor(*floor) for floor in found]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # Columns in memory may be ahead of the file now, so they are read again.
            with suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            self.close()
            raise

    @contextmanager
    def _use_connection(self) -> Iterator[None]:
        """Keep the file open in the block, and map DuckDB's errors. Open it if it is closed."""
        try:
            if self._connection is None:
                self._connect()
            yield
        except _BROKEN as error:
            self.close()
            raise Unavailable(f"{self.file}: {error}") from error
        except _BUSY as error:
            raise Unavailable(f"{self.file}: {error}") from error
