"""The changes that a source's rows want, checked against their table and a source's limits.

A row arrives as PlainBuffer, as every client sends it, or packed by a form in its request
(``core/rows/source_form.py``). Names, types and whatever else depends on the form are
checked once for all its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.core.protocol.plainbuffer import RowChange, decode_row
from rowtide.core.protocol.row_form import ask_form
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import PUT, ChangeRequest
from rowtide.core.rows.source_form import SourceForm, find_form
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, Cell
from rowtide.core.values.cell import PUT as PUT_CELL
from rowtide.core.values.errors import StoreError, invalid
from rowtide.core.values.limits import VERSION_END, Limits
from rowtide.core.values.schema import Table, check_key
from rowtide.core.values.variant import V_AUTO_INCREMENT
from rowtide.stream.api.row_requests import check_row, kind_of

__all__ = ["SourceChanges"]

Held = Callable[[Table | None, StoreError | None, int, RowChange], ChangeRequest | StoreError]
"""Returns a row's change, checked against its table, or its error. May raise ``Rejected``."""


class SourceChanges:
    """The changes of one request's rows."""

    def __init__(self, table: Table, forms: Sequence[bytes], held: Held, limits: Limits) -> None:
        self._table = table
        self._forms = forms
        self._held = held
        self._limits = limits
        self._auto = table.auto_increment_index
        self._known: dict[tuple[int, int], SourceForm] = {}
        """Forms that fit the table, by their number and the kind of change."""
        self._key_texts = any(kind != variant.INTEGER for _, kind in table.key_wire)

    def change(self, item: pb.RowInBulkImportRequest) -> ChangeRequest:
        """Return the change that a row wants. Raises ``Rejected`` if it cannot be written."""
        kind, time_ms, number = kind_of(item), item.time_ms, item.row_form
        if number:
            form = self._known.get((number, kind)) or self._form(number, kind)
            key, cells = form.read(item.row_change)
            if self._key_texts:
                check_key(self._table, key, self._limits, auto=kind == PUT)
            change = ChangeRequest(kind, key, cells)
        else:
            change = self._change_of(kind, self._row(item.row_change, kind))
        if not 0 <= time_ms < VERSION_END:
            raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")
        if not number:
            _check_plain(change)
        if self._auto is None or change.key[self._auto][1] != V_AUTO_INCREMENT:
            change.time_ms = time_ms  # Otherwise the row's version is the time of its id.
        return change

    def _row(self, buffer: bytes, kind: int) -> RowChange:
        """Return a row in PlainBuffer; ``source_row.py`` uses known forms if possible."""
        row = decode_row(buffer, cells_max=self._limits.attributes_read_max)
        check_row(row, kind, self._limits)
        return row

    def _form(self, number: int, kind: int) -> SourceForm:
        """Return a form whose rows may be written. Raises ``Rejected``."""
        form = find_form(self._forms, number)
        row = RowChange(form.key, form.cells, False, None)
        check_row(row, kind, self._limits)
        _check_assigned(self._change_of(kind, row))
        self._known[number, kind] = form
        return form

    def _change_of(self, kind: int, row: RowChange) -> ChangeRequest:
        change = self._held(self._table, None, kind, row)
        if isinstance(change, StoreError):
            raise change
        return change


def _check_plain(change: ChangeRequest) -> None:
    """Raise OTSParameterInvalid for a change that only other clients may make."""
    if not ask_form(change.cells).is_checked and not all(map(_is_plain, change.cells)):
        raise invalid("Cells of a source are puts without a version, or deletes of all versions.")
    _check_assigned(change)


def _check_assigned(change: ChangeRequest) -> None:
    """Raise OTSParameterInvalid if the server would have to assign the key of an existing row."""
    if change.kind != PUT and any(value == V_AUTO_INCREMENT for _, value in change.key):
        raise invalid("Only a put of a source can leave an AUTO_INCREMENT column to the server.")


def _is_plain(cell: Cell) -> bool:
    return cell.op == DELETE_ALL or (cell.op == PUT_CELL and cell.version_ms is None)
