"""A search index in one SQLite file: rows, their values, the pieces of their texts, positions.

    rows       id, encoded key, commit stamp, newest version in ms, the row as JSON
    fields     the number of each field's name
    cells      field, kind, value, row id: one entry for each value that a test may look for
    pieces     FTS5: the pieces of a row's texts, each with its field's number
    shards     how far each shard of the stream is read (``client/changes/leases.py``)
    facts      ``epoch``: raised when the index begins again

**Rows and the position up to which they are read are one transaction.** So after a crash the file
is a state of the table that was read exactly so far, and reading goes on there. Commits are not
synced to the disk one by one: a power loss may take the last ones, rows and positions together, and
the stream brings them again.

One process writes (``writer_lock.py``). Any process reads the last commit meanwhile (WAL). All
calls block.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rowtide.client.changes.leases import ReaderLease, decode_pending, encode_pending
from rowtide.client.row_values import RowDict, read_texts
from rowtide.client.search.pieces import cut_text
from rowtide.client.search.row_json import decode_row_json, encode_row_json
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

__all__ = [
    "BOOLEAN",
    "BYTES",
    "ELEMENT",
    "FILE",
    "NUMBER",
    "TEXT",
    "IndexReset",
    "SearchFile",
    "SearchRow",
    "connect",
    "field_piece",
    "read_positions",
]

FILE = "index-1.sqlite"
"""The number is that of the format. Raise it to store rows in another way."""

# Kinds of values, in the order in which a sort returns them. They are stored.
BOOLEAN, NUMBER, TEXT, BYTES, NOT_A_NUMBER = 1, 2, 3, 4, 5
ELEMENT = 7
"""A text of a list. The list as a whole is a ``TEXT``, too."""

GAP = "¦"
"""A piece that no text has, between the texts of a list: no phrase goes across."""

CACHE_KIB = 32_768
BUSY_S = 10.0
BUSY_LOOK_S = 0.01

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, stamp INTEGER NOT NULL,
    newest_ms INTEGER NOT NULL, document TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS fields (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS cells (
    field INTEGER NOT NULL, kind INTEGER NOT NULL, value NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (field, kind, value, row)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cells_by_row ON cells (row, field);
CREATE VIRTUAL TABLE IF NOT EXISTS pieces USING fts5 (
    text, content = '', columnsize = 0, tokenize = 'ascii'
);
CREATE TABLE IF NOT EXISTS shards (
    shard TEXT PRIMARY KEY, position TEXT NOT NULL, pending TEXT NOT NULL, ended INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, fact INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO facts VALUES ('epoch', 0);
"""
_OLDER = "SELECT key FROM rows WHERE key >= ? AND (? = x'' OR key < ?) AND stamp < ?"


class SearchRow(NamedTuple):
    """A row as of ``stamp``, with its key's columns; ``columns`` is None if there is none.

    ``newest_ms`` is the newest version of its cells: with a time to live it expires by that.
    """

    key_bytes: bytes
    stamp: int
    newest_ms: int
    columns: RowDict | None


class IndexReset(Exception):
    """The index began again meanwhile, by another process: load the positions again."""


