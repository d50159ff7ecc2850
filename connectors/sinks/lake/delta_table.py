"""One table's rows as a Delta table. All of it blocks and belongs to one thread.

A commit is one MERGE by key. A row replaces a row with no higher stamp, and a deleted row
stays as a marked one, so that a late update cannot bring it back. Delta checks each
commit against all changes since the table was read. If two processes commit at the same
time, one fails. It then reads what the other did, including columns and floors, and
merges again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from rowtide.connectors.declared_types import DeclaredTypes, type_of_kind
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
    Kind,
    Layout,
    Seen,
    TargetColumn,
    is_kind,
    writable_rows,
)
from rowtide.connectors.sinks.columnar.settling import floors_of, merge_batches
from rowtide.connectors.sinks.lake import lake_rows
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values import schema
from rowtide.core.values.errors import Unavailable

__all__ = ["DeltaRows"]

ATTEMPTS = 20
_NAME, _KIND = "rowtide.name", "rowtide.kind"
_TYPES: Mapping[Kind, str] = {
    "integer": "long",
    "double": "double",
    "boolean": "boolean",
    "text": "string",
    "binary": "binary",
}
_KEY_TYPES = {schema.INTEGER: "long", schema.STRING: "string", schema.BINARY: "binary"}


class DeltaRows:
    """The rows of ``table`` in the Delta table at ``place``, with at most ``columns_max``
    columns.
    """

    def __init__(
        self,
        place: str,
        options: Mapping[str, str],
        table: TableShape,
        *,
        columns_max: int,
        types: DeclaredTypes = NO_TYPES,
    ) -> None:
        self.place = place
        self._options = dict(options)
        self._table = table
        self._columns_max = columns_max
        self._types = types
        self._delta: Any = None
        self._version = -1
        self._layout = Layout(table, lake_rows.OWN, lake_rows.NAMING)
        self._floors = Floors()

    def open(self) -> None:
        """Create the table if it is missing. Raises SettingsRefused if it is another table."""
        with self._map_errors():
            own = [
                deltalake.Field(KEY, "binary", nullable=False),
                deltalake.Field(STAMP, "long", nullable=False),
                deltalake.Field(DELETED, "boolean", nullable=False),
                deltalake.Field(lake_rows.FROM, "binary"),
                deltalake.Field(lake_rows.UNTIL, "binary"),
            ]
            if not _is_remote(self.place):
                Path(self.place).mkdir(parents=True, exist_ok=True)
            self._delta = deltalake.DeltaTable.create(
                self.place,
                schema=deltalake.Schema([*own, *self._key_fields()]),
                mode="ignore",
                storage_options=self._options or None,
            )
            self._version = -1
            self._refresh()

    def commit(self, batches: Sequence[SinkBatch]) -> list[Refused]:
        """Merge batches into the table. When this returns, they are in its log."""
        with self._map_errors():
            for _ in range(ATTEMPTS):
                with suppress(CommitFailedError):
                    return self._try_to_commit(batches)
            raise Unavailable(f"{self.place}: other processes committed first, {ATTEMPTS} times.")

    def read_rows(self, begin: bytes, end: bytes, limit: int) -> list[HeldRow]:
        """Return living rows in key order."""
        with self._map_errors():
            self._refresh()
            places = [KEY, STAMP, *(column.place for column in self._layout)]
            found = self._query(
                places, f"{_within(begin, end)} AND NOT {DELETED} ORDER BY {KEY} LIMIT {limit}"
            )
        return read_arrow_rows(found, self._layout)

    def compact(self, *, keep_h: int) -> None:
        """Join small files. Remove those that no version of the last hours needs."""
        with self._map_errors(), suppress(CommitFailedError):  # Another process does it.
            self._refresh()
            self._take_turn()
            self._delta.optimize.compact()
            self._delta.vacuum(keep_h, dry_run=False, enforce_retention_duration=False)

    def close(self) -> None:
        """Do nothing: no file is open between two calls."""

    def _try_to_commit(self, batches: Sequence[SinkBatch]) -> list[Refused]:
        self._refresh()
        new = floors_of(batches)
        floors = self._floors.merge(new) if new else self._floors
        rows: Sequence[SinkRow] = merge_batches(batches, floors)
        rows, cells, refused = writable_rows(rows, self._layout, self._columns_max, self._types)
        missing = [seen for seen in cells if self._layout.find(seen) is None]
        if missing:
            self._add_columns(missing)
        parts = [arrow_rows(rows, cells, self._layout, self._table)]
        parts += [self._make_deletes(floor, rows) for floor in new]
        parts.append(lake_rows.floor_rows(_highest(new)))
        wanted = lake_rows.schema_of(self._layout, self._table)
        source = pa.concat_tables([lake_rows.widen_rows(part, wanted) for part in parts])
        if source.num_rows:
            self._merge(source)
        self._floors = floors
        return refused

    def _merge(self, source: Any) -> None:
        before = self._delta.version()
        (
            self._delta.merge(
                source,
                predicate=f"target.{KEY} = source.{KEY}",
                source_alias="source",
                target_alias="target",
            )
            .when_matched_update_all(predicate=f"source.{STAMP} >= target.{STAMP}")
            .when_not_matched_insert_all()
            .execute()
        )
        self._version = self._delta.version()
        if not _is_remote(self.place):
            _sync(Path(self.place), range(before + 1, self._version + 1))

    def _take_turn(self) -> None:
        """Write the turn row, so that a concurrent compaction fails.

        If two compactions begin with the same files, delta-rs 1.6 commits both and each
        row exists twice: it takes files that the other removed for moved ones. A MERGE
        rewrites the file of the turn row. A compaction that began earlier then conflicts
        with it.
        """
        row = lake_rows.turn_row(self._delta.version() + 1)
        self._merge(lake_rows.widen_rows(row, lake_rows.schema_of(self._layout, self._table)))

    def _make_deletes(self, floor: Floor, rows: Sequence[SinkRow]) -> Any:
        """Return deletes of the living rows below a floor."""
        old = f"{_within(floor.begin, floor.end)} AND NOT {DELETED} AND {STAMP} < {floor.stamp}"
        found = self._query([KEY, *self._layout.keys], old)
        named = {row.key_bytes for row in rows}
        others = [key not in named for key in found[KEY].to_pylist()]
        found = found.filter(pa.array(others, pa.bool_()))
        count = found.num_rows
        found = found.append_column(STAMP, pa.array([floor.stamp] * count, pa.int64()))
        return found.append_column(DELETED, pa.array([True] * count, pa.bool_()))

    def _refresh(self) -> None:
        """Read what was committed since the last time."""
        self._delta.update_incremental()
        if self._delta.version() == self._version:
            return
        layout = Layout(self._table, lake_rows.OWN, lake_rows.NAMING)
        keys = []
        for field in self._delta.schema().fields:
            kind, name = field.metadata.get(_KIND, ""), field.metadata.get(_NAME, "")
            if kind.startswith("key "):
                keys.append((field.name, kind, name))
            elif is_kind(kind):
                layout.hold(TargetColumn(name, kind, field.name))
        wanted = [(f.name, f.metadata[_KIND], f.metadata[_NAME]) for f in self._key_fields()]
        if keys != wanted:
            raise SettingsRefused(f"{self.place} is another table: its key is {keys}.")
        found = self._query(
            [lake_rows.FROM, lake_rows.UNTIL, STAMP], f"{lake_rows.UNTIL} IS NOT NULL"
        )
        self._layout, self._floors = layout, Floors(lake_rows.floors_of_rows(found))
        self._version = self._delta.version()

    def _query(self, places: Sequence[str], condition: str) -> Any:
        """Return columns of the rows and floors for which an SQL condition is true."""
        # Our column names need no escaping. DataFusion folds names without quotes.
        wanted = ", ".join(f'"{place}"' for place in places)
        engine = deltalake.QueryBuilder().register("held", self._delta)
        found = pa.table(engine.execute(f"SELECT {wanted} FROM held WHERE {condition}"))
        wanted_types = lake_rows.schema_of(self._layout, self._table)
        return found.cast(pa.schema([wanted_types.field(place) for place in places]))

    def _add_columns(self, missing: Sequence[Seen]) -> None:
        before, fields = self._delta.version(), []
        for seen in missing:
            column = self._layout.add(seen)
            noted = {_NAME: column.name, _KIND: column.kind}
            fields.append(deltalake.Field(column.place, _type_of(column.kind), metadata=noted))
        self._version = -1  # Until the layout is certainly that of the table.
        self._delta.alter.add_columns(fields)
        if self._delta.version() != before + 1:
            # Added rows are no conflict for Delta, but our knowledge of rows is older
            # than they are.
            raise CommitFailedError(f"{self.place}: another process committed meanwhile")
        self._version = before + 1

    def _key_fields(self) -> list[Any]:
        return [
            deltalake.Field(
                place,
                _KEY_TYPES[column.type],
                metadata={_NAME: column.name, _KIND: f"key {_KEY_TYPES[column.type]}"},
            )
            for place, column in zip(self._layout.keys, self._table.key, strict=True)
        ]

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"{self.place}: {error}") from error


def _type_of(kind: Kind) -> str:
    """Return Delta's type name for a kind of values."""
    declared = type_of_kind(kind)
    if declared is None:
        return _TYPES[kind]
    if declared.word == "decimal":
        return f"decimal({declared.precision},{declared.scale})"
    return declared.word


def _highest(floors: Sequence[Floor]) -> list[Floor]:
    """Return each range once: a MERGE takes one row of a key."""
    highest: dict[tuple[bytes, bytes], Floor] = {}
    for floor in floors:
        held = highest.setdefault((floor.begin, floor.end), floor)
        if held.stamp < floor.stamp:
            highest[floor.begin, floor.end] = floor
    return list(highest.values())


def _within(begin: bytes, end: bytes) -> str:
    until = f" AND {KEY} < X'{end.hex()}'" if end else ""
    return f"{lake_rows.UNTIL} IS NULL AND {KEY} >= X'{begin.hex()}'{until}"


def _is_remote(place: str) -> bool:
    return "://" in place


def _sync(folder: Path, versions: Sequence[int]) -> None:
    """Sync commits to disk. The library only writes the files."""
    log = folder / "_delta_log"
    for version in versions:
        entry = log / f"{version:020}.json"
        for line in entry.read_text(encoding="utf-8").splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                _flush(folder / added["path"])
        _flush(entry)
    _flush(folder)
    _flush(log)


def _flush(path: Path) -> None:
    with suppress(FileNotFoundError):  # Another process compacted it, so it is no longer needed.
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
