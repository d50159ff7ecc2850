"""Processes of a dashboard in virtual time: any of them is killed or paused between any two steps,
while rows are written and their shards split, merge and move.

Folding and state rows are the real ones, over an endpoint whose requests are refused, lost or late.
The tables are in memory. One seed is one run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

from rowtide.client.changes.shard_follower import ResumingHandle
from rowtide.client.changes.source import RowPage
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.progress import Progress
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.body import Kept
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    ROW,
    UPDATE,
    Change,
    ChangeParts,
    Kind,
    LoggedChange,
)
from rowtide.core.records.position import decode_position
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, Cell
from rowtide.core.values.key_ranges import holds
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.declaring.declaration import Dashboard, parse_dashboards
from rowtide.dashboards.fold.answer import answer
from rowtide.dashboards.fold.partial import PanelPartial
from rowtide.dashboards.fold.partial_codec import encode_partial
from rowtide.dashboards.runtime.build_folder import BuildFolder
from rowtide.dashboards.runtime.shard_fold import read_partial
from rowtide.dashboards.runtime.state_rows import PartRows
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild
from tests.changes.virtual_readers import CATCH_UP_S, KEYS, STOP_S, Reader, Way, Weather, World
from tests.changes.virtual_table import TABLE, LoggedShard, Table, range_of
from tests.connectors.timeline.virtual_fan_out import VirtualEndpoint
from tests.dashboards.panel_rows import DuckRows, Row, same_rows

__all__ = [
    "TYPES",
    "DashboardWorld",
    "FlightTable",
    "StateServer",
    "change_randomly",
    "make_dashboard",
]

TYPES = {"word": "text", "small": "bigint", "ratio": "double", "seen": "timestamp_us"}
QUERIES = {
    "all": "SELECT count(*) AS n, sum(ratio) AS total, avg(small) AS mean FROM t",
    "words": "SELECT word, count(*) AS n, max(ratio) AS high, count(DISTINCT small) AS kinds "
    "FROM t WHERE small IS NULL OR small < 4 GROUP BY ALL",
    "hours": "SELECT time_bucket(INTERVAL '1 hour', seen) AS hour, count(*) AS n, "
    "quantile_disc(ratio, 0.5) AS half FROM t GROUP BY ALL",
    "late": "SELECT small, sum(ratio) FILTER (WHERE ratio > 1) AS s FROM t GROUP BY ALL "
    "HAVING count(*) > 1",
}
START_US = 1_577_836_800_000_000
PAGE_ROWS = 40
PART_COLUMNS = (b"part", b"panel", b"group")

StateKey = tuple[str, str, bytes]


def make_dashboard() -> Dashboard:
    """Return the dashboard that all worlds have."""
    panels = "".join(f'      {name}: {{query: "{text}"}}\n' for name, text in QUERIES.items())
    types = ", ".join(f"{name}: {word}" for name, word in TYPES.items())
    text = f"dashboards:\n  d:\n    table: t\n    types: {{{types}}}\n    panels:\n{panels}"
    [dashboard] = parse_dashboards(text, "virtual")
    return dashboard


class FlightTable(Table):
    """Rows with columns, and for each change the row before it and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.now: dict[bytes, Row] = {}
        self.effects: dict[str, list[tuple[Row | None, Row | None]]] = {}
        """By shard, in the order of its changes."""

    def change(self, key: bytes, kind: Kind, columns: Row, removed: list[str]) -> None:
        """Put, update or delete a row."""
        self.stamp += 1
        before = self.now.pop(key, None)
        after: Row | None = None
        if kind != DELETE:
            base = {**(before or {})} if kind == UPDATE else {}
            after = {n: v for n, v in {**base, **columns}.items() if n not in removed}
            self.now[key] = after
        shard = next(s for s in self.living() if holds((range_of(s.shard),), key))
        absent = [name.encode() for name in sorted(TYPES) if name not in (before or {})]
        cells = [*_cells(columns, self.stamp)]
        cells += [Cell(name.encode(), DELETE_ALL, b"", None, 0) for name in removed]
        kept = Kept(before is not None, absent, ())
        parts = ChangeParts(key_order.decode(key), cells, _cells(before or {}, 1), kept)
        shard.changes.append(self._log(kind, shard, parts))
        self.effects.setdefault(shard.shard.shard_id, []).append((before, after))

    def _log(self, kind: Kind, shard: LoggedShard, parts: ChangeParts) -> Change:
        """Return a change as it is read from the shard's log."""
        variants, cells, before, kept = parts
        key = list(variants)
        body: record.Body = record.UpdateBody(key, cells, before, (), kept)
        if kind == PUT_ROW:
            body = record.PutBody(key, cells, before, (), kept)
        elif kind == DELETE:
            body = record.DeleteBody(key, before, (), kept)
        offset, shard_id = len(shard.changes), shard.shard.shard_id
        envelope = record.Envelope(offset, 0, bytes(8), self.stamp, record.SINGLE)
        value = record.encode_record(envelope, record.encode_body(body))
        at = record.read_envelope(value)[1]
        return LoggedChange(kind, TABLE, shard_id, offset, self.stamp, value=value, at=at)

    def move(self, shard: LoggedShard) -> None:
        """Replace a shard by one of the same keys."""
        self._replace([shard], [range_of(shard.shard)])

    def page(self, name: str, begin: bytes, end: bytes, limit: int) -> RowPage:
        """Return rows, see ``ChangeSource.rows``."""
        self.rows = dict.fromkeys(self.now, (1, self.stamp))
        page = super().page(name, begin, end, limit)
        rows = [
            Change.of(
                ROW,
                TABLE,
                name,
                self.stamp,
                ChangeParts(row.parts.key, _cells(self.now[row.key_bytes], 1), None),
            )
            for row in page.rows
        ]
        return page._replace(rows=rows)


