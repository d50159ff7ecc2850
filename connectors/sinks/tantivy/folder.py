"""The folder of an embedded search index: its rows, their index, and the lock of the
writer.

    rows.sqlite    the rows with their stamps (``held_rows.py``)
    index/         tantivy's files (``text_index.py``), rebuilt from the rows if they don't fit
    writer.lock    locked by the one process that writes; the kernel unlocks it when it dies

All calls block. A sink makes them in a thread of its own.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from rowtide.connectors.rows import SinkBatch, TableShape
from rowtide.connectors.sinks.tantivy.held_rows import FILE, HeldRows, TantivyRow
from rowtide.connectors.sinks.tantivy.text_index import TextIndex
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar
from rowtide.stream.log.local.file_lock import lock_file, read_holder, write_holder

__all__ = ["FoundRow", "FoundRows", "SearchFolder", "WritableFolder"]

FORMAT = 1
"""Format of the index's files. Raise it to index other values, or in another way."""

INDEX_ROWS = 5000
"""Rows between two commits while the index is rebuilt."""


class FoundRow(NamedTuple):
    """A row that a query found."""

    key: Mapping[str, Scalar]
    columns: Mapping[str, Scalar]
    score: float


class FoundRows(NamedTuple):
    """The best rows of a query, and the number of all that match."""

    rows: list[FoundRow]
    total: int


class SearchFolder:
    """An index to search, from any process. Raises ``Unavailable`` if there is none."""

    def __init__(self, path: Path) -> None:
        if not (path / FILE).exists():
            raise Unavailable(f"{path} has no search index yet.")
        try:
            self._rows = HeldRows(path, writes=False)
            self.table = self._rows.fact("table")
            self._index = TextIndex(path / "index", _language(self._rows), writes=False)
        except (sqlite3.OperationalError, ValueError) as error:  # ValueError is tantivy's.
            raise Unavailable(f"The search index in {path} can't be read: {error}.") from error

    def search(self, query: str, *, limit: int) -> FoundRows:
        """Return the matching rows that still exist. Raises ``QueryRefused``."""
        found = self._index.search(query, limit=limit)
        rows = {row.key_bytes: row for row in self._rows.rows_of(h.key_bytes for h in found.hits)}
        matches = []
        for hit in found.hits:
            row = rows.get(hit.key_bytes)
            if row is not None and row.document is not None:
                matches.append(FoundRow(row.document.key, row.document.columns, hit.score))
        return FoundRows(matches, found.total)

    def list_rows(self, covered: Range, *, limit: int) -> list[TantivyRow]:
        """Return the first living rows of a range, without those that the index lacks for good."""
        return _list_rows(self._rows, self._index, covered, limit)

    def close(self) -> None:
        """Close the files."""
        self._rows.close()


class WritableFolder:
    """An index that only this process writes. Raises ``Unavailable`` if another one does."""

    def __init__(self, path: Path, table: TableShape, language: str) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._pending: list[bytes] = []
        with ExitStack() as undone:
            self._lock = _lock_folder(path)
            undone.callback(os.close, self._lock)
            self.rows = HeldRows(path, writes=True)
            undone.callback(self.rows.close)
            self._require_table(table)
            self._index = self._fitting_index(language)
            self._index_leftovers()
            undone.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """How many rows searches do not see yet."""
        return len(self._pending)

    def apply(self, batches: Iterable[SinkBatch]) -> None:
        """Apply batches. They are on disk when this returns, and searchable after ``refresh``."""
        for row in self.rows.apply(batches):
            self._index.put(row)
            self._pending.append(row.key_bytes)

    def refresh(self) -> None:
        """Make applied rows visible to searches."""
        if self._pending:
            self._index.commit()
            self.rows.mark_indexed(self._pending)
            self._pending = []

    def list_rows(self, covered: Range, *, limit: int) -> list[TantivyRow]:
        """Return the first living rows of a range that searches find once and as they are."""
        self.refresh()
        return _list_rows(self.rows, self._index, covered, limit)

    def close(self) -> None:
        """Make everything visible to searches, and release the lock."""
        try:
            self.refresh()
        finally:
            self._index.close()
            self.rows.close()
            os.close(self._lock)

    def _require_table(self, table: TableShape) -> None:
        named = json.dumps([table.name, [column.name for column in table.key]])
        held = self.rows.fact("table_and_key")
        if held and held != named:
            raise Rejected(
                "OTSParameterInvalid",
                f"{self._path} is the search index of {held}, not of {named}: give this one another"
                f" folder.",
            )
        self.rows.note("table_and_key", named)
        self.rows.note("table", table.name)

    def _fitting_index(self, language: str) -> TextIndex:
        """Return the index. It is new and empty if the old one has another format or is damaged."""
        made = json.dumps([FORMAT, language])
        folder = self._path / "index"
        if self.rows.fact("index") == made:
            try:
                return TextIndex(folder, language, writes=True)
            except ValueError:  # tantivy's error for unreadable files.
                pass
        TextIndex.remove(folder)
        self.rows.index_anew()
        self.rows.note("language", language)
        self.rows.note("index", made)
        return TextIndex(folder, language, writes=True)

    def _index_leftovers(self) -> None:
        """Index the rows that a former process had not indexed when it ended."""
        while keys := self.rows.keys_to_index(limit=INDEX_ROWS):
            held = {row.key_bytes: row for row in self.rows.rows_of(keys)}
            for key in keys:
                self._index.put(held.get(key, TantivyRow(key, 0, None)))
            self._pending = list(keys)
            self.refresh()


def _list_rows(rows: HeldRows, index: TextIndex, covered: Range, limit: int) -> list[TantivyRow]:
    """Return rows that the index has once and as they are, or does not have yet."""
    begin, end = covered
    found: list[TantivyRow] = []
    while len(found) < limit and (held := rows.living((begin, end), limit=limit)):
        following = held[-1].key_bytes + b"\x00"
        stamps = index.within((begin, following))
        found += [
            row
            for row in held
            if stamps.get(row.key_bytes) == [row.stamp] or rows.is_unindexed(row.key_bytes)
        ]
        begin = following
    return found[:limit]


def _language(rows: HeldRows) -> str:
    return rows.fact("language") or "none"


def _lock_folder(path: Path) -> int:
    """Lock the folder for this process, and write the process into the lock file."""
    lock = os.open(path / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock_file(lock)
    except OSError as error:
        writer = read_holder(lock)
        os.close(lock)
        raise Unavailable(
            f"The search index in {path} is being written by process {writer}: "
            f"only one can write at a time."
        ) from error
    write_holder(lock)
    return lock
