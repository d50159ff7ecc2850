"""A table's changes as Parquet files in a folder. All of it blocks and belongs to one
thread.

    columns/00000003.json                 what each column holds; the highest number counts
    date=2026-11-22/FIRST-LAST-DIGEST.parquet     rows by the day of their stamps (UTC)
    newest.sql                            a query for the current rows, for DuckDB

Files are only added, each by one rename, and never change. The reader decides which row
of a key counts: the one with the highest stamp, unless it is deleted or below a floor. So
a file that is late or exists twice changes nothing. A file's name is a digest of its
content, so a repeated batch replaces the same file.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from rowtide.connectors.declared_types import DeclaredTypes
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.columnar.arrow_rows import (
    DELETED,
    KEY,
    STAMP,
    arrow_rows,
    read_arrow_rows,
)
from rowtide.connectors.sinks.columnar.layout import (
    NO_TYPES,
    Layout,
    Seen,
    TargetColumn,
    cells_of,
    writable_rows,
)
from rowtide.connectors.sinks.columnar.settling import floors_of, restamp_rows
from rowtide.connectors.sinks.lake import lake_rows
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.errors import Unavailable

__all__ = ["NEWEST", "ParquetFiles"]

ATTEMPTS = 20
NEWEST = "newest.sql"
_MICROSECONDS = 1_000_000


class ParquetFiles:
    """The changes of ``table`` in ``folder``, with at most ``columns_max`` columns."""

    def __init__(
        self,
        folder: Path,
        table: TableShape,
        *,
        columns_max: int,
        types: DeclaredTypes = NO_TYPES,
    ) -> None:
        self.folder = folder
        self._table = table
        self._columns_max = columns_max
        self._types = types
        self._layout = Layout(table, lake_rows.OWN, lake_rows.NAMING)
        self._number = 0
        """Number of the newest document of columns that was read."""

    def open(self) -> None:
        """Create the folder if it is missing. Raises SettingsRefused if it is another table's."""
        with self._map_errors():
            (self.folder / "columns").mkdir(parents=True, exist_ok=True)
            self._read_columns()
            if not self._number:
                self._add_columns([])
            self._write_newest_sql()

    def commit(self, batches: Sequence[SinkBatch]) -> list[Refused]:
        """Write batches. When this returns, they are on disk."""
        with self._map_errors():
            rows: Sequence[SinkRow] = restamp_rows(batches)
            rows, cells, refused = writable_rows(rows, self._layout, self._columns_max, self._types)
            missing = [seen for seen in cells if self._layout.find(seen) is None]
            if missing:
                self._add_columns(missing)
                self._write_newest_sql()
            floors = floors_of(batches)
            days = sorted({_day(row.stamp) for row in rows} | {_day(f.stamp) for f in floors})
            for day in days:
                self._write(
                    day,
                    [row for row in rows if _day(row.stamp) == day],
                    [floor for floor in floors if _day(floor.stamp) == day],
                )
        return refused

    def read_rows(self, begin: bytes, end: bytes, limit: int) -> list[HeldRow]:
        """Return living rows in key order. This reads all files."""
        with self._map_errors():
            self._read_columns()
            files = [str(path) for path in self.folder.glob("date=*/*.parquet")]
            if not files:
                return []
            schema = lake_rows.schema_of(self._layout, self._table)
            every = ds.dataset(files, schema=schema, format="parquet")
            wanted = [KEY, STAMP, DELETED, *(column.place for column in self._layout)]
            found = every.to_table(columns=wanted, filter=lake_rows.within(begin, end))
            floors = every.to_table(
                columns=[lake_rows.FROM, lake_rows.UNTIL, STAMP], filter=~lake_rows.is_row()
            )
        places = _newest(found, Floors(lake_rows.floors_of_rows(floors)))
        return read_arrow_rows(found.take(pa.array(places[:limit], pa.int64())), self._layout)

    def close(self) -> None:
        """Do nothing: no file is open between two calls."""

    def _write(self, day: str, rows: Sequence[SinkRow], floors: Sequence[Floor]) -> None:
        schema = lake_rows.schema_of(self._layout, self._table)
        parts = [arrow_rows(rows, cells_of(rows, self._types), self._layout, self._table)]
        parts.append(lake_rows.floor_rows(floors))
        joined = pa.concat_tables([lake_rows.widen_rows(part, schema) for part in parts])
        folder = self.folder / f"date={day}"
        folder.mkdir(exist_ok=True)
        name = _name(rows, floors)
        staging = folder / f".{secrets.token_hex(8)}.incoming"
        pq.write_table(joined, staging, compression="zstd")
        _flush(staging)
        os.replace(staging, folder / name)
        _flush(folder)
        _flush(self.folder)

    def _read_columns(self) -> None:
        """Read the columns that other processes have added."""
        documents = sorted((self.folder / "columns").glob("*.json"))
        if not documents or int(documents[-1].stem) == self._number:
            return
        document = json.loads(documents[-1].read_text(encoding="utf-8"))
        if document["key"] != self._key():
            raise SettingsRefused(f"{self.folder} is another table: its key is {document['key']}.")
        layout = Layout(self._table, lake_rows.OWN, lake_rows.NAMING)
        for name, kind, place in document["columns"]:
            layout.hold(TargetColumn(name, kind, place))
        self._layout, self._number = layout, int(documents[-1].stem)

    def _add_columns(self, missing: Sequence[Seen]) -> None:
        """Add columns by a document with the next number, which only one process can create."""
        for _ in range(ATTEMPTS):
            layout = Layout(self._table, lake_rows.OWN, lake_rows.NAMING)
            for column in self._layout:
                layout.hold(column)
            for seen in missing:
                if layout.find(seen) is None:
                    layout.add(seen)
            document = {"key": self._key(), "columns": [list(column) for column in layout]}
            try:
                self._write_columns(self._number + 1, document)
            except FileExistsError:
                self._read_columns()
            else:
                self._layout, self._number = layout, self._number + 1
                return
        raise Unavailable(f"{self.folder}: other processes added columns first, {ATTEMPTS} times.")

    def _write_columns(self, number: int, document: Mapping[str, object]) -> None:
        folder = self.folder / "columns"
        staging = folder / f".{secrets.token_hex(8)}.incoming"
        staging.write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
        _flush(staging)
        try:
            os.link(staging, folder / f"{number:08}.json")
        finally:
            staging.unlink()
        _flush(folder)

    def _key(self) -> list[list[object]]:
        return [
            [place, column.name, column.type]
            for place, column in zip(self._layout.keys, self._table.key, strict=True)
        ]

    def _write_newest_sql(self) -> None:
        staging = self.folder / f".{secrets.token_hex(8)}.incoming"
        staging.write_text(_newest_sql(self.folder, self._layout), encoding="utf-8")
        os.replace(staging, self.folder / NEWEST)

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"{self.folder}: {error}") from error


