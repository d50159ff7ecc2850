"""Changes of a table's shards: split one, merge two, move one to another slot.

A change is planned first (``Reshape``). The plan stays in the catalog until the change is done, so
that any owner of the parents can continue it after a crash. Then the parents' logs are sealed, one
after another. Last, the children replace the parents in the catalog's table (``apply_reshape``).

Commit stamps order parents and children: a child's stamps are above its parents' seals. Nothing
here touches a log or a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rowtide.core.values import key
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.schema import ShardRange, Table

__all__ = [
    "KINDS",
    "MERGE",
    "MOVE",
    "SPLIT",
    "Reshape",
    "Sealed",
    "apply_reshape",
    "begin_copy",
    "forget_shard",
    "heirs_of",
    "merge",
    "move",
    "plan_of",
    "reshape_content",
    "reshape_of",
    "sort_ended",
    "split",
]

SPLIT, MERGE, MOVE = "split", "merge", "move"
KINDS = (SPLIT, MERGE, MOVE)


@dataclass(frozen=True, slots=True)
class Reshape:
    """A planned change: ``parents`` end, ``children`` take over their keys.

    All parents are in one slot. ``copier`` is the claim under which a move's rows are copied, -1
    before the copy begins. Another owner starts the copy again, into a child with another id.
    """

    kind: str
    table_id: int
    parents: tuple[str, ...]
    children: tuple[ShardRange, ...]
    since_us: int
    copier: int = -1

    @property
    def id(self) -> str:
        """Return its name: its first parent, as a shard is in one change at a time."""
        return self.parents[0]


class Sealed(NamedTuple):
    """A log's seal: its offset and its commit stamp."""

    offset: int
    stamp: int


# Planning.


def split(table: Table, shard: ShardRange, at: bytes, ids: Sequence[str], now_us: int) -> Reshape:
    """Plan to split a shard at an encoded partition key, the first of the second child.

    Raises OTSParameterInvalid if the key is not inside the shard.
    """
    _require_own(table)
    if not (shard.begin < at and (not shard.end or at < shard.end)):
        raise invalid(
            f"Shard {shard.shard_id} can't be split there: the key must be above its first and "
            f"below its end."
        )
    parents = (shard.shard_id,)
    left = ShardRange(ids[0], shard.slot, shard.begin, at, parents, came=shard.came)
    right = ShardRange(ids[1], shard.slot, at, shard.end, parents, came=shard.came)
    return Reshape(SPLIT, table.table_id, parents, (left, right), now_us)


def merge(
    table: Table, left: ShardRange, right: ShardRange, ids: Sequence[str], now_us: int
) -> Reshape:
    """Plan to merge two adjacent shards of one slot. Raises OTSParameterInvalid."""
    _require_own(table)
    if right.begin < left.begin:
        left, right = right, left
    if not left.end or left.end != right.begin:
        raise invalid(f"Shards {left.shard_id} and {right.shard_id} are not adjacent.")
    if left.slot != right.slot:
        raise invalid(
            f"Shard {left.shard_id} is in slot {left.slot}, {right.shard_id} in slot {right.slot}: "
            f"move one of them first."
        )
    parents = (left.shard_id, right.shard_id)
    came = left.came or right.came
    child = ShardRange(ids[0], left.slot, left.begin, right.end, parents, came=came)
    return Reshape(MERGE, table.table_id, parents, (child,), now_us)


def move(table: Table, shard: ShardRange, slot: int, ids: Sequence[str], now_us: int) -> Reshape:
    """Plan to move a shard to another slot. Raises OTSParameterInvalid."""
    _require_own(table)
    if slot == shard.slot:
        raise invalid(f"Shard {shard.shard_id} is in slot {slot} already.")
    parents = (shard.shard_id,)
    child = ShardRange(ids[0], slot, shard.begin, shard.end, parents, copied=True, came=True)
    return Reshape(MOVE, table.table_id, parents, (child,), now_us)


