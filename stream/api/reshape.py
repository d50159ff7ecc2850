"""Splitting, merging and moving shards, for operators and slots.

The catalog's owner plans a change with new shard ids that were never used. At the end it
puts the children in the parents' place. In between the parents' owner does the work
(``stream/slot/reshape/reshapes.py``). Bodies and answers are JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rowtide.core.cluster.catalog import (
    TABLE,
    Catalog,
    Document,
    reshape_document,
    table_content,
    table_id,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import (
    BeginCopyRequest,
    FinishReshapeRequest,
    ForgetShardRequest,
    NoFields,
    ObjectAnswer,
    OffsetAnswer,
    ReceivedRequest,
)
from rowtide.core.shard import reshape
from rowtide.core.shard.reshape import Reshape, Sealed, sort_ended
from rowtide.core.values import key
from rowtide.core.values.errors import Elsewhere, Unavailable, invalid, no_table
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.admin_request import json_answer, json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.partition_key import encode_partition_key, show_partition_key
from rowtide.stream.api.split_point import PIECE_BYTES_MIN, Forward, SplitPointOperations
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.logs import ShardLogs

__all__ = ["ReshapeOperations"]

DONE_S = 10.0
"""Time for which an operator's request waits for its change to be done."""

DONE_LOOK_S = 0.02

PIECES_MIN = 16
"""A shard of fewer pieces is measured row by row."""

Plan = Callable[[Table, Sequence[str], int], Reshape]
"""Makes a change of a table from new shard ids and the time."""