def _cells(row: Row, version: int) -> list[Cell]:
    pairs = sorted(row.items())
    return [put_cell(name.encode(), variant.encode(value), version) for name, value in pairs]


class StateServer:
    """The table of state: rows of a source are written once, each request's in one group."""

    def __init__(self) -> None:
        self.rows: dict[StateKey, dict[str, Scalar]] = {}
        self._positions: dict[str, bytes] = {}

    def answer(self, operation: str, body: bytes) -> bytes:
        """Answer one request."""
        if operation == "GetRange":
            return self._read(pb.GetRangeRequest.FromString(body))
        assert operation == "BulkImport", operation
        return self._write(pb.BulkImportRequest.FromString(body))

    def part(self, name: str) -> PartRows:
        """Return the rows of a part as of now."""
        found = PartRows()
        for (part, panel, group), columns in self.rows.items():
            if part == name:
                found.add(panel, group, columns)
        return found

    def parts(self) -> set[str]:
        """Return the names of all parts."""
        return {part for part, _, _ in self.rows}

    def _write(self, request: pb.BulkImportRequest) -> bytes:
        response = pb.BulkImportResponse(table_name=request.table_name)
        for row in request.rows:
            response.rows.add(is_ok=True)
            if row.position <= self._positions.get(request.source, b""):
                continue
            self._positions[request.source] = row.position
            change = plainbuffer.decode_row(row.row_change)
            key = cast(StateKey, tuple(variant.decode(value) for _, value in change.key))
            if row.type == pb.DELETE:
                self.rows.pop(key, None)
            else:
                cells = {c.name.decode(): variant.decode(c.variant) for c in change.cells}
                self.rows[key] = cells
        return bytes(response.SerializeToString())

    def _read(self, request: pb.GetRangeRequest) -> bytes:
        begin = _bound(request.inclusive_start_primary_key)
        end = _bound(request.exclusive_end_primary_key)
        keys = sorted((_encoded(key), key) for key in self.rows)
        found = [key for encoded, key in keys if begin <= encoded < end]
        rows = [
            plainbuffer.encode_row(
                _named(key),
                [put_cell(n.encode(), variant.encode(v), 1) for n, v in self.rows[key].items()],
            )
            for key in found[:PAGE_ROWS]
        ]
        response = pb.GetRangeResponse(
            consumed=pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=0, write=0)),
            rows=HEADER + b"".join(rows) if rows else b"",
        )
        if len(found) > PAGE_ROWS:
            following = plainbuffer.encode_row(_named(found[PAGE_ROWS]), [])
            response.next_start_primary_key = HEADER + following
        return bytes(response.SerializeToString())


def _named(key: StateKey) -> list[tuple[bytes, bytes]]:
    return [
        (name, variant.encode(cast(Scalar, value)))
        for name, value in zip(PART_COLUMNS, key, strict=True)
    ]


def _encoded(key: StateKey) -> bytes:
    return key_order.encode([variant.encode(value) for value in key])


def _bound(row: bytes) -> bytes:
    """Return the key that begins a range; of a part without a rest, the part's first."""
    values = [value for _, value in plainbuffer.decode_row(row).key]
    return key_order.encode([value for value in values if value != variant.V_INF_MIN])


class DashboardProcess(Reader):
    """One process that folds."""

    def __init__(self, name: str, world: DashboardWorld) -> None:
        way = Way(world.chance, lambda: world.weather)
        endpoint = cast(Endpoint, VirtualEndpoint(cast("object", world.server), way))  # type: ignore[arg-type]
        folder = BuildFolder(endpoint, world.build, asyncio.Event(), Progress())
        self._handle = ResumingHandle(folder.fold, folder.resume)  # type: ignore[method-assign]
        super().__init__(name, world)


