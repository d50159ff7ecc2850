"""The rows of an index in one SQLite file: the stored row of each key, and its stamp.

This file is the authority, and the index is derived from it. ``apply`` syncs a row to
disk here, with a mark that the index lacks it. A crash before the index is written leaves
the mark. Deleted rows stay without a document, so that a late row can't come back.

    rows        key, stamp, document; document is NULL if the row is deleted
    unindexed   keys whose rows the index may lack
    floors      ranges of snapshot pages with their stamps (``connectors/floors.py``)
    facts       the table, its key, how the index was made

One thread uses an object of this module. Readers in other processes open the file
read-only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rowtide.client.search.row_json import decode_row_json, encode_row_json
from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.rows import SinkBatch
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

__all__ = ["FILE", "HeldRows", "TantivyRow", "TextDocument"]

FILE = "rows.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (key BLOB NOT NULL UNIQUE, stamp INTEGER NOT NULL, document TEXT);
CREATE TABLE IF NOT EXISTS unindexed (key BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS floors (low BLOB, high BLOB, stamp INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, fact TEXT NOT NULL);
"""

_SET = """
INSERT INTO rows (key, stamp, document) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET stamp = excluded.stamp, document = excluded.document
WHERE excluded.stamp >= rows.stamp
RETURNING 1
"""

_OLDER = """
SELECT key FROM rows
WHERE key >= :low AND (:high = x'' OR key < :high) AND stamp < :stamp AND document IS NOT NULL
"""


class TextDocument(NamedTuple):
    """The columns of a row: those of the key and the others."""

    key: Mapping[str, Scalar]
    columns: Mapping[str, Scalar]


class TantivyRow(NamedTuple):
    """A stored row. Without a document it is deleted."""

    key_bytes: bytes
    stamp: int
    document: TextDocument | None


class HeldRows:
    """The rows in ``folder``. With ``writes`` the file is created if it is missing."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        path = (folder / FILE).resolve()
        mode = "rwc" if writes else "ro"
        where = f"{path.as_uri()}?mode={mode}"
        self._file = sqlite3.connect(where, uri=True, isolation_level=None)
        self._floors = Floors()
        if writes:
            # FULL: commits are synced. WAL: readers see the last commit meanwhile.
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.executescript(_SCHEMA)
            self._load_floors()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fact(self, name: str) -> str:
        """Return a fact, empty if it was never stored."""
        found = self._file.execute("SELECT fact FROM facts WHERE name = ?", (name,)).fetchone()
        return found[0] if found else ""

    def note(self, name: str, fact: str) -> None:
        """Store a fact."""
        self._file.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, fact))

    def apply(self, batches: Iterable[SinkBatch]) -> list[TantivyRow]:
        """Apply batches in one transaction. Return the rows that changed.

        Rows below the stored stamp of their key, or older than a snapshot's page, are
        dropped.
        """
        self._file.execute("BEGIN IMMEDIATE")
        try:
            changed = [row for batch in batches for row in self._apply_one(batch)]
            self._mark(row.key_bytes for row in changed)
            self._file.execute("COMMIT")
        except BaseException:
            self._file.execute("ROLLBACK")
            self._load_floors()
            raise
        return changed

    def _apply_one(self, batch: SinkBatch) -> Iterator[TantivyRow]:
        if batch.covers is not None:
            yield from self._cover(batch, batch.covers)
        floor = self._floors.at
        for row in batch.rows:
            key, stamp = row.key_bytes, row.stamp
            if stamp < floor(key):
                continue
            document = None if row.columns is None else TextDocument(dict(row.key), row.columns)
            if self._file.execute(_SET, (key, stamp, _text(document))).fetchone():
                yield TantivyRow(key, stamp, document)

    def _cover(self, batch: SinkBatch, covers: Range) -> Iterator[TantivyRow]:
        """Delete what a page of a snapshot lacks. A later page may have come before it."""
        low, high = covers
        present = {row.key_bytes for row in batch.rows}
        bounds = {"low": low, "high": high, "stamp": batch.stamp}
        older = [key for (key,) in self._file.execute(_OLDER, bounds) if key not in present]
        self._file.executemany(
            "UPDATE rows SET stamp = ?, document = NULL WHERE key = ?",
            ((batch.stamp, key) for key in older),
        )
        yield from (TantivyRow(key, batch.stamp, None) for key in older)
        floor = Floor(low, high, batch.stamp)
        self._floors.add(floor)
        self._file.execute("INSERT INTO floors VALUES (?, ?, ?)", floor)

    def _mark(self, keys: Iterable[bytes]) -> None:
        self._file.executemany(
            "INSERT OR IGNORE INTO unindexed VALUES (?)", ((key,) for key in keys)
        )

    def rows_of(self, keys: Iterable[bytes]) -> Iterator[TantivyRow]:
        """Yield the stored row of each key."""
        for key in keys:
            found = self._file.execute("SELECT stamp, document FROM rows WHERE key = ?", (key,))
            for stamp, text in found:
                yield TantivyRow(key, stamp, _document(text))

    def living(self, covered: Range, *, limit: int) -> list[TantivyRow]:
        """Return up to ``limit`` living rows of a range in key order."""
        found = self._file.execute(
            "SELECT key, stamp, document FROM rows WHERE key >= ? AND (? = x'' OR key < ?)"
            " AND document IS NOT NULL ORDER BY key LIMIT ?",
            (covered[0], covered[1], covered[1], limit),
        )
        return [TantivyRow(key, stamp, _document(text)) for key, stamp, text in found]

    def keys_to_index(self, *, limit: int) -> list[bytes]:
        """Return up to ``limit`` keys whose rows the index may lack."""
        found = self._file.execute("SELECT key FROM unindexed LIMIT ?", (limit,))
        return [key for (key,) in found]

    def is_unindexed(self, key: bytes) -> bool:
        """True if the index may lack the row of a key."""
        found = self._file.execute("SELECT 1 FROM unindexed WHERE key = ?", (key,))
        return found.fetchone() is not None

    def mark_indexed(self, keys: Iterable[bytes]) -> None:
        """Record that the index has the rows of these keys on disk."""
        self._file.execute("BEGIN IMMEDIATE")
        self._file.executemany("DELETE FROM unindexed WHERE key = ?", ((key,) for key in keys))
        self._file.execute("COMMIT")

    def index_anew(self) -> None:
        """Mark every living row: the index is empty."""
        self._file.execute("BEGIN IMMEDIATE")
        self._file.execute("DELETE FROM unindexed")
        self._file.execute("INSERT INTO unindexed SELECT key FROM rows WHERE document IS NOT NULL")
        self._file.execute("COMMIT")

    def _load_floors(self) -> None:
        """Read the floors, and store the smallest equivalent list."""
        kept = self._file.execute("SELECT low, high, stamp FROM floors")
        self._floors = Floors(Floor(*floor) for floor in kept)
        self._file.execute("BEGIN IMMEDIATE")
        self._file.execute("DELETE FROM floors")
        self._file.executemany("INSERT INTO floors VALUES (?, ?, ?)", self._floors.fewest())
        self._file.execute("COMMIT")


def _text(document: TextDocument | None) -> str | None:
    return None if document is None else encode_row_json(document)


def _document(text: str | None) -> TextDocument | None:
    return None if text is None else TextDocument(*decode_row_json(text))
