"""Rows of the binlog as rows for rowtide: one decoder per table as an event describes it.

    table id 6 | flags 2 | columns n | which are present | rows

An update has two sets of columns, and two images per row. An insert becomes a put. An
update becomes a merge of the changed columns, so that rowtide keeps the former versions.
While the table is being copied it becomes a put of the whole row, which does not need the
former row. A change of the key is a delete and a put.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.mysql.packets import length_at
from rowtide.connectors.sources.mysql.row_image import Reader, Unreadable
from rowtide.connectors.sources.mysql.row_layout import Row, RowImages
from rowtide.connectors.sources.mysql.schema import MySqlTable, key_part
from rowtide.connectors.sources.mysql.table_map import BinlogColumn
from rowtide.core.values.variant import Scalar

__all__ = ["DELETE", "UPDATE", "WRITE", "BinlogRowDecoder"]

WRITE, UPDATE, DELETE = 0, 1, 2
_POST_HEADER = 8

_KeyOf = Callable[[Row], Key]


class BinlogRowDecoder:
    """Decodes rows of ``table``, whose ``columns`` in the binlog are read by ``readers``."""

    def __init__(
        self, table: MySqlTable, columns: Sequence[BinlogColumn], readers: Sequence[Reader]
    ) -> None:
        self.table = table
        self._image = RowImages(columns, readers).read
        names = [column.name for column in columns]
        self._count = len(names)
        self._null_bytes = (len(names) + 7) // 8
        # MySQL sets the bits beyond the last column too.
        present = ((1 << len(names)) - 1).to_bytes(self._null_bytes, "little")
        self._all_present = (present, b"\xff" * self._null_bytes)
        keys = [(column.name, names.index(column.name)) for column in table.target_key]
        parts = [key_part(column) for column in table.target_key]
        self._key = _key_of([(*key, part) for key, part in zip(keys, parts, strict=True)])
        # A column that is computed on read is in the binlog but in no snapshot.
        known = {column.name for column in table.columns if column not in table.key}
        # In rowtide's order, so that rowtide need not sort them.
        order = sorted(range(len(names)), key=names.__getitem__)
        self._columns = [(i, names[i]) for i in order if names[i] in known]

    def rows(
        self, kind: int, body: bytes, prefix: bytes, time_ms: int, *, whole: bool
    ) -> list[SourceRow]:
        """Return the rows of an event. ``whole``: updates too are puts of the whole row."""
        count, at = length_at(body, _POST_HEADER)
        for _ in range(2 if kind == UPDATE else 1):
            end = at + self._null_bytes
            if count != self._count or body[at:end] not in self._all_present:
                raise Unreadable(
                    f"Rows of {self.table.full_name} are incomplete: binlog_row_image was not FULL."
                )
            at = end
        target, key_of, image = self.table.target, self._key, self._image
        rows: list[SourceRow] = []
        end = len(body)
        number = 0
        while at < end:
            before, at = image(body, at)
            key = key_of(before)
            position = prefix + number.to_bytes(8, "big")
            number += 1
            if kind == WRITE:
                columns = self._present(before)
                rows.append(SourceRow(target, key, columns, True, time_ms, position))
            elif kind == DELETE:
                rows.append(SourceRow(target, key, None, True, time_ms, position))
            else:
                after, at = image(body, at)
                moved = key_of(after)
                if moved != key:
                    rows.append(SourceRow(target, key, None, True, time_ms, position))
                    position = prefix + number.to_bytes(8, "big")
                    number += 1
                if moved != key or whole:
                    columns = self._present(after)
                    rows.append(SourceRow(target, moved, columns, True, time_ms, position))
                else:
                    changed = {name: after[i] for i, name in self._columns if after[i] != before[i]}
                    if changed:
                        rows.append(SourceRow(target, key, changed, False, time_ms, position))
        return rows

    def _present(self, row: Row) -> dict[str, Scalar | None]:
        return {name: row[i] for i, name in self._columns if row[i] is not None}


def _key_of(parts: Sequence[tuple[str, int, Callable[[Scalar], Scalar] | None]]) -> _KeyOf:
    """Return the function that makes a row's key. Key columns can't be NULL."""
    plain = [(name, index) for name, index, _ in parts]
    if any(change is not None for _, _, change in parts):
        changes: list[tuple[str, int, Callable[[Scalar], Scalar]]]
        changes = [(name, index, change or _same) for name, index, change in parts]
        return lambda row: tuple((name, made(_there(row[i]))) for name, i, made in changes)
    if len(plain) == 1:
        [(only, at)] = plain
        return lambda row: ((only, _there(row[at])),)
    return lambda row: tuple((name, _there(row[i])) for name, i in plain)


def _same(value: Scalar) -> Scalar:
    return value


def _there(value: Scalar | None) -> Scalar:
    assert value is not None, "a key column is NULL"
    return value
