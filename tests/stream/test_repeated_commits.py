"""A commit is repeated after its shard has ended: the present owner of the rows has its
outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.protocol.authentication import Identity
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.transaction import find_session
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.shard.index_links import IndexLinks
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.upkeep.long_ago import LongAgo
from rowtide.stream.slot.upkeep.trim import SlotTrim
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import NOW_US, table
from tests.stream.test_owned_transactions import running

ANN = Identity("key-of-ann", "i", b"")
ID = TransactionId("s1", NOW_US, 1)
ENDED = ShardRange("s1", 0, sealed_us=NOW_US, sealed_at=9)
KEPT_S = 660.0


@dataclass(slots=True)
class OpenSlot:
    """A slot's open shards."""

    shards: dict[str, ShardOwner]
    is_foreign: bool = False

    def owner(self, shard_id: str) -> ShardOwner:
        return self.shards[shard_id]


async def find_owner(owner: ShardOwner, *heirs: ShardRange) -> ShardOwner:
    """Return the owner that answers for a transaction of a shard that others took over."""
    log = MemoryLog()
    known = CatalogOwner(log.twin(), log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await known.open(1)
    now = replace(table(), shards=heirs, ended=(ENDED,))
    await known.change(lambda _, __: [Document(TABLE, table_id(now), table_content(now))])
    slots = {heir.slot: OpenSlot({heir.shard_id: owner}) for heir in heirs}
    directory = Directory(known.catalog, cast(dict[int, Slot], slots), Limits(), lambda: NOW_US)
    return find_session(directory, ANN, str(ID)).owner


@pytest.mark.parametrize("slot", [0, 1], ids=["in its slot", "in another slot"])
async def test_the_heir_of_a_shard_is_asked(tmp_path: Path, slot: int) -> None:
    async with running(tmp_path) as owned:
        assert await find_owner(owned.owner, ShardRange("s2", slot, parents=("s1",))) is owned.owner


@dataclass(slots=True)
class Links:
    """What a trim asks of the catalog; no index needs anything."""

    forgotten: list[str] = field(default_factory=list)

    async def forget(self, shard: ShardRange) -> None:
        self.forgotten.append(shard.shard_id)

    async def pin(self, _owner: ShardOwner) -> int | None:
        return None


async def forgotten_after(path: Path, seconds: Sequence[float], *, transactions: bool) -> list[int]:
    """Return how many shards a trim has forgotten, so many seconds after the end of its shard."""
    links, now_us = Links(), [0]
    commits = LongAgo(KEPT_S, lambda: now_us[0], lambda: now_us[0] / 1_000_000)
    trim = SlotTrim(
        cast(IndexLinks, links), cast(ReshapeLinks, links), {}, lambda: now_us[0], commits
    )
    counts: list[int] = []
    async with running(path) as owned:
        owner = owned.owner
        assert await owned.write("P a=1") == "ok"
        seal = await owner.seal("{}")
        now_us[0] = seal.stamp + 1
        commits.restart()
        owner.rows.set_changelog_position(1, 0.0, flushed={"s1": seal.offset})
        ended = replace(ENDED, sealed_us=seal.stamp, sealed_at=seal.offset)
        of = replace(table(), enable_local_txn=transactions)
        for after_s in seconds:
            now_us[0] = seal.stamp + int(after_s * 1_000_000)
            commits.look()
            await trim.trim_ended(of, ended, {"s1": owner})
            counts.append(len(links.forgotten))
    return counts


async def test_a_shard_is_known_as_long_as_its_commits_may_be_repeated(tmp_path: Path) -> None:
    seconds = (1.0, KEPT_S - 1, KEPT_S + 1)
    assert await forgotten_after(tmp_path, seconds, transactions=True) == [0, 0, 1]


async def test_one_without_transactions_is_forgotten_once_it_is_flushed(tmp_path: Path) -> None:
    assert await forgotten_after(tmp_path, (1.0,), transactions=False) == [1]