class DashboardWorld(World):
    """A run of ``seed``: rows, processes, shards, and faults."""

    table: FlightTable

    def __init__(self, seed: int, duck: DuckRows) -> None:
        super().__init__(seed)
        self.table = FlightTable()
        self.server = StateServer()
        self.build = DashboardBuild(make_dashboard(), "b")
        self._duck = duck
        self.looks = 0
        """Positions whose sums were compared."""
        if self.begin == "rows":
            for key in self.chance.sample(KEYS, 9):
                self._change(key)

    def start(self) -> None:
        """Start one more process, unless there are enough."""
        if len(self.readers) < 3:
            self._started += 1
            self.readers.append(DashboardProcess(f"r{self._started}", self))

    def _actions(self) -> list[Callable[[], None]]:
        return [*super()._actions(), self._move, self._look, self._look]

    def _write(self) -> None:
        for _ in range(self.chance.randint(1, 20)):
            self._change(self.chance.choice(KEYS))

    def _change(self, key: bytes) -> None:
        change_randomly(self.table, self.chance, key)

    def _move(self) -> None:
        self.table.move(self.chance.choice(self.table.living()))

    def _look(self) -> None:
        """Compare each part with the changes up to its position.

        If rows were read first, only the sum of all parts can be compared, in the end.
        """
        if self.begin != "oldest":
            return
        for name in sorted(self.server.parts()):
            stored = self.server.part(name)
            if stored.position is None:
                continue
            at = decode_position(stored.position.position)
            effects = self.table.effects.get(at.shard_id, [])[: at.offset]
            for panel in self.build.dashboard.panels.values():
                expected = PanelPartial(panel.plan, panel.bounds)
                for before, after in effects:
                    if before is not None:
                        expected.add(before, -1)
                    if after is not None:
                        expected.add(after)
                found = read_partial(panel, stored)
                assert encode_partial(found) == encode_partial(expected), (name, panel.name, at)
                self.looks += 1

    async def _settle(self) -> None:
        """All that was paused goes on: the numbers must become those of the rows."""
        self.weather = Weather(0.0, 0.0, 0.0)
        for reader in self.readers:
            reader.process.thaw()
        self.start()
        for _ in range(CATCH_UP_S):
            await asyncio.sleep(1)
            self._look()
            if self._has_all():
                break
        self._compare_with_duckdb()
        for reader in self.readers:
            reader.worker.stop()
        _, left = await asyncio.wait([r.task for r in self.readers], timeout=STOP_S)
        assert not left, "a process does not stop"
        self._look()

    def _has_all(self) -> bool:
        for panel in self.build.dashboard.panels.values():
            expected = PanelPartial(panel.plan, panel.bounds)
            for row in self.table.now.values():
                expected.add(row)
            whole = PanelPartial(panel.plan, panel.bounds)
            for name in self.server.parts():
                whole.merge(read_partial(panel, self.server.part(name)))
            if encode_partial(whole) != encode_partial(expected):
                return False
        return True

    def _compare_with_duckdb(self) -> None:
        self._duck.replace(self.table.now.values())
        for panel in self.build.dashboard.panels.values():
            parts = [read_partial(panel, self.server.part(n)) for n in self.server.parts()]
            found = answer(panel.plan, parts, panel.bounds)
            expected = self._duck.query(panel.query)
            assert expected is not None, panel.name
            assert same_rows(found.rows, expected, ordered=False), (found, expected)


def change_randomly(table: FlightTable, chance: random.Random, key: bytes) -> None:
    """Put, update or delete a row."""
    kind = chance.choice((PUT_ROW, PUT_ROW, UPDATE, UPDATE, DELETE))
    columns = random_row(chance) if kind != DELETE else {}
    removed: list[str] = []
    if kind == UPDATE:
        columns = {n: v for n, v in columns.items() if chance.random() < 0.5}
        names = [name for name in sorted(TYPES) if name not in columns]
        removed = names[:1] if chance.random() < 0.2 else []
    table.change(key, kind, columns, removed)


def random_row(chance: random.Random) -> Row:
    """Return a row; some columns are missing, and some values have another type."""
    columns: Row = {
        "word": chance.choice(["", "a", "ab", "z"]),
        "small": chance.randrange(-3, 6),
        "ratio": chance.randrange(-40, 40) / 16,
        "seen": START_US + chance.randrange(8) * 1_800_000_000,
    }
    columns = {name: value for name, value in columns.items() if chance.random() < 0.85}
    if chance.random() < 0.1:
        columns["small"] = "7"
    return columns
