"""One change of a table as its readers get it, from the log or from the Stream API.

A change is decoded only when it is read, so callers that only count or forward changes save that.
``stamp`` is the commit stamp in microseconds. It rises along a key through splits, merges and moves
of shards, so (key, stamp) identifies a change for good. A reader drops a repeated change by it.
``sequence`` is the position in the shard's log, and can only be compared within one shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rowtide.core import native
from rowtide.core.native import RowEffect
from rowtide.core.protocol import plainbuffer
from rowtide.core.records import record
from rowtide.core.records.body import Kept
from rowtide.core.records.kept import cells_after, find_names, narrow_kept
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell
from rowtide.core.values.variant import Scalar

__all__ = [
    "DELETE",
    "PUT_ROW",
    "ROW",
    "UPDATE",
    "Change",
    "ChangeParts",
    "ChangeTable",
    "Kind",
    "LoggedChange",
    "WireChange",
    "read_effects",
]

Kind = Literal["row", "put", "update", "delete"]
ROW: Kind = "row"
"""From a snapshot: the whole row as of ``stamp``."""
PUT_ROW: Kind = "put"
"""The row becomes exactly the cells."""
UPDATE: Kind = "update"
"""The cells are merged into the row."""
DELETE: Kind = "delete"


class ChangeTable(NamedTuple):
    """The table of a change, and its key columns' names."""

    name: str
    key_names: tuple[bytes, ...]


class ChangeParts(NamedTuple):
    """A decoded change with values as variants.

    ``before`` has the original columns if the stream keeps them, ``kept`` what else the record
    tells of them. It is None in a record of an earlier schema.
    """

    key: Sequence[bytes]
    cells: Sequence[Cell]
    before: Sequence[Cell] | None
    kept: Kept | None = None


class Change:
    """A change of one row."""

    __slots__ = ("_parts", "kind", "sequence", "shard", "stamp", "table")

    def __init__(
        self, kind: Kind, table: ChangeTable, shard: str, sequence: int, stamp: int
    ) -> None:
        self.kind = kind
        self.table = table
        self.shard = shard
        self.sequence = sequence
        self.stamp = stamp
        self._parts: ChangeParts | None = None

    @classmethod
    def of(
        cls, kind: Kind, table: ChangeTable, shard: str, stamp: int, parts: ChangeParts
    ) -> Change:
        """Return a change that is already decoded and has no position in a log."""
        change = Change(kind, table, shard, -1, stamp)
        change._parts = parts
        return change

    def __repr__(self) -> str:
        return f"<{self.kind} {self.table.name} {dict(self.key)} @{self.stamp}>"

    @property
    def parts(self) -> ChangeParts:
        """Return key and cells as they are stored."""
        if self._parts is None:
            self._parts = self._decode_parts()
        return self._parts

    @property
    def key(self) -> tuple[tuple[str, Scalar], ...]:
        """Return the primary key: (column, value) in the table's order."""
        names = self.table.key_names
        values = self.parts.key
        return tuple([(n.decode(), variant.decode(v)) for n, v in zip(names, values, strict=True)])

    @property
    def partition_key(self) -> bytes:
        """Return the variant of the first key column."""
        return self.parts.key[0]

    @property
    def size(self) -> int:
        """Return about how many bytes its values and names need."""
        cells = [*self.parts.cells, *(self.parts.before or ())]
        values = sum(map(len, self.parts.key))
        return values + sum(len(cell.name) + len(cell.variant) for cell in cells)

    @property
    def key_bytes(self) -> bytes:
        """Return the key as bytes that sort in key order; they can identify the row."""
        return key_order.encode(self.parts.key)

    @property
    def cells(self) -> Sequence[Cell]:
        """Return the cells that are put or deleted, by name, as they are stored."""
        return self.parts.cells

    @property
    def columns(self) -> dict[str, Scalar]:
        """Return each column that is put, with its newest value."""
        newest: dict[bytes, Cell] = {}
        for cell in self.parts.cells:
            held = newest.get(cell.name)
            if cell.op == PUT and (held is None or _version(held) < _version(cell)):
                newest[cell.name] = cell
        return {name.decode(): variant.decode(cell.variant) for name, cell in newest.items()}

    @property
    def row(self) -> dict[str, Scalar]:
        """Return the key's columns and those that are put, as one dictionary."""
        return dict(self.key) | self.columns

    @property
    def removed(self) -> list[str]:
        """Return the columns of which every version is deleted."""
        return [cell.name.decode() for cell in self.parts.cells if cell.op == DELETE_ALL]

    @property
    def before(self) -> dict[str, Scalar] | None:
        """Return the values of the original columns before the change.

        None if the stream keeps no original columns. A column without a value is missing.
        """
        before = self.parts.before
        return None if before is None else _values(before)

    @property
    def after(self) -> dict[str, Scalar] | None:
        """Return the values of the original columns after the change, as of the same moment.

        None also for a record of an earlier schema.
        """
        cells = self.after_cells
        return None if cells is None else _values(cells)

    @property
    def after_cells(self) -> Sequence[Cell] | None:
        """Return the newest cells of the original columns after the change, in order."""
        _, cells, before, kept = self.parts
        if kept is None:
            return None
        found = cells_after(before or (), kept, cells, whole=self.kind != UPDATE)
        return [*found.values()]

    @property
    def existed(self) -> bool | None:
        """True if the row existed before the change, also if all its cells had expired.

        None if the stream keeps no original columns, and for a record of an earlier schema.
        """
        kept = self.parts.kept
        return None if kept is None else kept.existed

    @property
    def original_columns(self) -> list[str] | None:
        """Return the columns of which ``before`` and ``after`` tell; None if ``existed`` is."""
        _, _, before, kept = self.parts
        if kept is None:
            return None
        return [name.decode() for name in find_names(before or (), kept)]

    @property
    def logged(self) -> tuple[bytes, int] | None:
        """Return the record that tells it, and where its body begins; None if there is none."""
        return None

    def narrow(self, cells: Sequence[Cell]) -> None:
        """Keep only these cells."""
        key, more, before, kept = self.parts
        if kept is not None and cells is not more:
            whole = self.kind != UPDATE
            kept = narrow_kept(before or (), kept, more, cells, whole=whole)
        self._parts = ChangeParts(key, cells, before, kept)

    def _decode_parts(self) -> ChangeParts:
        raise NotImplementedError


