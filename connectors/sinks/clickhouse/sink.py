"""A table's rows in ClickHouse.

Behind the view with the table's name is NAME__rows, a ReplacingMergeTree by stamp.
Inserts only add rows. Of the rows of a key the one with the highest stamp counts, and
deleted rows are marked. So an insert that is repeated, late, or of unknown outcome
changes nothing.

NAME__covers has the floors (``connectors/floors.py``). No transaction joins the two
tables, so the order of steps must be safe even if a process pauses for long. A process
writes a floor before it searches rows below it, and writes rows before it reads floors.
So of two processes at least one sees what the other wrote.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rowtide.connectors.declared_types import (
    DeclaredTypes,
    normal_columns,
    parse_types,
    refuse_key_columns,
)
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.clickhouse import statements
from rowtide.connectors.sinks.clickhouse.native_format import NativeColumn, encode_block
from rowtide.connectors.sinks.clickhouse.server import ClickhouseRefused, ClickHouseServer
from rowtide.connectors.sinks.clickhouse.stored_types import (
    WORDS,
    decode_value,
    encode_values,
    server_type,
)
from rowtide.connectors.sinks.columnar import presentation
from rowtide.connectors.sinks.columnar.gathering import Gathering
from rowtide.connectors.sinks.columnar.layout import (
    Cells,
    Layout,
    Seen,
    TargetColumn,
    is_kind,
    writable_rows,
)
from rowtide.connectors.sinks.columnar.settling import floors_of, merge_batches
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["ClickhouseSettings", "ClickhouseSink", "make_sink"]

_OWN = (statements.KEY, statements.STAMP, statements.DELETED)
# Another process created or dropped the same table, view or column first.
_TAKEN = {15, 44, 57, 60}
ATTEMPTS = 10
_FSYNC_SINCE = (20, 11)


@dataclass(frozen=True, slots=True)
class ClickhouseSettings:
    """Where the rows go. An empty ``view`` takes the table's name."""

    url: str
    database: str = "default"
    user: str = "default"
    password: str = field(default="", repr=False)
    view: str = ""
    time_s: int = 60
    """Timeout of one query. An insert that takes longer is repeated."""
    columns_max: int = 1000
    """Rows that need more are refused: each column has its own files in every part."""
    columns: DeclaredTypes = field(default_factory=dict)
    """Declared types of attributes. Other attributes keep the type of each value."""


def make_sink(fields: Fields, surroundings: ConnectorContext) -> ClickhouseSink:
    """Return the sink that settings describe."""
    del surroundings  # It stores nothing on this machine.
    names = {"database": fields.text("database", "default"), "view": fields.text("view", "")}
    for setting, name in names.items():
        if not re.fullmatch(r"\w*", name):
            raise SettingsRefused(
                f"{fields.where}.{setting} must consist of letters, digits and underscores, "
                f"but is {name!r}."
            )
    return ClickhouseSink(
        ClickhouseSettings(
            url=fields.url("url"),
            **names,
            user=fields.text("user", "default"),
            password=fields.text("password", ""),
            time_s=fields.integer("time_s", 60, least=1, most=3600),
            columns_max=fields.integer("columns_max", 1000, least=1, most=10000),
            columns=parse_types(fields.inner("columns"), WORDS),
        )
    )


