"""Sources: they give rows in order, go on once all are answered, and send again what was not.

Every other row is packed by a form, as connectors pack them, where no text of it is too long.

A source is one process after another. Each goes on from some place up to which everything was
answered; what the one before it sent may still arrive. A request is divided by the catalog of any
worker, as that worker's own would be. Rows have marks, as clients' changes have: none stands twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime.source_packing import Packing
from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import StoreError
from rowtide.stream.api.bulk import BulkOperations
from tests.simulation.clients import COLUMNS, LARGE, Clients
from tests.simulation.row_model import MARK
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import ADMIN, INSTANCE, PLACES, Place, cut

__all__ = ["Sources"]

PATIENCE_S = 6.0
"""Then a source takes a request for lost, and may send it again."""

TIMES_MS = (0, 5, 1_700_000_000_000, 4_000_000_000_000)


@dataclass(slots=True)
class Given:
    """A row that a source gave."""

    place: Place
    mark: str
    part: pb.RowInBulkImportRequest
    columns: dict[str, str]

    def pack(self) -> tuple[bytes, bytes] | None:
        """Return the form and the row as connectors pack them; None where a text is too long."""
        key = tuple((name.decode(), variant.decode(value)) for name, value in self.place.key)
        packing = Packing(
            [(name, type(value)) for name, value in key], [(name, str) for name in self.columns]
        )
        packed = packing.pack(SourceRow("", key, self.columns, False, 0, b""))
        return None if packed is None else (packing.sample, packed)


@dataclass(slots=True)
class Source:
    """What a source gave, and up to where all of that was answered."""

    name: str
    given: list[Given] = field(default_factory=list)
    answered: int = 0
    sent: int = 0
    """Numbers its requests, and what ends one without an answer."""
    waits: set[int] = field(default_factory=set)
    """Rows of the running request without an answer yet."""
    failed: bool = False
    """Whether a row of it was not written."""


class Sources:
    """Two sources, whose rows are among those that clients write."""

    def __init__(self, clients: Clients, chance: random.Random) -> None:
        self.every = [Source("m"), Source("mm")]
        self._clients = clients
        self._chance = chance

    def write(self, which: int, count: int, workers: Sequence[SimulatedWorker]) -> None:
        """Let a source give more rows, unless it waits; have workers write what is not answered."""
        source, chance = self.every[which], self._chance
        if source.waits or not workers:
            return
        places = chance.sample(PLACES, 3)
        source.given += [
            self._draw_row(source, len(source.given) + at, chance.choice(places))
            for at in range(count)
        ]
        source.sent += 1
        source.waits, source.failed = set(range(source.answered, len(source.given))), False
        divider = chance.choice(workers)
        for address, numbers in _parts(source, divider):
            worker = next((w for w in workers if w.address == address), None)
            if worker is not None:
                self._ask(source, worker, numbers, divider.catalog)
            else:
                self._settle(source, numbers, failed=True)
        request = source.sent
        self._clients.network.later(PATIENCE_S, self._give_up, source, request)

    def restart(self, which: int) -> None:
        """Let another process be a source: it goes on from somewhere before."""
        source = self.every[which]
        self._give_up(source, source.sent)
        source.answered = self._chance.randint(0, source.answered)

    def _give_up(self, source: Source, request: int) -> None:
        if source.sent == request:
            source.sent += 1
            source.waits.clear()

    def _settle(self, source: Source, numbers: Sequence[int], *, failed: bool) -> None:
        """Take in what became of rows of the request under way."""
        source.failed = source.failed or failed
        source.waits.difference_update(numbers)
        if not source.waits and not source.failed:
            source.answered = len(source.given)

    def _draw_row(self, source: Source, number: int, place: Place) -> Given:
        chance, mark = self._chance, f"{source.name}{number}"
        columns = {MARK.decode(): mark}
        for name in COLUMNS[:3]:
            value = chance.choice((None, b"small", LARGE))
            if value is not None:
                columns[name.decode()] = value.decode()
        cells = [put_cell(n.encode(), variant.encode(text), None) for n, text in columns.items()]
        part = pb.RowInBulkImportRequest(
            type=chance.choice((pb.PUT, pb.UPDATE, pb.UPDATE)),
            row_change=HEADER + plainbuffer.encode_row(place.key, cells),
            position=(number + 1).to_bytes(4, "big"),
            time_ms=chance.choice(TIMES_MS),
        )
        return Given(place, mark, part, columns)

    def _ask(
        self, source: Source, worker: SimulatedWorker, numbers: Sequence[int], catalog: Catalog
    ) -> None:
        """Ask a worker for the rows of some shards, table by table."""
        for name in dict.fromkeys(source.given[number].place.table for number in numbers):
            ours = [number for number in numbers if source.given[number].place.table == name]
            table = catalog.tables[INSTANCE, name]
            shards = {
                catalog.shard_for(table, cut(source.given[number].place.name)).shard_id
                for number in ours
            }
            request = pb.BulkImportRequest(table_name=name, source=source.name)
            for number in ours:
                _add(request, source.given[number], packed=bool(number % 2))
            request.only_shards.extend(sorted(shards))
            heard = partial(self._send_answer, source, source.sent, ours)
            self._clients.send(worker, partial(_import, worker, request.SerializeToString(), heard))

    def _send_answer(
        self, source: Source, request: int, numbers: Sequence[int], reply: bytes | StoreError
    ) -> None:
        clients = self._clients
        clients.network.later(
            clients.way_s(), self._receive_answer, source, request, numbers, reply
        )

    def _receive_answer(
        self, source: Source, request: int, numbers: Sequence[int], reply: bytes | StoreError
    ) -> None:
        self._clients.trace.add("source", f"{source.name} {type(reply).__name__} {numbers}")
        written: list[int] = []
        if not isinstance(reply, StoreError):
            results = pb.BulkImportResponse.FromString(reply).rows
            written = [n for n, r in zip(numbers, results, strict=True) if r.is_ok]
        for number in written:
            given = source.given[number]
            self._clients.acknowledge(given.place, given.mark)
        if source.sent == request:
            self._settle(source, numbers, failed=len(written) < len(numbers))

    def check(self) -> None:
        """Every answered row is durable, and later changes of a row come later in the log."""
        for source in self.every:
            stamps: dict[Place, int] = {}
            for number, given in enumerate(source.given):
                stood = self._clients.model(given.place.table).stood.get(given.mark)
                answered = number < source.answered
                assert stood is not None or not answered, f"answered and gone: {given.mark}"
                if stood is not None:
                    before = stamps.get(given.place, 0)
                    assert before < stood.stamp, f"stands before what was given before: {given}"
                    stamps[given.place] = stood.stamp


def _add(request: pb.BulkImportRequest, given: Given, *, packed: bool) -> None:
    """Add a row to a request: cell by cell, or packed where it can be."""
    request.rows.append(given.part)
    packing = given.pack() if packed else None
    if packing is not None:
        sample, row = packing
        if sample not in request.row_forms:
            request.row_forms.append(sample)
        request.rows[-1].row_change = row
        request.rows[-1].row_form = [*request.row_forms].index(sample) + 1


def _parts(source: Source, divider: SimulatedWorker) -> list[tuple[str, list[int]]]:
    """Divide what is not answered by the workers that have the shards, as a worker knows them."""
    catalog, owners = divider.catalog, divider.owners()
    parts: dict[str, list[int]] = {}
    for number in sorted(source.waits):
        place = source.given[number].place
        table = catalog.tables.get((INSTANCE, place.table))
        if table is None:
            continue
        slot = catalog.shard_for(table, cut(place.name)).slot
        parts.setdefault(owners.get(slot, ""), []).append(number)
    return list(parts.items())


def _import(
    worker: SimulatedWorker, body: bytes, heard: Callable[[bytes | StoreError], None]
) -> None:
    try:
        answer = BulkOperations(worker.directory).bulk_import(ADMIN, body)
    except StoreError as error:
        heard(error)
    else:
        assert isinstance(answer, asyncio.Future)
        answer.add_done_callback(partial(_tell, heard))


def _tell(heard: Callable[[bytes | StoreError], None], done: asyncio.Future[bytes]) -> None:
    if not done.cancelled():
        heard(done.result())
