"""Rows of the stream as rows for rowtide: one decoder per table as the stream describes
it.

An insert becomes a put of the whole row. An update becomes a merge of its columns, so
that rowtide keeps the former versions. If the old row is sent too (REPLICA IDENTITY
FULL), only changed columns are merged. While a table is being copied an update is a put,
which does not need the former row. A change of the key is a delete and a put. A value
that was not sent, because it is large and did not change, is left out of a merge. After a
change of the key such columns are listed, so that they can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.postgres.messages import (
    DELETE,
    INSERT,
    UNCHANGED,
    Relation,
    Row,
    parse_row,
)
from rowtide.connectors.sources.postgres.tables import FULL, PostgresTable
from rowtide.connectors.sources.postgres.values import key_reader_of, reader_of
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["Cells", "Decoded", "KeyMissing", "PostgresRowDecoder", "cells_reader", "key_reader"]

Cells = dict[str, Scalar | None]

_FIRST, _SECOND = (number.to_bytes(8, "big") for number in (0, 1))
_OLD = (ord("K"), ord("O"))


class KeyMissing(Exception):
    """The server does not send the key of a changed row."""


class Decoded(NamedTuple):
    """The rows of a change. ``missing`` are columns of the last row that were not sent."""

    rows: Sequence[SourceRow]
    missing: tuple[str, ...] = ()


def key_reader(
    table: PostgresTable, names: Sequence[str]
) -> Callable[[Sequence[bytes | None]], Key]:
    """Return the function that makes a key of a row with columns ``names``. Raises Unavailable."""
    parts = []
    for column in table.key:
        if column.name not in names:
            raise Unavailable(f"{table.full_name} lacked the key column {column.name} then.")
        parts.append((column.name, names.index(column.name), key_reader_of(column.type_oid)))

    def key_of(row: Sequence[bytes | None]) -> Key:
        # The server enforces NOT NULL for columns of such a key.
        return tuple([(name, part(row[place] or b"")) for name, place, part in parts])

    return key_of


def cells_reader(table: PostgresTable) -> Callable[[Sequence[bytes | None]], Cells]:
    """Return the function that makes cells of a row with all columns of a table."""
    key = {column.name for column in table.key}
    readers = [
        (place, column.name, reader_of(column.type_oid))
        for place, column in enumerate(table.columns)
        if column.name not in key
    ]

    def cells_of(row: Sequence[bytes | None]) -> Cells:
        return {
            name: reader(text)
            for place, name, reader in readers
            if (text := row[place]) is not None
        }

    return cells_of


class PostgresRowDecoder:
    """Decodes changes of ``table`` as ``relation`` describes it in the stream."""

    def __init__(self, table: PostgresTable, relation: Relation) -> None:
        self.table = table
        self.relation = relation
        names = [column.name for column in relation.columns]
        self._key_of = key_reader(table, names)
        key = {column.name for column in table.key}
        self._key_places = [place for place, name in enumerate(names) if name in key]
        types = {column.name: column.type_oid for column in table.columns}
        self._readers = [
            (
                place,
                column.name,
                reader_of(
                    column.type_oid
                    if column.is_built_in
                    else types.get(column.name, column.type_oid)
                ),
            )
            for place, column in enumerate(relation.columns)
            if column.name not in key
        ]
        self._full = relation.identity == FULL

    def decode(
        self, kind: int, message: bytes, prefix: bytes, time_ms: int, *, whole: bool
    ) -> Decoded:
        """Return the rows of an I, U or D. ``whole``: updates too are puts of the whole
        row.

        Raises KeyMissing.
        """
        target = self.table.target
        if kind == INSERT:
            row, _ = parse_row(message, 6)
            put = SourceRow(
                target, self._key_of(row), self._cells(row), True, time_ms, prefix + _FIRST
            )
            return Decoded((put,))
        if kind == DELETE:
            row, _ = parse_row(message, 6)
            return Decoded(
                (SourceRow(target, self._former_key(row), None, True, time_ms, prefix + _FIRST),)
            )
        old: Row | None = None
        at = 5
        if message[at] in _OLD:
            old, at = parse_row(message, at + 1)
        row, _ = parse_row(message, at + 1)
        return self._update(old, row, prefix, time_ms, whole=whole)

    def _update(
        self, old: Row | None, row: Row, prefix: bytes, time_ms: int, *, whole: bool
    ) -> Decoded:
        target = self.table.target
        if old is not None:
            for place in range(len(row)) if self._full else self._key_places:
                if row[place] is UNCHANGED:
                    row[place] = old[place]
        key = self._key_of(row)
        complete = UNCHANGED not in row
        if old is not None and (former := self._former_key(old)) != key:
            delete = SourceRow(target, former, None, True, time_ms, prefix + _FIRST)
            put = SourceRow(target, key, self._cells(row), True, time_ms, prefix + _SECOND)
            missing = tuple(name for place, name, _ in self._readers if row[place] is UNCHANGED)
            return Decoded((delete, put), missing)
        if whole and complete:
            put = SourceRow(target, key, self._cells(row), True, time_ms, prefix + _FIRST)
            return Decoded((put,))
        changed = self._pick_changes(row, old if self._full else None)
        if not changed:
            return Decoded(())
        return Decoded((SourceRow(target, key, changed, False, time_ms, prefix + _FIRST),))

    def _former_key(self, old: Row) -> Key:
        # A partition may have had another replica identity than the table.
        if any(old[place] is None for place in self._key_places):
            raise KeyMissing(self.table.full_name)
        return self._key_of(old)

    def _cells(self, row: Row) -> Cells:
        return {
            name: reader(text)
            for place, name, reader in self._readers
            if (text := row[place]) is not None and text is not UNCHANGED
        }

    def _pick_changes(self, row: Row, old: Row | None) -> Cells:
        return {
            name: None if text is None else reader(text)
            for place, name, reader in self._readers
            if (text := row[place]) is not UNCHANGED and (old is None or text != old[place])
        }