class ClickhouseSink:
    """One table in one database of a server. Several processes may write it at the same time."""

    def __init__(self, settings: ClickhouseSettings) -> None:
        self._settings = settings
        self._table = TableShape("", ())
        self._view = ""
        self._layout = self._new_layout()
        self._floors = Floors()
        self._floors_count = 0
        self._large: set[str] = set()
        self._gathering = Gathering(self._commit)
        self._server: ClickHouseServer | None = None

    async def open(self, table: TableShape) -> None:
        """Create database, tables and view if they are missing."""
        await self.close()
        settings = self._settings
        refuse_key_columns(settings.columns, table)
        self._table, self._view = table, settings.view or table.name
        self._server = ClickHouseServer(
            settings.url,
            settings.database,
            user=settings.user,
            password=settings.password,
            time_s=settings.time_s,
        )
        await self._make_database()
        await self._check_types()
        layout = self._new_layout()
        for statement in statements.create(
            self._view, layout, table, settings=await self._table_settings()
        ):
            await self._server.run(statement)
        await self._know_table()
        await self._read_columns()
        self._floors_count = -1
        await self._read_floors()
        await self._show()

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Insert a batch together with other waiting batches."""
        return await self._gathering.apply(batch)

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the columns, with values of declared types in their normal form."""
        return normal_columns(self._settings.columns, columns)

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return living rows in key order."""
        await self._read_columns()
        layout = self._layout
        found = await self._require_server().rows(
            statements.select_rows(self._view, layout, self._table, begin, end, limit=limit)
        )
        if not found:
            return []
        columns = [
            (column.name, [decode_value(column, value) for value in found[column.place]])
            for column in layout
        ]
        every = zip(found[statements.KEY], found[statements.STAMP], strict=True)
        rows = []
        for at, (key, stamp) in enumerate(every):
            assert isinstance(key, bytes), "a String column"
            assert isinstance(stamp, int), "an UInt64 column"
            # An attribute may have several columns. A row has a value in at most one of
            # them.
            values = {n: value for n, held in columns if (value := held[at]) is not None}
            # Values older than the setting may have other kinds and any form.
            normal = normal_columns(self._settings.columns, values)
            rows.append(HeldRow(key, stamp, normal))
        return rows

    async def close(self) -> None:
        """Close the connections."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _commit(self, batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        new = floors_of(batches)
        floors = self._floors.merge(new) if new else self._floors
        rows: Sequence[SinkRow] = merge_batches(batches, floors)
        rows, cells, refused = writable_rows(
            rows, self._layout, self._settings.columns_max, self._settings.columns
        )
        await self._make_columns(cells)
        if new:
            await self._insert_floors(new)
        try:
            if rows:
                await self._insert(rows, cells)
        except BaseException:
            # The insert may have happened after all, also if this process was paused and
            # cancelled. Raise its error, whether the check of the floors succeeds or not.
            with suppress(Unavailable, ClickhouseRefused):
                await self._look_for_floors(rows, new)
            raise
        await self._look_for_floors(rows, new)
        for floor in new:
            query = statements.end_rows(self._view, self._layout, self._table, floor)
            await self._require_server().run(query)
        return refused

    async def _look_for_floors(self, rows: Sequence[SinkRow], new: Sequence[Floor]) -> None:
        """Mark rows just inserted as deleted if floors of another process say that they are old."""
        if not await self._read_floors(new):
            return
        # Use a stamp just below the floor: the page may have a row of this key with the
        # floor's stamp. If it is the row's own stamp, the later insert counts.
        ended = [
            SinkRow(row.key, row.key_bytes, self._floors.at(row.key_bytes) - 1, None, "delete")
            for row in rows
            if row.stamp < self._floors.at(row.key_bytes)
        ]
        if ended:
            await self._insert(ended, {})

    async def _insert(self, rows: Sequence[SinkRow], cells: Cells) -> None:
        block = [
            NativeColumn(statements.KEY, "String", [row.key_bytes for row in rows]),
            NativeColumn(statements.STAMP, "UInt64", [row.stamp for row in rows]),
            NativeColumn(statements.DELETED, "UInt8", [row.columns is None for row in rows]),
        ]
        for at, (place, column) in enumerate(zip(self._layout.keys, self._table.key, strict=True)):
            values = [row.key[at][1] for row in rows]
            block.append(NativeColumn(place, statements.key_type(column.type), values))
        for seen, cell_values in cells.items():
            found = self._layout.find(seen)
            assert found is not None, "columns are made before they are written"
            stored = encode_values(seen, cell_values)
            block.append(NativeColumn(found.place, statements.column_type(found.kind), stored))
        await self._insert_block(statements.rows(self._view), block)

    async def _insert_floors(self, floors: Sequence[Floor]) -> None:
        block = [
            NativeColumn("begin", "String", [floor.begin for floor in floors]),
            NativeColumn("until", "String", [floor.end for floor in floors]),
            NativeColumn("stamp", "UInt64", [floor.stamp for floor in floors]),
        ]
        await self._insert_block(statements.covers(self._view), block)

    async def _insert_block(self, table: str, block: Sequence[NativeColumn]) -> None:
        columns = ", ".join(statements.quote_name(column.name) for column in block)
        await self._require_server().insert(f"INSERT INTO {table} ({columns})", encode_block(block))

    async def _read_floors(self, own: Sequence[Floor] = ()) -> bool:
        """Read the floors if other processes added some. True if so. ``own`` were just added."""
        covers = statements.covers(self._view)
        counted = await self._require_server().rows(f"SELECT count() AS count FROM {covers}")
        count = int(counted["count"][0] or 0)
        if count == self._floors_count + len(own):
            self._floors = self._floors.merge(own) if own else self._floors
            self._floors_count = count
            return False
        found = await self._require_server().rows(f"SELECT begin, until, stamp FROM {covers}")
        every = zip(*(found.get(name, []) for name in ("begin", "until", "stamp")), strict=True)
        self._floors = Floors([Floor(*floor) for floor in every])
        # Floors added between the two queries are read again next time.
        self._floors_count = count
        return True

    async def _read_columns(self) -> None:
        """Read the existing columns in the server's order, with their notes."""
        notes = _texts(await self._require_server().rows(statements.select_notes(self._view)))
        there = _texts(await self._require_server().rows(statements.columns(self._view)))["name"]
        layout = self._new_layout()
        noted = {
            place: (kind, name)
            for place, kind, name in zip(notes["place"], notes["kind"], notes["name"], strict=True)
        }
        for place in there:
            kind, name = noted.get(place, ("", ""))
            if is_kind(kind):
                layout.hold(TargetColumn(name, kind, place))
        self._layout = layout

    async def _know_table(self) -> None:
        """Check or store the key. Refuse tables that belong to another table's view."""
        notes = _texts(await self._require_server().rows(statements.select_notes(self._view)))
        every = zip(
            notes.get("place", ()), notes.get("kind", ()), notes.get("name", ()), strict=True
        )
        keys = sorted(note for note in every if note[1].startswith("key "))
        wanted = statements.key_notes(self._new_layout(), self._table)
        if not keys:
            await self._note(wanted)
        elif keys != sorted(wanted):
            raise SettingsRefused(
                f"{self._settings.database}.{self._view}__rows is another table: its key is "
                f"{[(name, kind) for _, kind, name in keys]}."
            )

    async def _note(self, notes: Sequence[tuple[str, str, str]]) -> None:
        places, kinds, names = zip(*notes, strict=True)
        block = [
            NativeColumn("place", "String", places),
            NativeColumn("kind", "String", kinds),
            NativeColumn("name", "String", names),
        ]
        await self._insert_block(statements.notes(self._view), block)

    def _new_layout(self) -> Layout:
        return Layout(self._table, _OWN, statements.NAMING, fold=str)

    async def _make_columns(self, cells: Cells) -> None:
        mixed = [column.name for column in presentation.find_mixed_numbers(self._layout)]
        if self._missing(cells):
            await self._add_columns(cells)
            await self._show()
            if self._missing(cells):
                raise Unavailable(f"{self._view}: columns that were just added are missing.")
        elif mixed and presentation.inexact(cells, mixed) - self._large:
            await self._show(presentation.inexact(cells, mixed))

    def _missing(self, cells: Cells) -> list[Seen]:
        return [seen for seen in cells if self._layout.find(seen) is None]

    async def _add_columns(self, cells: Cells) -> None:
        added = [self._layout.add(seen) for seen in self._missing(cells)]
        await self._note([(column.place, column.kind, column.name) for column in added])
        for column in added:
            with _ignore_codes(_TAKEN):  # Another process added it first.
                await self._require_server().run(statements.add_column(self._view, column))

    async def _show(self, larger: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Replace the view until it has every existing column."""
        for _ in range(ATTEMPTS):
            await self._read_columns()
            layout = self._layout
            self._large = set(larger)
            for column in presentation.find_mixed_numbers(layout):
                found = await self._require_server().rows(statements.large(self._view, column))
                if found["found"][0]:
                    self._large.add(column.name)
            try:
                await self._replace_view(layout)
            except ClickhouseRefused as error:
                if error.code not in _TAKEN:
                    raise
                continue
            await self._read_columns()
            if list(layout) == list(self._layout):
                return
        raise Unavailable(
            f"{self._view}: other processes replaced the view {ATTEMPTS} times meanwhile."
        )

    async def _replace_view(self, layout: Layout) -> None:
        """Exchange the view by a rename, for versions without REPLACE. It is never missing."""
        mark = secrets.token_hex(4)
        new, old = f"{self._view}__new_{mark}", f"{self._view}__old_{mark}"
        attributes = presentation.choose_presentations(layout, self._large)
        server, quoted = self._require_server(), statements.quote_name
        await server.run(statements.view(new, self._view, layout, self._table, attributes))
        try:
            exists = await server.run(f"EXISTS TABLE {quoted(self._view)}")
            away = f"{quoted(self._view)} TO {quoted(old)}, " if exists.strip() == b"1" else ""
            await server.run(f"RENAME TABLE {away}{quoted(new)} TO {quoted(self._view)}")
        except ClickhouseRefused:
            with suppress(ClickhouseRefused):
                await server.run(f"DROP TABLE IF EXISTS {quoted(new)}")
            raise
        await server.run(f"DROP TABLE IF EXISTS {quoted(old)}")

    async def _make_database(self) -> None:
        # A query in a missing database fails, so this one runs in another.
        elsewhere = {"database": "system"}
        name = self._settings.database
        found = await self._require_server().run(
            f"SELECT count() FROM system.databases WHERE name = '{name}'", settings=elsewhere
        )
        if found.strip() == b"0":
            await self._require_server().run(
                f"CREATE DATABASE IF NOT EXISTS {statements.quote_name(name)}", settings=elsewhere
            )

    async def _check_types(self) -> None:
        """Refuse declared types that the server lacks, before any column is made."""
        for name, declared in self._settings.columns.items():
            try:
                await self._require_server().run(statements.knows_type(declared))
            except ClickhouseRefused as error:
                raise SettingsRefused(
                    f"`columns` declares {server_type(declared)} for {name!r}, but the server "
                    f"does not have it: {error}"
                ) from error

    async def _table_settings(self) -> str:
        """Return settings that make an insert durable, if the server supports them."""
        text = (await self._require_server().run("SELECT version()")).decode()
        version = tuple(int(part) for part in text.strip().split(".")[:2])
        return " SETTINGS fsync_after_insert = 1" if version >= _FSYNC_SINCE else ""

    def _require_server(self) -> ClickHouseServer:
        assert self._server is not None, "open comes first"
        return self._server


@contextmanager
def _ignore_codes(codes: Set[int]) -> Iterator[None]:
    """Treat errors with one of these codes as success."""
    try:
        yield
    except ClickhouseRefused as error:
        if error.code not in codes:
            raise


def _texts(found: Mapping[str, Sequence[Scalar | None]]) -> dict[str, list[str]]:
    return {
        name: [value.decode() for value in values if isinstance(value, bytes)]
        for name, values in found.items()
    }
