"""Clients that write rows as requests at a worker's edge: one by one, and in batches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE, Outcome
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from tests.simulation.clients import Attempt, Clients
from tests.simulation.requests import Reply, ask, condition_of, request_of, wire_row
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import TABLES, Place

__all__ = ["write", "write_batch"]

WRITTEN = Outcome(b"", 0, 0)
UNKNOWN = ("OTSTimeout", "OTSInternalServerError")
"""Codes after which a write's outcome is unknown, see docs/concepts/guarantees.md."""
REFUSED = "OTSConditionCheckFail"

_KINDS = {PUT: pb.PUT, UPDATE: pb.UPDATE, DELETE: pb.DELETE}


def write(clients: Clients, worker: SimulatedWorker, place: Place, chance: random.Random) -> None:
    """Ask a worker for some change of a row, wherever its shard is."""
    change, mark = clients.change(chance, place)
    attempt = clients.attempt(worker, place, change, mark)
    operation, request = request_of(place, change)

    def heard(done: asyncio.Future[Reply]) -> None:
        reply = done.result()
        clients.receive_answer(attempt, WRITTEN if isinstance(reply, bytes) else reply)

    ask(clients, worker, operation, request).add_done_callback(heard)


def write_batch(
    clients: Clients, worker: SimulatedWorker, places: Sequence[Place], chance: random.Random
) -> None:
    """Ask a worker for changes of several rows at once."""
    request = pb.BatchWriteRowRequest()
    attempts: list[Attempt] = []
    for table in TABLES:
        ours = [place for place in places if place.table == table]
        wanted = request.tables.add(table_name=table) if ours else None
        for place in ours:
            change, mark = clients.change(chance, place)
            attempts.append(clients.attempt(worker, place, change, mark))
            assert wanted is not None
            wanted.rows.add(
                type=_KINDS[change.kind],
                row_change=wire_row(place, change),
                condition=condition_of(change),
            )
    asked = ask(clients, worker, "BatchWriteRow", request)
    asked.add_done_callback(partial(_heard, clients, attempts))


def _heard(clients: Clients, attempts: Sequence[Attempt], done: asyncio.Future[Reply]) -> None:
    reply = done.result()
    if isinstance(reply, StoreError):
        results: list[Outcome | StoreError] = [reply] * len(attempts)
    else:
        tables = pb.BatchWriteRowResponse.FromString(reply).tables
        results = [_result(row) for table in tables for row in table.rows]
    for attempt, result in zip(attempts, results, strict=True):
        clients.receive_answer(attempt, result)


def _result(row: pb.RowInBatchWriteRowResponse) -> Outcome | StoreError:
    """Return what a client makes of a row's result: it knows the code alone."""
    if row.is_ok:
        return WRITTEN
    code, message = row.error.code, row.error.message
    if code in UNKNOWN:
        return OutcomeUnknown(message)
    return Rejected(code, message) if code == REFUSED else Unavailable(message, code)
