"""Clients that remember everything: their requests, the times, the answers, and possible
outcomes.

A client gets no answer from a process that was killed: then the outcome is unknown.
Writes are distinguished by their marks. A delete has none, and is counted.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.plainbuffer import delete_cell, increment_cell, put_cell
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.fold import ChunkReader, read_cells
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_ABSENT,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    UPDATE,
    ChangeRequest,
    Outcome,
)
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.core.values.schema import ShardRange
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import StoreFailed
from tests.simulation.broker import Partition
from tests.simulation.network import Network
from tests.simulation.row_model import MARK, Columns, Newest, TableModel, newest_of
from tests.simulation.simulated_worker import TOPICS, SimulatedWorker
from tests.simulation.tables import INSTANCE, MAX_VERSIONS, PLACES, TABLES, Place
from tests.simulation.trace import Trace

__all__ = ["Attempt", "Clients", "some_cells"]

COLUMNS = tuple(b"c%d" % number for number in range(6))
LARGE = b"x" * 12_000
"""Three of these make a row of two chunks."""


@dataclass(slots=True)
class Attempt:
    """One change and the client's answer; ``low`` is the stamp of the row's previous change."""

    place: Place
    mark: str | None
    change: ChangeRequest
    low: int
    worker: SimulatedWorker
    since_s: float
    result: Outcome | StoreError | None = None
    result_s: float = 0.0

    def __str__(self) -> str:
        what = f"{self.mark or 'delete'} of {self.place.table}/{self.place.name}"
        return f"{what}, asked at {self.since_s:.4f} s of {self.worker.address}"

    @property
    def applied(self) -> bool:
        """Whether it was acknowledged."""
        return isinstance(self.result, Outcome)

    @property
    def unknown(self) -> bool:
        """Whether the client can't know, or can't know yet."""
        return self.result is None or isinstance(self.result, OutcomeUnknown)


@dataclass(slots=True)
class Clients:
    """All clients, and the models of the logs that they hold the answers to."""

    network: Network
    trace: Trace
    attempts: list[Attempt] = field(default_factory=list)
    models: dict[str, TableModel] = field(
        default_factory=lambda: {table: TableModel(MAX_VERSIONS) for table in TABLES}
    )
    shards: dict[str, tuple[str, ShardRange]] = field(default_factory=dict)
    """Every shard that the catalog ever had, by id, with its table."""
    catalog: Catalog = field(default_factory=Catalog)
    """As of its log's end."""
    acknowledged: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    """The highest stamp of an acknowledged change, by row."""
    acknowledgements: dict[Place, list[tuple[float, int]]] = field(
        default_factory=lambda: {place: [] for place in PLACES}
    )
    """The time of its answer, and its result then, by row."""
    hidden: set[bytes] = field(default_factory=set)
    """Marks that a transaction wrote and overwrote: no client may see them."""

    def _learn(self) -> None:
        """Read the shards in the catalog's log, even if no worker knows them."""
        everything = self.network.broker.log((TOPICS.catalog, 0)).everything
        for entry in everything[self.catalog.applied + 1 :]:
            self.catalog.replay(entry.offset, entry.value)
            for shard_id, (table, shard) in self.catalog.shards.items():
                self.shards[shard_id] = (table.name, shard)

    def log(self, shard_id: str) -> Partition:
        """Return a shard's log at the broker."""
        return self.network.broker.log((TOPICS.shard(shard_id), 0))

    def model(self, table: str) -> TableModel:
        """Return the model of a table as of its logs' ends."""
        self._learn()
        model = self.models[table]
        # Ids of shards increase, so parents come before their children.
        for shard_id in sorted(self.shards, key=lambda name: int(name[1:])):
            if self.shards[shard_id][0] == table:
                known = model.logs.get(shard_id)
                everything = self.log(shard_id).everything
                at = 0 if known is None else known.end
                if known is None or at < len(everything):
                    model.replay(shard_id, everything[at:])
        return model

    # Writing.

    def write(self, worker: SimulatedWorker, place: Place, chance: random.Random) -> None:
        """Ask a worker for some change of a row."""
        self.ask(worker, place, *self.change(chance, place))

    def ask(
        self, worker: SimulatedWorker, place: Place, change: ChangeRequest, mark: str | None
    ) -> Attempt:
        """Ask a worker for a change of a row."""
        attempt = self.attempt(worker, place, change, mark)

        def ask() -> None:
            heard = partial(self._send_answer, attempt)
            try:
                _owner(worker, place).submit(change, heard)
            except StoreError as error:
                heard(error)
            except StoreFailed:
                heard(OutcomeUnknown("Internal server error."))

        self.send(worker, ask)
        return attempt

    def attempt(
        self, worker: SimulatedWorker, place: Place, change: ChangeRequest, mark: str | None
    ) -> Attempt:
        """Record a change that is requested now."""
        now_s = asyncio.get_running_loop().time()
        low = self.model(place.table).last(place.name)
        attempt = Attempt(place, mark, change, low, worker, now_s)
        self.attempts.append(attempt)
        return attempt

    def way_s(self) -> float:
        """Return how long a message takes, this time."""
        return self.network.chance.uniform(0.0003, 0.005)

    def send(self, worker: SimulatedWorker, ask: Callable[[], None]) -> None:
        """Have something asked in a worker's process, a little later."""
        loop = asyncio.get_running_loop()
        loop.call_later(self.way_s(), ask, context=worker.process.context)

    def _send_answer(self, attempt: Attempt, result: Outcome | StoreError) -> None:
        self.network.later(self.way_s(), self.receive_answer, attempt, result)

    def receive_answer(self, attempt: Attempt, result: Outcome | StoreError) -> None:
        """Record a client's answer, and check it against the log."""
        assert attempt.result is None, f"answered twice: {attempt}"
        attempt.result, attempt.result_s = result, asyncio.get_running_loop().time()
        self.trace.add("told", f"{attempt.mark} {type(result).__name__}")
        place, model = attempt.place, self.model(attempt.place.table)
        if isinstance(result, Rejected):
            self._check_refusal(attempt, model)
        elif isinstance(result, Outcome) and attempt.mark is not None:
            self.acknowledge(place, attempt.mark)

    def acknowledge(self, place: Place, mark: str) -> None:
        """Hold an acknowledged change to the log; reads from now on must see it."""
        valid = self.model(place.table).stood.get(mark)
        assert valid is not None, f"acknowledged, but not in the log: {mark} of {place}"
        self.acknowledged[place] = max(self.acknowledged[place], valid.stamp)
        self.acknowledgements[place].append(
            (asyncio.get_running_loop().time(), self.acknowledged[place])
        )

    def find_acknowledged_stamp(self, place: Place, before_s: float) -> int:
        """Return the highest stamp of a change of a row that was acknowledged by then."""
        times = self.acknowledgements[place]
        at = bisect_right(times, before_s, key=itemgetter(0))
        return times[at - 1][1] if at else 0

    def _check_refusal(self, attempt: Attempt, model: TableModel) -> None:
        """A refusal is a strong read: at some moment since it was asked, the row was like that."""
        place, wanted = attempt.place, attempt.change.expectation == EXPECT_PRESENT
        found = {row is not None for row in model.since(place.name, attempt.low)}
        assert (not wanted) in found, f"{attempt} was refused, but the row was never like that"

    # Reading.

    def read(self, worker: SimulatedWorker, place: Place) -> None:
        """Ask a worker for a row, strongly."""
        low = self.acknowledged[place]

        def ask() -> None:
            try:
                owner = _owner(worker, place)
                owner.require_readable()
                row = row_in(owner.rows, place)
            except (StoreError, StoreFailed):
                return
            self.network.later(self.way_s(), self._read, worker, place, low, row)

        self.send(worker, ask)

    def _read(self, worker: SimulatedWorker, place: Place, low: int, row: Columns | None) -> None:
        """A read shows the row as of some moment between its question and its answer."""
        model = self.model(place.table)
        self.trace.add("read", f"{place.table}/{place.name} from {worker.address}")
        assert row in model.since(place.name, low), (
            f"a strong read of {place} from {worker.address} shows what never was since stamp "
            f"{low}: {shown(row)}"
        )
        self.check_whole(place, newest_of(row))

    def check_whole(self, place: Place, row: Newest | None) -> None:
        """No client sees a row between two changes of one transaction."""
        if row is not None:
            mark = row.get(MARK, b"")  # It may have expired.
            assert mark not in self.hidden, f"half a transaction of {place}: {mark!r}"

    def change(self, chance: random.Random, place: Place) -> tuple[ChangeRequest, str | None]:
        """Return some change of a row, and its mark unless it deletes."""
        kind = chance.choice((PUT, UPDATE, UPDATE, UPDATE, DELETE))
        row = place.key
        if kind == DELETE:
            return ChangeRequest(kind, row, [], IGNORE), None
        mark = f"{len(self.attempts)}"
        cells = [*some_cells(chance, updates=kind == UPDATE), _put(MARK, mark.encode())]
        expectation = chance.choice((IGNORE, EXPECT_PRESENT, EXPECT_ABSENT))
        return ChangeRequest(kind, row, cells, expectation), mark


