"""What a change did to a row: its values before it and after it, of the columns that are needed.

The only module that knows how a record of the stream tells this. Values are variants, as they are
stored: equal ones need not be decoded to be found equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowtide.core.native import RowEffect, RowVariants
from rowtide.core.records.change import DELETE, UPDATE, Change, ChangeParts, read_effects
from rowtide.core.records.kept import derive_after
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell

__all__ = ["ColumnsMissing", "ValueReader"]

CHANGE_KIND, CHANGE_STAMP = "change_kind", "change_stamp"

_Row = list[bytes | None]
"""A row in the making."""


class ColumnsMissing(Exception):
    """The stream did not keep a needed column when the change was written."""


class ValueReader:
    """Reads ``columns`` of changes and of a snapshot's rows. Columns of the key may be among them.

    It reads one table: the names of the key's columns are those of the first change. If
    ``of_changes``, ``change_kind`` and ``change_stamp`` are those of the change, not of its row.
    """

    def __init__(self, columns: Sequence[str], *, of_changes: bool = False) -> None:
        self._names = [name.encode() for name in columns]
        self._columns: tuple[tuple[bytes, int], ...] | None = None
        """Each column with its place in the key, or -1."""
        self._key_places: list[tuple[int, int]] = []
        """Where a column of the key goes, and its place in the key."""
        self._places: dict[bytes, int] = {}
        """Where the other columns go."""
        self._own_places = [
            (place, name)
            for place, name in enumerate(columns)
            if of_changes and name in (CHANGE_KIND, CHANGE_STAMP)
        ]

    def read_changes(self, changes: Sequence[Change]) -> list[RowEffect]:
        """Return the row before and after each change, as ``read_change``."""
        if not changes:
            return []
        found = read_effects(changes, self._find_columns(changes[0]))
        return [
            effect if effect is not None else self.read_change(change)
            for effect, change in zip(found, changes, strict=True)
        ]

    def read_change(self, change: Change) -> RowEffect:
        """Return the row before and after a change. None: there is no row.

        Raises ``ColumnsMissing`` if the record does not have all columns.
        """
        parts = change.parts
        row = self._start_row(change, parts)
        kept = parts.kept
        if kept is None:
            raise ColumnsMissing(
                f"the stream of table {change.table.name} does not tell whether rows existed"
            )
        self._check_columns(change, parts)
        before = tuple(self._fill(row, parts.before or ())) if kept.existed else None
        if change.kind == DELETE:
            return before, None
        return before, tuple(self._after(row, change, parts))

    def read_after(self, change: Change) -> RowVariants:
        """Return the row that a change made; only its key if it was deleted.

        Raises ``ColumnsMissing``.
        """
        parts = change.parts
        row = self._start_row(change, parts)
        for place, name in self._own_places:
            row[place] = variant.encode(change.kind if name == CHANGE_KIND else change.stamp)
        if change.kind == DELETE or not self._places:
            return tuple(row)
        self._check_columns(change, parts)
        return tuple(self._after(row, change, parts))

    def read_row(self, change: Change) -> RowVariants:
        """Return a row of a snapshot."""
        parts = change.parts
        row = self._start_row(change, parts)
        newest = derive_after((), self._choose(parts.cells), whole=True)
        return tuple(self._fill(row, newest.values()))

    def _find_columns(self, change: Change) -> tuple[tuple[bytes, int], ...]:
        """Return ``_columns``. The first change says which are the key's."""
        if self._columns is None:
            key = list(change.table.key_names)
            self._columns = tuple(
                [(name, key.index(name) if name in key else -1) for name in self._names]
            )
            self._key_places = [
                (place, at) for place, (_, at) in enumerate(self._columns) if at >= 0
            ]
            own = {place for place, _ in self._own_places}
            self._places = {
                name: place
                for place, (name, at) in enumerate(self._columns)
                if at < 0 and place not in own
            }
        return self._columns

    def _start_row(self, change: Change, parts: ChangeParts) -> _Row:
        """Return a row that has the key's columns only."""
        self._find_columns(change)
        row: _Row = [None] * len(self._names)
        for place, at in self._key_places:
            row[place] = parts.key[at]
        return row

    def _check_columns(self, change: Change, parts: ChangeParts) -> None:
        """Raise ``ColumnsMissing`` unless the record tells of all columns."""
        places, kept = self._places, parts.kept
        found = 0
        for cell in parts.before or ():
            if cell[0] in places:
                found += 1
        for name in () if kept is None else kept.absent:
            if name in places:
                found += 1
        if found < len(places):
            known = {*(change.original_columns or ())}
            missing = sorted({name.decode() for name in places} - known)
            raise ColumnsMissing(
                f"the stream of table {change.table.name} no longer keeps {', '.join(missing)}"
            )

    def _choose(self, cells: Iterable[Cell]) -> list[Cell]:
        places = self._places
        return [cell for cell in cells if cell[0] in places]

    def _fill(self, row: _Row, cells: Iterable[Cell]) -> _Row:
        """Return the row with the newest cells of its columns."""
        filled, places = row.copy(), self._places
        for name, _, value, _, _ in cells:
            place = places.get(name)
            if place is not None:
                filled[place] = value
        return filled

    def _after(self, row: _Row, change: Change, parts: ChangeParts) -> _Row:
        """Return the row after a change: each column depends on its own cells alone."""
        before, cells = self._choose(parts.before or ()), self._choose(parts.cells)
        whole = change.kind != UPDATE
        if not cells:
            after = self._fill(row, () if whole else before)
        else:
            after = self._fill(row, derive_after(before, cells, whole=whole).values())
        for cell in parts.kept.after if parts.kept is not None else ():
            place = self._places.get(cell.name)
            if place is not None:
                after[place] = cell.variant if cell.op == PUT else None
        return after