def _newest(found: Any, floors: Floors) -> list[int]:
    """Return the indexes of the living rows, in key order."""
    newest: dict[bytes, tuple[int, int]] = {}
    for place, (key, stamp) in enumerate(
        zip(found[KEY].to_pylist(), found[STAMP].to_pylist(), strict=True)
    ):
        if key not in newest or newest[key][0] < stamp:
            newest[key] = (stamp, place)
    deleted = found[DELETED].to_pylist()
    return [
        place
        for key, (stamp, place) in sorted(newest.items())
        if not deleted[place] and stamp >= floors.at(key)
    ]


def _newest_sql(folder: Path, layout: Layout) -> str:
    files = str(folder.resolve() / "date=*" / "*.parquet").replace("'", "''")
    columns = ", ".join(f'"{name}"' for name in (*layout.keys, *(c.place for c in layout)))
    return f"""-- The rows as they are now, for DuckDB.
WITH facts AS (
  FROM read_parquet('{files}', union_by_name = true, hive_partitioning = false)
), floors AS (
  SELECT {lake_rows.FROM} AS begin, {lake_rows.UNTIL} AS until, {STAMP} AS stamp
  FROM facts WHERE {lake_rows.UNTIL} IS NOT NULL
), newest AS (
  FROM facts WHERE {lake_rows.UNTIL} IS NULL
  QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY {STAMP} DESC) = 1
)
SELECT {columns} FROM newest
WHERE NOT {DELETED} AND NOT EXISTS (
  FROM floors
  WHERE {KEY} >= begin AND (until = ''::BLOB OR {KEY} < until) AND {STAMP} < stamp
);
"""


def _name(rows: Sequence[SinkRow], floors: Sequence[Floor]) -> str:
    digest = hashlib.blake2b(digest_size=10)
    for row in rows:
        digest.update(row.key_bytes + b"%d %d " % (row.stamp, row.columns is None))
    for floor in floors:
        digest.update(b"%b to %b %d " % floor)
    stamps = [row.stamp for row in rows] + [floor.stamp for floor in floors]
    return f"{min(stamps)}-{max(stamps)}-{digest.hexdigest()}.parquet"


def _day(stamp: int) -> str:
    return datetime.fromtimestamp(stamp // _MICROSECONDS, UTC).date().isoformat()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
