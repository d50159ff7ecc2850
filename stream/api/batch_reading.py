"""Reads a BatchWriteRow: checks what would reject it as a whole, and returns its rows.

Rows like earlier ones are checked many at a time (``stream/api/like_rows.py``), all
others one by one. The way of reading changes neither what is accepted nor the errors. As
soon as one row is not known, all other checks run too, in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.row_form import ask_form
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows import capacity
from rowtide.core.rows.source_form import KEY_KINDS
from rowtide.core.shard import plain_batch
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected, StoreError, invalid
from rowtide.core.values.schema import Table
from rowtide.stream.api.batch_parts import row_fields
from rowtide.stream.api.batch_write import BatchRow
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import check_write
from rowtide.stream.api.like_rows import KnownRows, LikeRows, Row, make_rows
from rowtide.stream.api.plain_rows import PlainRows
from rowtide.stream.api.repeated_rows import refuse_repeated
from rowtide.stream.api.request_text import require_text
from rowtide.stream.api.row_requests import (
    change_of,
    check_table_names,
    kind_of,
    message,
    row_change,
)

__all__ = ["BatchReader", "ReadBatch"]


class ReadBatch:
    """A batch without an error that rejects it as a whole.

    ``fields`` are its rows as they arrived, by table; None if their bounds are not easily
    found. ``plain`` has its rows by table if all of them are plain writes.
    """

    def __init__(
        self,
        request: pb.BatchWriteRowRequest,
        fields: list[list[bytes]] | None,
        rows: Sequence[Row],
        plain: Sequence[PlainRows] = (),
    ) -> None:
        self.request = request
        self.fields = fields
        self.plain = plain
        self._rows = rows

    def first_values(self) -> list[bytes | None]:
        """Return the first key value of each row, which decides its worker.

        None: the row is rejected on any worker.
        """
        return [
            _first_value(row) if isinstance(row, BatchRow) else row[0].first_value(row[1])
            for row in self._rows
        ]

    def rows(self, places: Iterable[int] | None = None) -> list[BatchRow]:
        """Return the rows at ``places``, or all."""
        if places is None:
            return make_rows(self._rows)
        return make_rows([self._rows[place] for place in places])


class BatchReader:
    """Reads batches for the tables of ``directory``."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._limits = directory.limits
        self._like = LikeRows()

    def read(self, identity: Identity, body: bytes) -> ReadBatch:
        """Return a batch and its rows. Raises an error that rejects the whole request."""
        request = message(pb.BatchWriteRowRequest, body)
        if len(request.tables) > self._limits.batch_write_rows_max:
            raise self._too_many()  # Every table in a request has a row.
        counts = [len(table.rows) for table in request.tables]
        few = sum(counts) <= self._limits.batch_write_rows_max
        fields = row_fields(body, counts) if few else None
        known = [
            self._find_known_rows(identity, wanted, fields[number] if fields else [])
            for number, wanted in enumerate(request.tables)
        ]
        if not _are_all_known(request, known):
            self._read_others(identity, request, known)
            for wanted, found, its in zip(request.tables, known, fields or (), strict=False):
                self._like.learn(found, wanted.rows, its)
        rows: list[Row] = []
        plain: list[PlainRows] = []
        for found in known:
            read = [row for row in found.rows if row is not None]
            is_plain = found.plain is not None and not found.plain.has_expectations()
            checked = read if is_plain else refuse_repeated(read)
            rows += checked
            if found.plain is not None and checked is read:
                plain.append(found.plain)
        batch = ReadBatch(request, fields, rows, plain if len(plain) == len(known) else ())
        if len(body) > self._limits.batch_write_bytes_max:
            # Rows count fewer bytes than the message that contains them.
            self._check_size(batch.rows())
        return batch

    def _too_many(self) -> Rejected:
        return invalid(f"Rows count exceeds the upper limit: {self._limits.batch_write_rows_max}.")

    def _find_known_rows(
        self, identity: Identity, wanted: pb.TableInBatchWriteRowRequest, fields: list[bytes]
    ) -> KnownRows:
        """Return the rows of a table that are known without reading. Rejects nothing."""
        table = self._directory.catalog.tables.get((identity.instance, wanted.table_name))
        if table is None or not fields:
            return KnownRows([None] * len(wanted.rows), ())
        found = plain_batch.read_rows(fields, table, self._limits)
        if found is None:
            return self._like.find(table, fields)
        items = wanted.rows
        plain = PlainRows(table, found, lambda index: self._row(table, None, items[index]))
        rows: list[Row | None] = [*zip(repeat(plain), range(len(found)), strict=False)]
        if all(found):
            return KnownRows(rows, (), plain)
        return KnownRows([r and k for r, k in zip(found, rows, strict=True)], ())

    def _read_others(
        self, identity: Identity, request: pb.BatchWriteRowRequest, known: Sequence[KnownRows]
    ) -> None:
        """Read the rows that are not known. Raises an error that rejects the whole request."""
        require_text(request)
        if not request.tables:
            raise invalid("No row is specified in BatchWriteRow.")
        count = sum(len(table.rows) for table in request.tables)
        if count > self._limits.batch_write_rows_max:
            raise self._too_many()
        check_table_names((table.table_name for table in request.tables), self._limits)
        for wanted, (rows, _, _) in zip(request.tables, known, strict=True):
            if not wanted.rows:
                raise invalid(f"No operation is specified for table: '{wanted.table_name}'.")
            table, missing = self._find(identity, wanted.table_name)
            for place, item in enumerate(wanted.rows):
                if rows[place] is None:
                    rows[place] = self._row(table, missing, item)

    def _row(
        self,
        table: Table | None,
        missing: StoreError | None,
        item: pb.RowInBatchWriteRowRequest,
    ) -> BatchRow:
        """Return one row of a batch. A key that does not fit the table fails only its row."""
        kind = kind_of(item)
        row = row_change(item.row_change, kind, self._limits)
        if table is None:
            return BatchRow(row, None, None, missing)
        try:
            change = change_of(row, kind, table, item, self._limits)
        except StoreError as error:
            if error.code == "OTSParameterInvalid":
                raise
            return BatchRow(row, table, None, error)
        check_write(table, kind)
        return BatchRow(row, table, change, None)

    def _find(self, identity: Identity, name: str) -> tuple[Table | None, StoreError | None]:
        try:
            return self._directory.table(identity.instance, name), None
        except Rejected as error:
            return None, error

    def _check_size(self, rows: Sequence[BatchRow]) -> None:
        size = sum(
            capacity.key_bytes(row.row.key)
            + capacity.cells_bytes(row.row.cells)
            + _version_bytes(row.row.cells)
            for row in rows
        )
        limit = self._limits.batch_write_bytes_max
        if size > limit:
            raise invalid(
                f"The total data size of BatchWriteRow request exceeds the limit, "
                f"limit size: {limit}, data size: {size}."
            )


def _are_all_known(request: pb.BatchWriteRowRequest, known: Sequence[KnownRows]) -> bool:
    """True if no other check could make a request fail.

    Known rows imply a valid table name, and they contain no text that needs a check.
    """
    if not known or type(request.transaction_id) is not str:
        return False
    if len(known) > len({table.table_name for table in request.tables}):
        return False
    return all(found.rows and all(found.rows) for found in known)


def _first_value(row: BatchRow) -> bytes | None:
    key = row.row.key
    return key[0][1] if key and key[0][1][0] in KEY_KINDS else None


def _version_bytes(cells: Sequence[Cell]) -> int:
    """Return the bytes that the versions count which a client gave."""
    if ask_form(cells).is_checked:
        return 0
    return 8 * sum(cell.version_ms is not None for cell in cells)