class LoggedChange(Change):
    """A change from a shard's log; ``value`` is the record, whose body begins at ``at``."""

    __slots__ = ("_at", "_value")

    def __init__(
        self,
        kind: Kind,
        table: ChangeTable,
        shard: str,
        sequence: int,
        stamp: int,
        *,
        value: bytes,
        at: int,
    ) -> None:
        # Assigned one by one, not by super(), because this runs per record.
        self.kind = kind
        self.table = table
        self.shard = shard
        self.sequence = sequence
        self.stamp = stamp
        self._parts = None
        self._value = value
        self._at = at

    @property
    def logged(self) -> tuple[bytes, int] | None:
        """Return the record, unless this was decoded: then it may have been narrowed since."""
        return (self._value, self._at) if self._parts is None else None

    def _decode_parts(self) -> ChangeParts:
        body = record.decode_body(self._value, self._at)
        assert isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody), (
            "only changes of rows are made from records"
        )
        cells = () if isinstance(body, record.DeleteBody) else body.cells
        return ChangeParts(body.key, cells, body.before, body.kept)


class WireChange(Change):
    """A change, or a snapshot's row, as the protocol sends it: PlainBuffer."""

    __slots__ = ("_before", "_kept", "_row")

    def __init__(
        self,
        kind: Kind,
        table: ChangeTable,
        shard: str,
        sequence: int,
        stamp: int,
        *,
        row: bytes,
        before: bytes = b"",
        kept: Kept | None = None,
    ) -> None:
        super().__init__(kind, table, shard, sequence, stamp)
        self._row = row
        self._before = before
        self._kept = kept

    @property
    def partition_key(self) -> bytes:
        """Return the variant of the first key column, mostly without decoding the row."""
        return plainbuffer.first_key_value(self._row) or self.parts.key[0]

    @property
    def size(self) -> int:
        """Return the bytes that the protocol needs for it."""
        return len(self._row) + len(self._before)

    def _decode_parts(self) -> ChangeParts:
        row = plainbuffer.decode_row(self._row)
        before = plainbuffer.decode_row(self._before).cells if self._before else None
        return ChangeParts([value for _, value in row.key], row.cells, before, self._kept)


def read_effects(
    changes: Sequence[Change], columns: tuple[tuple[bytes, int], ...]
) -> Sequence[RowEffect | None]:
    """Return what changes did to some columns of their rows, without decoding the others.

    Columns are names, each with its place in the key, or -1. An effect is None if it must be found
    from the change's parts: without kernels all are.
    """
    records = [change.logged for change in changes]
    found = native.kernels.row_values(records, record.HEAD, columns)
    return [None] * len(records) if found is None else found


def _values(cells: Sequence[Cell]) -> dict[str, Scalar]:
    return {cell.name.decode(): variant.decode(cell.variant) for cell in cells}


def _version(cell: Cell) -> int:
    return cell.version_ms or 0
