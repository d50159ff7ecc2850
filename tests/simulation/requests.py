"""What clients ask at a worker's edge, as bytes, and what they hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_ABSENT,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    ChangeRequest,
)
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.stream.shard.row_store import StoreFailed
from tests.simulation.clients import Clients
from tests.simulation.row_model import Newest
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import ADMIN, Place

__all__ = [
    "Reply",
    "Workers",
    "ask",
    "condition_of",
    "request_of",
    "rows_of",
    "wire_key",
    "wire_row",
]

PATIENCE_S = 3.0, 11.5
"""Then a client takes a request for lost: some before a worker says so itself, some after."""

Reply = bytes | StoreError

Workers = Callable[[], Sequence[SimulatedWorker]]
"""Returns those that live."""

_EXPECTED = {
    IGNORE: pb.IGNORE,
    EXPECT_PRESENT: pb.EXPECT_EXIST,
    EXPECT_ABSENT: pb.EXPECT_NOT_EXIST,
}


class Message(Protocol):
    """A request."""

    def SerializeToString(self) -> bytes:
        """Return its bytes."""
        ...


def ask(
    clients: Clients, worker: SimulatedWorker, operation: str, request: Message
) -> asyncio.Future[Reply]:
    """Have a worker answer a client. It always gets an answer in the end, perhaps an
    unknown outcome.
    """
    body = request.SerializeToString()
    future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def resolve(reply: Reply) -> None:
        if not future.done():
            future.set_result(reply)

    async def answer() -> None:
        reply: Reply
        try:
            found = worker.edge[operation](ADMIN, body)
            reply = found if isinstance(found, bytes) else await found
        except StoreError as error:
            reply = error
        except (StoreFailed, ExceptionGroup) as failure:
            if isinstance(failure, ExceptionGroup) and failure.split(StoreFailed)[1] is not None:
                raise
            # The client gets OTSInternalServerError, which leaves the outcome unknown.
            reply = OutcomeUnknown("Internal server error.")
        clients.network.later(clients.way_s(), resolve, reply)

    def arrive() -> None:
        answering = answer()
        try:
            worker.tasks.create_task(answering, name=operation)
        except RuntimeError:  # It has just ended.
            answering.close()

    clients.send(worker, arrive)
    clients.network.later(clients.network.chance.choice(PATIENCE_S), resolve, OutcomeUnknown())
    return future


def request_of(
    place: Place, change: ChangeRequest, transaction_id: str = ""
) -> tuple[str, Message]:
    """Return the operation and the request for a change of a row, within a transaction or not."""
    row, within = wire_row(place, change), transaction_id or None
    condition, name = condition_of(change), place.table
    if change.kind == DELETE:
        return "DeleteRow", pb.DeleteRowRequest(
            table_name=name, primary_key=row, condition=condition, transaction_id=within
        )
    if change.kind == PUT:
        return "PutRow", pb.PutRowRequest(
            table_name=name, row=row, condition=condition, transaction_id=within
        )
    return "UpdateRow", pb.UpdateRowRequest(
        table_name=name, row_change=row, condition=condition, transaction_id=within
    )


def condition_of(change: ChangeRequest) -> pb.Condition:
    """Return what a change expects of its row."""
    return pb.Condition(row_existence=_EXPECTED[change.expectation])


def wire_row(place: Place, change: ChangeRequest) -> bytes:
    """Return a change of a row as requests have it."""
    deleted = change.kind == DELETE
    return HEADER + plainbuffer.encode_row(place.key, change.cells, deleted=deleted)


def wire_key(*values: bytes) -> bytes:
    """Return the first columns of a primary key as requests have it."""
    names = (b"name", b"number")
    return HEADER + plainbuffer.encode_row(list(zip(names, values, strict=False)), [])


def rows_of(buffer: bytes) -> dict[str, Newest]:
    """Return rows by name, of an answer with one version of each column."""
    found: dict[str, Newest] = {}
    for row in plainbuffer.decode_rows(buffer) if buffer else ():
        name = str(variant.decode(row.key[0][1]))
        assert name not in found, f"{name} came twice"
        found[name] = {cell.name: cell.variant for cell in row.cells}
    return found