def begin_copy(change: Reshape, claim: int, shard_id: str) -> Reshape:
    """Return a move whose rows are copied under ``claim`` into the shard ``shard_id``."""
    [child] = change.children
    return replace(change, copier=claim, children=(replace(child, shard_id=shard_id),))


def _require_own(table: Table) -> None:
    """Raise if the shards are not the table's own, or if an index is being built from them."""
    if table.main:
        raise invalid(f"'{table.name}' is an index: its shards can't be split, merged or moved.")
    building = next((index.name for index in table.indexes if index.building), None)
    if building is not None:
        raise Rejected(
            "OTSObjectAlreadyExist",
            f"Index '{building}' of table '{table.name}' is being built: its shards can't be "
            f"split, merged or moved before.",
        )


# Doing.


def apply_reshape(table: Table, reshape: Reshape, seals: Mapping[str, Sealed]) -> Table:
    """Return the table with the children in place of the parents, which have ``seals``."""
    ended = [
        replace(
            shard, sealed_us=seals[shard.shard_id].stamp, sealed_at=seals[shard.shard_id].offset
        )
        for shard in table.shards
        if shard.shard_id in reshape.parents
    ]
    assert len(ended) == len(reshape.parents), "the parents are open until now"
    floor = max(seal.stamp for seal in seals.values())
    children = [replace(child, floor_us=floor) for child in reshape.children]
    left = [shard for shard in table.shards if shard.shard_id not in reshape.parents]
    return _replace_shards(table, [*left, *children], (*table.ended, *ended))


def forget_shard(table: Table, shard_id: str) -> Table:
    """Return the table without an ended shard."""
    kept = tuple(shard for shard in table.ended if shard.shard_id != shard_id)
    return replace(table, ended=kept)


def _replace_shards(
    table: Table, shards: Sequence[ShardRange], ended: Sequence[ShardRange]
) -> Table:
    ordered = tuple(sorted(shards, key=lambda shard: shard.begin))
    points = tuple(key.decode(shard.begin)[0] for shard in ordered[1:])
    return replace(table, shards=ordered, ended=tuple(ended), split_points=points)


def sort_ended(ended: Sequence[ShardRange]) -> list[ShardRange]:
    """Return ended shards, parents before children."""
    return sorted(ended, key=lambda shard: (shard.sealed_us, shard.shard_id))


def heirs_of(table: Table, shard_id: str) -> list[ShardRange]:
    """Return the open shards that have a part of an ended shard's keys."""
    line = {shard_id}
    for shard in sort_ended(table.ended):
        if line.intersection(shard.parents):
            line.add(shard.shard_id)
    return [shard for shard in table.shards if line.intersection(shard.parents)]


# As stored.


def plan_of(reshape: Reshape) -> str:
    """Return the plan as text for the parents' seals."""
    return json.dumps(reshape_content(reshape), separators=(",", ":"), sort_keys=True)


def reshape_content(reshape: Reshape) -> dict[str, Any]:
    """Return the plan as a document for the catalog."""
    return {
        "kind": reshape.kind,
        "table": reshape.table_id,
        "parents": list(reshape.parents),
        "children": [
            {
                "shard": child.shard_id,
                "slot": child.slot,
                "begin": child.begin.hex(),
                "end": child.end.hex(),
                "came": child.came,
            }
            for child in reshape.children
        ],
        "since_us": reshape.since_us,
        "copier": reshape.copier,
    }


def reshape_of(content: dict[str, Any]) -> Reshape:
    """Return the plan of a catalog document or of a seal."""
    parents = tuple(content["parents"])
    children = tuple(
        ShardRange(
            child["shard"],
            child["slot"],
            bytes.fromhex(child["begin"]),
            bytes.fromhex(child["end"]),
            parents,
            copied=content["kind"] == MOVE,
            came=child["came"],
        )
        for child in content["children"]
    )
    return Reshape(
        content["kind"],
        content["table"],
        parents,
        children,
        content["since_us"],
        content["copier"],
    )