def _owner(worker: SimulatedWorker, place: Place) -> ShardOwner:
    table = worker.catalog.tables.get((INSTANCE, place.table))
    if table is None:
        raise Unavailable("The catalog is not read yet.")
    return worker.directory.owner(table, place.key)


def some_cells(chance: random.Random, *, updates: bool) -> Iterator[Cell]:
    """Yield some cells: small, large, deleted, counted."""
    for name in COLUMNS:
        choice = chance.choice(("none", "none", "small", "large", "delete"))
        if choice == "small":
            yield _put(name, b"small")
        elif choice == "large":
            yield _put(name, LARGE)
        elif choice == "delete" and updates:
            yield delete_cell(name, None)
    if updates and chance.random() < 0.2:
        yield increment_cell(b"n", variant.encode(1))


def _put(name: bytes, value: bytes) -> Cell:
    return put_cell(name, variant.encode(value.decode()), None)


def row_in(rows: ChunkReader, place: Place) -> Columns | None:
    """Return a row's cells by column and version; None where it is absent."""
    encoded = key.encode([variant.encode(place.name), variant.encode(1)])
    cells = read_cells(rows, row_key(place.table_id, encoded))
    if cells is None:
        return None
    columns: Columns = {}
    for cell in cells:
        columns.setdefault(cell.name, {})[cell.version_ms or 0] = cell.variant
    return columns


def shown(columns: Columns | None) -> str:
    """Return a row for reading, values by their beginnings."""
    if columns is None:
        return "absent"
    short = {c.decode(): {v: str(b[:8]) for v, b in found.items()} for c, found in columns.items()}
    return str(short)
