"""A small sink with all duties: rows in a SQLite file, guarded by stamps. It fails on
request.

Any process may run it, so a file beside it requests faults by its text: ``unavailable``,
``fail``, or ``refuse TEXT`` for the rows with that text in one of their columns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.sink import Sink
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["KIND", "make_sink", "read_file_rows"]

KIND = "tests.connectors.sqlite_sink"

_SET = """insert into rows values (?, ?, ?) on conflict (key) do update
    set stamp = excluded.stamp, columns = excluded.columns where excluded.stamp >= stamp"""
_GONE = """update rows set stamp = :stamp, columns = null where stamp < :stamp
    and key >= :begin and (:end = x'' or key < :end) and columns is not null
    and key not in (select value from named_keys)"""


def make_sink(fields: Fields, surroundings: ConnectorContext) -> Sink:
    """Return a sink into the file that ``path`` names."""
    return SqliteSink(fields.text("path"))


class SqliteSink:
    """Rows by key; a deleted one stays as a marked row, so that nothing older brings it back."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._faults = Path(path + ".fault")
        self._file: sqlite3.Connection | None = None

    async def open(self, table: TableShape) -> None:
        """Make the table."""
        self._file = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        self._file.execute("pragma journal_mode = wal")
        self._file.execute("create table if not exists rows (key blob primary key, stamp, columns)")
        self._file.execute("create temp table named_keys (value blob)")

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply in one transaction."""
        assert self._file is not None, "open came first"
        fault, _, text = (
            self._faults.read_text().partition(" ") if self._faults.exists() else 3 * ("",)
        )
        if fault == "unavailable":
            raise Unavailable("the file is away", "OTSServerUnavailable")
        if fault == "fail":
            raise RuntimeError("the sink has a fault")
        refused = [Refused(row, f"{text} is refused") for row in batch if text and _has(row, text)]
        left_out = {row.row.key_bytes for row in refused}
        self._file.execute("begin immediate")
        try:
            self._write([row for row in batch if row.key_bytes not in left_out])
            self._cover(batch)
        except BaseException:
            self._file.execute("rollback")
            raise
        self._file.execute("commit")
        return refused

    def _write(self, rows: Sequence[SinkRow]) -> None:
        assert self._file is not None, "open came first"
        self._file.executemany(
            _SET, [(row.key_bytes, row.stamp, _document(row.columns)) for row in rows]
        )

    def _cover(self, batch: SinkBatch) -> None:
        assert self._file is not None, "open came first"
        if batch.covers is None:
            return
        begin, end = batch.covers
        self._file.execute("delete from named_keys")
        self._file.executemany("insert into named_keys values (?)", [(r.key_bytes,) for r in batch])
        self._file.execute(_GONE, {"stamp": batch.stamp, "begin": begin, "end": end})

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def read_file_rows(path: str) -> dict[bytes, dict[str, Scalar]]:
    """Return the rows that a file holds, by their encoded keys."""
    file = sqlite3.connect(path, timeout=30)
    try:
        found = file.execute("select key, columns from rows where columns is not null").fetchall()
    except sqlite3.OperationalError:
        found = []  # No process has opened the sink yet.
    file.close()
    return {bytes(key): json.loads(columns) for key, columns in found}


def _document(columns: Mapping[str, Scalar] | None) -> str | None:
    if columns is None:
        return None
    return json.dumps({n: v.hex() if isinstance(v, bytes) else v for n, v in columns.items()})


def _has(row: SinkRow, text: str) -> bool:
    return row.columns is not None and text in row.columns.values()
