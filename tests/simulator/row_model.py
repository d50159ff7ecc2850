"""Rows as dictionaries: the fold of a log written a second time, as simply as it can be.

It knows records and the append rule, and nothing of chunks, overlays, marks or owners.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.core import record, variant
from rowtide.core.cell import DELETE_ALL, DELETE_ONE, Cell
from rowtide.stream.log import Entry

__all__ = ["MARK", "Columns", "RowModel", "mark_of", "name_of"]

Columns = dict[bytes, dict[int, bytes]]
"""Values by column and version."""

MARK = b"mark"
"""A column whose value no two changes share."""

Changing = record.Put | record.Update | record.Delete


def name_of(body: Changing) -> str:
    """Return the first key column's value."""
    return str(variant.decode(body.key[0]))


def mark_of(body: Changing) -> str | None:
    """Return what a change put into its mark; None for a delete."""
    cells: Sequence[Cell] = () if isinstance(body, record.Delete) else body.cells
    return next((str(variant.decode(c.variant)) for c in cells if c.name == MARK), None)


class RowModel:
    """Rows by name, as of ``end``. Valid changes are kept in order, and when a row came or went."""

    def __init__(self, max_versions: int) -> None:
        self.end = 0
        self.rows: dict[str, Columns] = {}
        self.changes: list[tuple[int, Changing]] = []
        self.stamps: list[int] = []
        self.presence: dict[str, list[tuple[int, bool]]] = {}
        """Per name, (offset, whether the row is there from that offset on)."""
        self._max_versions = max_versions

    def replay(self, entries: Sequence[Entry]) -> None:
        """Fold entries, which go on at ``end``."""
        for entry in entries:
            assert entry.offset == self.end
            self.end += 1
            envelope, body = record.decode_record(entry.value)
            if envelope.at != entry.offset:
                continue
            if isinstance(body, record.Options):
                self._max_versions = body.max_versions
            if isinstance(body, Changing):
                self.stamps.append(envelope.stamp)
                self.changes.append((entry.offset, body))
                self._change(entry.offset, body)

    def was_present(self, name: str, low: int, high: int) -> set[bool]:
        """Return whether a row was there, as of any end from ``low`` to ``high``."""
        history = [(0, False), *self.presence.get(name, [])]
        before = [there for at, there in history if at <= low][-1:]
        return {*before, *(there for at, there in history if low < at <= high)}

    def _change(self, offset: int, body: Changing) -> None:
        name = name_of(body)
        if isinstance(body, record.Delete):
            self.rows.pop(name, None)
        elif isinstance(body, record.Put):
            self.rows[name] = self._changed({}, body.cells)
        else:
            self.rows[name] = self._changed(self.rows.get(name, {}), body.cells)
        self.presence.setdefault(name, []).append((offset + 1, name in self.rows))

    def _changed(self, columns: Columns, cells: Sequence[Cell]) -> Columns:
        for cell in cells:
            versions = columns.setdefault(cell.name, {})
            if cell.op == DELETE_ALL:
                versions.clear()
            elif cell.op == DELETE_ONE:
                versions.pop(cell.version_ms or 0, None)
            else:
                versions[cell.version_ms or 0] = cell.variant
        for name in {cell.name for cell in cells}:
            newest = sorted(columns[name], reverse=True)[: self._max_versions]
            columns[name] = {version: columns[name][version] for version in newest}
        return {name: versions for name, versions in columns.items() if versions}