class SearchFile:
    """The index in ``folder``, to write. It is created if it is missing."""

    def __init__(self, folder: Path) -> None:
        self._file = connect(folder)
        self._numbers: dict[str, int] = dict(self._file.execute("SELECT name, number FROM fields"))
        self._epoch = self._read_epoch()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def positions(self) -> dict[str, ReaderLease]:
        """Return how far each shard is read. Later commits belong to these positions."""
        with self._transaction():
            self._epoch = self._read_epoch()
            return read_positions(self._file)

    def commit(
        self, batches: Iterable[tuple[Sequence[SearchRow], Range | None, int]], to: ReaderLease
    ) -> None:
        """Apply batches of a shard and its new position in one transaction.

        A batch has rows; for a page of a snapshot also the range that has no other rows, and the
        commit stamp as of which this is so. Raises ``IndexReset``.
        """
        with self._transaction():
            self.require_epoch()
            for rows, covers, stamp in batches:
                if covers is not None:
                    self._remove_others(rows, covers, stamp)
                for row in rows:
                    self._set(row)
            self._file.execute(
                "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?)",
                (to.shard_id, to.position, encode_pending(to.pending), to.ended),
            )

    def forget(self, shard_id: str) -> None:
        """Remove the position of a shard that is no longer kept."""
        with self._transaction():
            self.require_epoch()
            self._file.execute("DELETE FROM shards WHERE shard = ?", (shard_id,))

    def require_epoch(self) -> None:
        """Raise ``IndexReset`` if the index began again since the positions were read."""
        if self._read_epoch() != self._epoch:
            raise IndexReset

    def begin_again(self, *, empty: bool) -> None:
        """Forget all positions, so that all rows are read again. Searches wait until then.

        ``empty``: remove the rows first. Another process may be writing: it notices.
        """
        with self._transaction():
            self._file.execute("UPDATE facts SET fact = fact + 1 WHERE name = 'epoch'")
            self._file.execute("DELETE FROM shards")
            if empty:
                self._file.execute("DELETE FROM rows")
                self._file.execute("DELETE FROM cells")
                self._file.execute("INSERT INTO pieces (pieces) VALUES ('delete-all')")

    def _remove_others(self, rows: Sequence[SearchRow], covers: Range, stamp: int) -> None:
        """Remove the rows that a page of a snapshot lacks."""
        begin, end = covers
        present = {row.key_bytes for row in rows}
        older = self._file.execute(_OLDER, (begin, end, end, stamp)).fetchall()
        for (key,) in older:
            if key not in present:
                self._set(SearchRow(key, stamp, 0, None))

    def _set(self, row: SearchRow) -> None:
        """Store a row, unless the stored one is as of the same stamp or a later one.

        An updated row is read from the table and so may be ahead of the stream.
        """
        found = self._file.execute(
            "SELECT id, stamp, document FROM rows WHERE key = ?", (row.key_bytes,)
        ).fetchone()
        if found is not None:
            number, stamp, document = found
            if row.stamp <= stamp:
                return
            self._remove_values(number, decode_row_json(document))
            if row.columns is None:
                self._file.execute("DELETE FROM rows WHERE id = ?", (number,))
                return
            self._file.execute(
                "UPDATE rows SET stamp = ?, newest_ms = ?, document = ? WHERE id = ?",
                (row.stamp, row.newest_ms, encode_row_json(row.columns), number),
            )
            self._add_values(number, row.columns)
        elif row.columns is not None:
            added = self._file.execute(
                "INSERT INTO rows (key, stamp, newest_ms, document) VALUES (?, ?, ?, ?)",
                (row.key_bytes, row.stamp, row.newest_ms, encode_row_json(row.columns)),
            )
            assert added.lastrowid is not None, "the row was inserted"
            self._add_values(added.lastrowid, row.columns)

    def _add_values(self, number: int, columns: RowDict) -> None:
        fields = {self._field(name): value for name, value in columns.items()}
        self._file.executemany(
            "INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?)",
            [
                (field, kind, stored, number)
                for field, value in fields.items()
                for kind, stored in _list_values(value)
            ],
        )
        if text := _pieces_of(fields):
            self._file.execute("INSERT INTO pieces (rowid, text) VALUES (?, ?)", (number, text))

    def _remove_values(self, number: int, columns: RowDict) -> None:
        self._file.execute("DELETE FROM cells WHERE row = ?", (number,))
        # FTS5 keeps no texts here: it needs the pieces that it was given.
        if text := _pieces_of({self._field(name): value for name, value in columns.items()}):
            self._file.execute(
                "INSERT INTO pieces (pieces, rowid, text) VALUES ('delete', ?, ?)", (number, text)
            )

    def _field(self, name: str) -> int:
        """Return the number of a field; give it one if it is new."""
        number = self._numbers.get(name)
        if number is None:
            self._file.execute("INSERT OR IGNORE INTO fields (name) VALUES (?)", (name,))
            found = self._file.execute("SELECT number FROM fields WHERE name = ?", (name,))
            number = self._numbers[name] = int(found.fetchone()[0])
        return number

    def _read_epoch(self) -> int:
        [epoch] = self._file.execute("SELECT fact FROM facts WHERE name = 'epoch'").fetchone()
        return int(epoch)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._file.execute("COMMIT")
        except BaseException:
            self._file.execute("ROLLBACK")
            # Numbers that were given in the transaction are free again.
            self._numbers = dict(self._file.execute("SELECT name, number FROM fields"))
            raise


def connect(folder: Path) -> sqlite3.Connection:
    """Return a connection to the index in ``folder``. Raises ``Unavailable``.

    It may be used by one thread at a time.
    """
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _open(folder / FILE)
        except (OSError, sqlite3.Error) as error:
            # SQLite does not wait while another connection changes the journal's mode.
            if "locked" not in str(error) or time.monotonic() > until_s:
                raise _cannot_open(folder, error) from error
        time.sleep(BUSY_LOOK_S)


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        # WAL: readers see the last commit meanwhile. NORMAL: no sync at each commit.
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        file.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    except BaseException:
        file.close()
        raise
    return file


def _cannot_open(folder: Path, error: Exception) -> Unavailable:
    hint = "The folder can be deleted: the next search makes it again."
    if "fts5" in str(error):
        hint = "This Python's SQLite lacks FTS5, which a search needs."
    return Unavailable(f"The search index in {folder} cannot be opened: {error}. {hint}")


def read_positions(file: sqlite3.Connection) -> dict[str, ReaderLease]:
    """Return how far each shard is read in the transaction in progress."""
    return {
        shard: ReaderLease(
            shard,
            position=position,
            pending=decode_pending(pending),
            ended=bool(ended),
        )
        for shard, position, pending, ended in file.execute("SELECT * FROM shards")
    }


def field_piece(field: int, piece: str) -> str:
    """Return a piece with its field's number, as it is stored. FTS5 sees one word."""
    return f"{field}·{piece}"


def _list_values(value: Scalar) -> Iterator[tuple[int, Scalar]]:
    """Yield the kinds and values under which a field's value is found."""
    if isinstance(value, bool):
        yield BOOLEAN, value
    elif isinstance(value, float) and math.isnan(value):
        yield NOT_A_NUMBER, 0  # SQLite stores NaN as NULL.
    elif isinstance(value, int | float):
        yield NUMBER, value
    elif isinstance(value, bytes):
        yield BYTES, value
    else:
        yield TEXT, value
        for text in _elements(value) or ():
            yield ELEMENT, text


def _elements(value: str) -> list[str] | None:
    """Return the texts of a value that is a JSON array of texts, as lists are stored."""
    if not (value.startswith("[") and value.endswith("]")):
        return None
    found = read_texts(value)
    try:
        "".join(found or ()).encode()
    except UnicodeEncodeError:
        return None  # Half of a surrogate pair was escaped.
    return found


def _pieces_of(fields: Mapping[int, Scalar]) -> str:
    """Return the pieces of a row's texts, those of a text one after another."""
    found: list[str] = []
    for field, value in fields.items():
        if isinstance(value, str):
            for text in _elements(value) or [value]:
                found += [field_piece(field, piece) for piece in cut_text(text)]
                found.append(GAP)
    return " ".join(found)
