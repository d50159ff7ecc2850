"""Rowtide's own operations on all workers: the worker that is called asks the others.

Bodies and answers are JSON, and a caller needs an admin key. ``silent`` names the workers
that did not answer. The answer then lacks their part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import astuple
from typing import Any

from rowtide.core.cluster.catalog import Catalog, Document, reclaimer_document, worker_document
from rowtide.core.cluster.metering import Taken
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import (
    ConsumptionRequest,
    ObjectAnswer,
    ReclaimRequest,
    StatusRequest,
)
from rowtide.core.values.errors import Rejected, Unavailable, invalid
from rowtide.core.values.limits import INT64_MAX
from rowtide.stream.api.admin_request import json_answer, json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.hop_client import HopClient, Unreached
from rowtide.stream.cluster.peers import Peers, silent
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.consumption import decode_taken, encode_taken, hours

__all__ = ["ClusterOperations"]

RECLAIM_S_MAX = 25.0
"""Less than the time that a hop waits for an answer."""


class ClusterOperations:
    """The operations that an admin key may call on any worker."""

    def __init__(
        self,
        directory: Directory,
        placement: Placement,
        peers: Peers,
        hop: HopClient,
        handover: Handover,
        status: Callable[[], Awaitable[dict[str, Any]]],
    ) -> None:
        self._directory = directory
        self._placement = placement
        self._peers = peers
        self._hop = hop
        self._handover = handover
        self._status = status

    @answers("RowtideClusterStatus")
    async def status(self, identity: Identity, _body: bytes) -> bytes:
        """Return every worker's status."""
        return json_answer(await self._status())

    # Consumption.

    @answers("RowtideConsumption")
    async def consumption(self, identity: Identity, body: bytes) -> bytes:
        """Return the units per hour of ``instance``, of one ``table`` or of all tables.

        ``from`` and ``to`` are Unix seconds. An hour belongs to the range that holds its
        first second; ``to`` is exclusive.
        """
        wanted = self._read_consumption_request(
            identity, json_fields(body, {"instance", "table", "from", "to"})
        )
        whole = await self._directory.consumption.find(*astuple(wanted))
        answers = await self._peers.ask(wanted.operation, wanted.encode())
        for answer in answers.values():
            whole.add(decode_taken(answer) if isinstance(answer, bytes) else Taken())
        return json_answer(
            {"instance": wanted.instance, "hours": hours(whole), "silent": silent(answers)}
        )

    def _read_consumption_request(
        self, identity: Identity, fields: dict[str, Any]
    ) -> ConsumptionRequest:
        instance = str(fields.get("instance", identity.instance)).lower()
        if instance not in self._directory.catalog.instances:
            raise Rejected("OTSObjectNotExist", f"Instance '{instance}' does not exist.")
        table = fields.get("table")
        bounds = fields.get("from"), fields.get("to")
        if any(bound is not None and type(bound) is not int for bound in bounds):
            raise invalid("The from and to must be whole numbers of seconds.")
        if any(bound is not None and abs(bound) > INT64_MAX for bound in bounds):
            raise invalid(f"The from and to must lie within {INT64_MAX} s of 1970.")
        if table is not None and not isinstance(table, str):
            raise invalid("The table must be a name.")
        return ConsumptionRequest(instance, table, *bounds)

    @answers(ConsumptionRequest.operation)
    async def _consumption_here(self, _identity: Identity, body: bytes) -> bytes:
        wanted = ConsumptionRequest.decode(body)
        return encode_taken(await self._directory.consumption.find(*astuple(wanted)))

    # Reclaiming.

    @answers("RowtideReclaim")
    async def reclaim(self, identity: Identity, body: bytes) -> bytes:
        """Remove the hidden versions of one ``table`` of the request's instance now.

        Raises ``Unavailable`` if any shard could not be read through; the others are
        done.
        """
        name = str(json_fields(body, {"table"}).get("table", ""))
        left = {s.shard_id for s in self._directory.table(identity.instance, name).shards}
        request = ReclaimRequest(sorted(left))
        body = request.encode()
        answers = [await self._reclaim_here(identity, body)]
        replies = await self._peers.ask(request.operation, body, answer_s=RECLAIM_S_MAX)
        answers += [answer for answer in replies.values() if isinstance(answer, bytes)]
        counted = [ObjectAnswer.decode(answer).content for answer in answers]
        done = {shard: counts for content in counted for shard, counts in content.items()}
        if left := left - done.keys():
            raise Unavailable(f"Not gone through: shards {', '.join(sorted(left))}. Try again.")
        rows, ranges = (sum(counts[at] for counts in done.values()) for at in (0, 1))
        return json_answer({"table": name, "rows": rows, "ranges": ranges})

    @answers(ReclaimRequest.operation)
    async def _reclaim_here(self, _identity: Identity, body: bytes) -> bytes:
        """Reclaim in those of the shards that are open here."""
        wanted = ReclaimRequest.decode(body).shards
        done: dict[str, tuple[int, int]] = {}
        for slot in self._directory.slots():
            for owner in [slot.shards[shard] for shard in wanted if shard in slot.shards]:
                found = await slot.reclaimer.reclaim_now(owner)
                done[owner.shard.shard_id] = found.rows, found.ranges
        return ObjectAnswer(done).encode()

    @answers("RowtidePauseReclaimer")
    async def pause_reclaimer(self, identity: Identity, body: bytes) -> bytes:
        """Pause the background reclaimers until they are resumed. A restart keeps the pause."""
        return await self._set_reclaimer(identity, body, paused=True)

    @answers("RowtideResumeReclaimer")
    async def resume_reclaimer(self, identity: Identity, body: bytes) -> bytes:
        """Resume the background reclaimers."""
        return await self._set_reclaimer(identity, body, paused=False)

    async def _set_reclaimer(self, identity: Identity, body: bytes, *, paused: bool) -> bytes:
        json_fields(body, set())
        await self._placement.change(lambda _catalog, _stamp: [reclaimer_document(paused=paused)])
        return json_answer({"paused": paused})

    # Workers.

    @answers("RowtideDrain")
    async def drain(self, identity: Identity, body: bytes) -> bytes:
        """Drain a ``worker``: it hands over its slots and takes no new ones.

        ``worker`` is an address; without it, this worker is drained. A drained worker
        still answers clients, by forwarding their requests. The drain ends with
        ``undrain`` or when the worker stops.
        """
        elsewhere = self._find_address(identity, body)
        if elsewhere:
            return await self._ask(elsewhere, identity, "RowtideDrain")
        await self._handover.drain()
        return json_answer({"worker": self._peers.address, "drained": True})

    @answers("RowtideUndrain")
    async def undrain(self, identity: Identity, body: bytes) -> bytes:
        """Allow a drained ``worker`` to take slots again."""
        elsewhere = self._find_address(identity, body)
        if elsewhere:
            return await self._ask(elsewhere, identity, "RowtideUndrain")
        await self._handover.rejoin()
        return json_answer({"worker": self._peers.address, "drained": False})

    async def _ask(self, address: str, identity: Identity, operation: str) -> bytes:
        try:
            return await self._hop.call(address, identity, operation, b"{}")
        except Unreached as failure:
            message = f"Worker '{address}' does not answer."
            raise Unavailable(message, "OTSServerUnavailable") from failure

    def _find_address(self, identity: Identity, body: bytes) -> str:
        """Return the address of the worker that the request names; empty if it is this one."""
        address = str(json_fields(body, {"worker"}).get("worker", ""))
        if address in ("", self._peers.address):
            return ""
        if address not in self._peers.list_addresses():
            raise Rejected("OTSObjectNotExist", f"Worker '{address}' does not exist.")
        return address

    @answers("RowtideForgetWorker")
    async def forget_worker(self, identity: Identity, body: bytes) -> bytes:
        """Remove a dead ``worker`` from the catalog, so that no other worker calls it.

        Raises OTSParameterInvalid if it is alive: it would miss the changes of the
        others.
        """
        address = str(json_fields(body, {"worker"}).get("worker", ""))
        if address not in self._directory.catalog.workers.values():
            raise Rejected("OTSObjectNotExist", f"Worker '{address}' does not exist.")
        if await self._lives(address):
            raise invalid(f"Worker '{address}' is alive. Stop it, and it removes itself.")

        def decide(catalog: Catalog, _stamp: int) -> list[Document]:
            # A worker that restarted while we waited for an answer has another address
            # now.
            there = [name for name, at in catalog.workers.items() if at == address]
            return [worker_document(name, None) for name in there]

        await self._placement.change(decide)
        return json_answer({"worker": address})

    async def _lives(self, address: str) -> bool:
        """True if a worker answers."""
        if address == self._peers.address:
            return True
        request = StatusRequest()
        answers = await self._peers.ask(request.operation, request.encode(), among=[address])
        return isinstance(answers[address], bytes)

    # Shards.

    @answers("RowtideRepairShard")
    async def repair_shard(self, identity: Identity, body: bytes) -> bytes:
        """Report what the log of a closed ``shard`` has lost; ``accept_loss`` serves the rest."""
        fields = json_fields(body, {"shard", "accept_loss"})
        name, accept = str(fields.get("shard", "")), fields.get("accept_loss", False) is True
        found = self._directory.catalog.shards.get(name)
        if found is None:
            raise Rejected("OTSObjectNotExist", f"Shard '{name}' does not exist.")
        slot = self._directory.slot(found[1].slot)
        loss = await slot.repair(name, accept=accept)
        why = None
        if name not in slot.shards:
            why = {**slot.opening, **slot.all_closed}.get(name, "it is not open yet")
        return json_answer({**loss._asdict(), "closed": why})