class ReshapeOperations:
    """Handlers by operation, and the catalog's side of the slots' work."""

    def __init__(
        self,
        directory: Directory,
        catalog: CatalogOwner,
        logs: ShardLogs,
        placement: Placement,
        splits: SplitPointOperations,
        forward: Forward,
    ) -> None:
        self._directory = directory
        self._owner = catalog
        self._logs = logs
        self._placement = placement
        self._splits = splits
        self._forward = forward

    # Operations of operators.

    @answers("RowtideListShards")
    def list_shards(self, identity: Identity, body: bytes) -> bytes:
        """Return a ``table``'s shards, ended ones too, parents first."""
        table = self._find_table(identity, json_fields(body, {"table"}))
        changes = self._owner.catalog.reshapes.values()
        under_way = {p: change.kind for change in changes for p in change.parents}
        shards = [
            _describe_shard(shard, under_way.get(shard.shard_id))
            for shard in (*sort_ended(table.ended), *table.shards)
        ]
        return json_answer({"table": table.name, "slots": self._logs.slots, "shards": shards})

    @answers("RowtideSplitShard")
    async def split_shard(self, identity: Identity, body: bytes) -> bytes:
        """Split a ``shard`` of a ``table`` in two, ``at`` a partition key or at its middle."""
        fields = json_fields(body, {"table", "shard", "at"})
        table = self._find_table(identity, fields)
        shard = open_shard(table, str(fields.get("shard", "")))
        given = fields.get("at")
        at = (
            await self.middle(table, shard)
            if given is None
            else encode_partition_key(table, str(given))
        )
        return await self.split(table, shard.shard_id, at)

    async def split(self, table: Table, name: str, at: bytes) -> bytes:
        """Split a shard at an encoded partition key."""

        def plan(now: Table, ids: Sequence[str], now_us: int) -> Reshape:
            return reshape.split(now, open_shard(now, name), at, ids, now_us)

        return await self._plan_reshape(table, plan, 2)

    @answers("RowtideMergeShards")
    async def merge_shards(self, identity: Identity, body: bytes) -> bytes:
        """Merge two adjacent ``shards`` of a ``table`` that are in one slot."""
        fields = json_fields(body, {"table", "shards"})
        table = self._find_table(identity, fields)
        names = fields.get("shards")
        if not isinstance(names, list) or len(names) != 2:
            raise invalid("The shards to merge must be two.")
        return await self.merge(table, str(names[0]), str(names[1]))

    async def merge(self, table: Table, left: str, right: str) -> bytes:
        """Merge two adjacent shards."""

        def plan(now: Table, ids: Sequence[str], now_us: int) -> Reshape:
            return reshape.merge(now, open_shard(now, left), open_shard(now, right), ids, now_us)

        return await self._plan_reshape(table, plan, 1)

    @answers("RowtideMoveShard")
    async def move_shard(self, identity: Identity, body: bytes) -> bytes:
        """Move a ``shard`` of a ``table`` to another ``slot``."""
        fields = json_fields(body, {"table", "shard", "slot"})
        table = self._find_table(identity, fields)
        slot = fields.get("slot")
        if type(slot) is not int or not 0 <= slot < self._logs.slots:
            raise invalid(f"The slot must be in range: [0, {self._logs.slots - 1}], but is {slot}.")
        return await self.move(table, str(fields.get("shard", "")), slot)

    async def move(self, table: Table, name: str, slot: int) -> bytes:
        """Move a shard to another slot."""

        def plan(now: Table, ids: Sequence[str], now_us: int) -> Reshape:
            return reshape.move(now, open_shard(now, name), slot, ids, now_us)

        return await self._plan_reshape(table, plan, 1)

    def _find_table(self, identity: Identity, fields: Mapping[str, Any]) -> Table:
        return self._directory.table(identity.instance, str(fields.get("table", "")))

    async def _plan_reshape(self, table: Table, plan: Plan, count: int) -> bytes:
        """Plan a change, and wait for at most ``DONE_S`` until it is done."""
        planned: list[Reshape] = []

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            now = catalog.tables_by_id.get(table.table_id)
            if now is None:
                raise no_table()
            ids = [f"s{catalog.next_shard + index}" for index in range(count)]
            change = plan(now, ids, stamp)
            _require_free(catalog, change)
            planned[:] = [change]
            return [reshape_document(change), catalog.counters(shards=count)]

        self._directory.require_space()
        await self._owner.change(decide)
        [change] = planned
        done = await self._wait_until_done(change)
        now = self._owner.catalog.tables_by_id.get(table.table_id)
        if now is None:
            raise no_table()  # The table was deleted meanwhile, and the change with it.
        # A restarted copy went into a shard with another id.
        made = [s for s in (*now.ended, *now.shards) if set(change.parents) <= set(s.parents)]
        children = [child.shard_id for child in (made if done else change.children)]
        answer = {"kind": change.kind, "parents": list(change.parents), "children": children}
        return json_answer({**answer, "done": done})

    async def _wait_until_done(self, change: Reshape) -> bool:
        for _ in range(int(DONE_S / DONE_LOOK_S)):
            if self.plan(change.id) is None:
                return True
            await asyncio.sleep(DONE_LOOK_S)
        return False

    async def middle(self, table: Table, shard: ShardRange) -> bytes:
        """Return the partition key at which about half of a shard's bytes begin.

        Raises OTSParameterInvalid if there is none.
        """
        identity = Identity("", table.instance.lower(), b"")
        measured = await self._splits.measure_shard(identity, table, shard, PIECE_BYTES_MIN)
        if len(measured.pieces) < PIECES_MIN:
            measured = await self._splits.measure_shard(identity, table, shard, 1)
        half = sum(piece.size for piece in measured.pieces) / 2
        found: list[tuple[float, bytes]] = []
        before = 0
        for piece in measured.pieces:
            at = key.encode(key.decode(piece.key)[:1])
            if at > shard.begin and at != key.encode(key.decode(measured.pieces[0].key)[:1]):
                found.append((abs(before - half), at))
            before += piece.size
        if not found:
            raise invalid(
                f"Shard {shard.shard_id} can't be split: it has fewer than two partition keys."
            )
        return min(found)[1]

    # Calls from slots.

    async def catalog_read(self) -> None:
        """Wait until the catalog was read to the end that it had at the start."""
        await self._owner.ready.wait()

    def list_planned(self, slot: int) -> list[Reshape]:
        """Return the changes whose parents are in a slot."""
        catalog = self._owner.catalog
        found = []
        for change in catalog.reshapes.values():
            known = catalog.shards.get(change.id)
            if known is not None and known[1].slot == slot:
                found.append(change)
        return found

    def plan(self, reshape_id: str) -> Reshape | None:
        """Return a change that is still to be done, with its present plan."""
        return self._owner.catalog.reshapes.get(reshape_id)

    def arriving(self, slot: int) -> list[tuple[Table, ShardRange]]:
        """Return the shards that are being moved to a slot."""
        catalog = self._owner.catalog
        return [
            (catalog.tables_by_id[change.table_id], child)
            for change in catalog.reshapes.values()
            for child in change.children
            if child.copied and child.slot == slot and change.copier >= 0
        ]

    def is_arriving(self, shard: ShardRange) -> bool:
        """True if a shard is still being moved to its slot."""
        return any(child == shard for _, child in self.arriving(shard.slot))

    def is_known(self, shard_id: str) -> bool:
        """True if a shard is or was part of a table. An undone plan does not count."""
        return shard_id in self._owner.catalog.shards

    def list_held(self, slot: int, number: int) -> list[ShardRange]:
        """Return a slot's present and coming shards of a table or an index, by its number."""
        table = self._owner.catalog.tables_by_id.get(number)
        if table is None:
            return []
        coming = [
            child
            for change in self._owner.catalog.reshapes.values()
            for child in change.children
            if change.table_id in (number, table.main)
        ]
        return [shard for shard in (*table.shards, *coming) if shard.slot == slot]

    def list_ended(self, slot: int) -> list[tuple[Table, ShardRange]]:
        """Return a slot's ended shards that still have a log, parents first."""
        shards = self._owner.catalog.shards.values()
        tables = {s.shard_id: table for table, s in shards if s.slot == slot and s.sealed_us}
        ended = [shard for _, shard in shards if shard.shard_id in tables]
        return [(tables[shard.shard_id], shard) for shard in sort_ended(ended)]

    async def prepare(self, change: Reshape) -> None:
        """Create the children's logs."""
        await self._logs.make(child.shard_id for child in change.children)

    async def begin_copy(self, change: Reshape, claim: int) -> Reshape:
        """Return the present plan of a move: into an empty log, by the owner with that claim."""
        request = BeginCopyRequest(change.id, claim)
        answer = await self._ask_owner(request, self.begin_copy_request)
        return reshape.reshape_of(ObjectAnswer.decode(answer).content)

    @answers(BeginCopyRequest.operation)
    async def begin_copy_request(self, _identity: Identity, body: bytes) -> bytes:
        """Answer a slot that begins to copy a shard, for the first time or again."""
        request = BeginCopyRequest.decode(body)
        begun: list[Reshape] = []
        left: list[str] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            change = catalog.reshapes.get(request.id)
            if change is None:
                raise Unavailable(f"Nothing is planned for shard {request.id} any more.")
            if request.claim < change.copier:  # A former owner, which has not read the later claim.
                raise Unavailable(f"A later owner copies shard {request.id}.")
            shard_id, count = change.children[0].shard_id, 0
            if change.copier >= 0:
                left[:] = [shard_id]
                shard_id, count = f"s{catalog.next_shard}", 1
            begun[:] = [reshape.begin_copy(change, request.claim, shard_id)]
            return [reshape_document(begun[0]), catalog.counters(shards=count)]

        await self._owner.change(decide)
        await self._logs.delete(left)
        return ObjectAnswer(reshape.reshape_content(begun[0])).encode()

    async def find_received(self, shard: ShardRange) -> int:
        """Return the last offset that the slot of an arriving shard has folded; -1 for none."""
        request = ReceivedRequest(shard.slot, shard.shard_id)
        body = request.encode()
        try:
            answer = self.find_received_request(NOBODY, body)
        except Elsewhere:
            answer = await self._forward(shard.slot, request.operation, NOBODY, body)
        return OffsetAnswer.decode(answer).offset

    @answers(ReceivedRequest.operation)
    def find_received_request(self, _identity: Identity, body: bytes) -> bytes:
        """Return the progress of a shard that arrives at one of our slots. Raises ``Elsewhere``."""
        request = ReceivedRequest.decode(body)
        return OffsetAnswer(
            self._directory.slot(request.slot).find_received(request.shard)
        ).encode()

    async def finish(self, change: Reshape, seals: Mapping[str, Sealed]) -> None:
        """Put the children in the parents' place; ``seals`` are the parents' durable seals."""
        children = [child.shard_id for child in change.children]
        request = FinishReshapeRequest(change.id, children, seals)
        await self._ask_owner(request, self.finish_request)

    @answers(FinishReshapeRequest.operation)
    async def finish_request(self, _identity: Identity, body: bytes) -> bytes:
        """Answer a slot that has sealed the parents of a change."""
        request = FinishReshapeRequest.decode(body)
        seals = {name: Sealed(*seal) for name, seal in request.seals.items()}

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            change = catalog.reshapes.get(request.id)
            if change is None or [c.shard_id for c in change.children] != request.children:
                return []  # The change is already done, or has a new plan.
            gone = reshape_document(change, gone=True)
            table = catalog.tables_by_id.get(change.table_id)
            if table is None:
                return [gone]
            changed = reshape.apply_reshape(table, change, seals)
            return [Document(TABLE, table_id(table), table_content(changed)), gone]

        await self._placement.change(decide)
        return NoFields().encode()

    async def forget(self, shard: ShardRange) -> None:
        """Remove an ended shard and its log, which no reader needs any more."""
        await self._ask_owner(ForgetShardRequest(shard.shard_id), self.forget_request)

    @answers(ForgetShardRequest.operation)
    async def forget_request(self, _identity: Identity, body: bytes) -> bytes:
        """Answer a slot with an ended shard that no reader needs any more."""
        shard_id = ForgetShardRequest.decode(body).shard
        gone: list[str] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            gone.clear()
            found = catalog.shards.get(shard_id)
            if found is None or not found[1].sealed_us:
                return []
            gone.append(shard_id)
            changed = reshape.forget_shard(found[0], shard_id)
            return [Document(TABLE, table_id(changed), table_content(changed))]

        await self._owner.change(decide)
        # Only after a write: without one, nothing proves that this catalog is the newest.
        await self._logs.delete(gone)
        return NoFields().encode()

    async def _ask_owner(
        self,
        request: BeginCopyRequest | FinishReshapeRequest | ForgetShardRequest,
        handler: Callable[[Identity, bytes], Awaitable[bytes]],
    ) -> bytes:
        """Send a request to the catalog's owner, which may be this worker; return its answer."""
        body = request.encode()
        if self._owner.is_owner:
            return await handler(NOBODY, body)
        return await self._forward(CATALOG_SLOT, request.operation, NOBODY, body)


def _require_free(catalog: Catalog, change: Reshape) -> None:
    """Raise ``Unavailable`` while one of the shards is in another change."""
    for other in catalog.reshapes.values():
        both = sorted(set(other.parents) & set(change.parents))
        if both:
            raise Unavailable(f"A {other.kind} of shard {both[0]} is under way.")


def open_shard(table: Table, name: str) -> ShardRange:
    """Return an open shard by its id. Raises OTSParameterInvalid."""
    found = table.shard(name)
    if found is None:
        raise invalid(f"Table '{table.name}' has no open shard '{name}'.")
    return found


def _describe_shard(shard: ShardRange, under_way: str | None) -> dict[str, Any]:
    """Return a shard as operators see it."""
    return {
        "shard": shard.shard_id,
        "slot": shard.slot,
        "begin": show_partition_key(shard.begin),
        "end": show_partition_key(shard.end),
        "parents": list(shard.parents),
        "state": "ended" if shard.sealed_us else under_way or "open",
        "sealed_us": shard.sealed_us or None,
    }
