"""What a slot reads of shards that have ended, and whom it takes for the owner of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from rowtide.core.records.record import CorruptRecord
from rowtide.core.shard.reshape import Reshape, Sealed
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.opening.opening_shards import OpeningShards
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape import reshapes as slot_reshapes
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from tests.core.shard_model import table

ROWS = cast(RowStore, None)


def make_ended(shard_id: str, *parents: str) -> ShardRange:
    """Return a shard that has ended, after those with lower numbers."""
    return ShardRange(shard_id, 0, parents=parents, sealed_us=int(shard_id[1:]), sealed_at=9)


class Around:
    """The catalog, in which these shards have ended, and what opens them."""

    def __init__(self, *shards: ShardRange) -> None:
        self.shards = shards
        self.read: list[str] = []
        self.away: set[str] = set()
        """Those of them whose logs do not answer."""

    def list_ended(self, _slot: int) -> list[tuple[Table, ShardRange]]:
        return [(table(), shard) for shard in self.shards]

    def is_known(self, shard_id: str) -> bool:
        return any(shard.shard_id == shard_id for shard in self.shards)

    async def open_ended(
        self, of: Table, shard: ShardRange, _rows: RowStore, _others: object
    ) -> ShardOwner:
        if shard.shard_id in self.away:
            raise Unavailable(f"{shard.shard_id} has no leader")
        self.read.append(shard.shard_id)
        return owner_of(shard.shard_id)


def owner_of(shard_id: str) -> ShardOwner:
    """Return a substitute for a sealed shard's owner."""
    state = SimpleNamespace(seal=Sealed(9, 9))
    return cast(ShardOwner, SimpleNamespace(shard=SimpleNamespace(shard_id=shard_id, state=state)))


def reshapes(around: Around, begun: Collection[str] = ()) -> SlotReshapes:
    """Return those of slot 0, of which no shard is open, and some are being opened."""

    async def seal(*_of: Any) -> Sealed:
        raise AssertionError("it was sealed before")

    links, opener = cast(ReshapeLinks, around), cast(ShardOpener, around)
    shards = SlotShards(begun=cast(OpeningShards, begun))
    return SlotReshapes(
        0, links, opener, shards, seal=seal, log_of=cast(Any, None), counts=Counts()
    )


async def test_what_came_of_a_shard_is_not_read_while_that_one_still_is() -> None:
    """A worker that was stopped as it opened s1 learns that others have ended it, and what came of
    it: their entries lie above those of s1 that it has not read, which would be passed over."""
    around = Around(
        make_ended("s1"),
        make_ended("s2"),
        make_ended("s3", "s1"),
        make_ended("s4", "s3"),
        make_ended("s5", "s2"),
    )
    begun = {"s1"}
    of = reshapes(around, begun)
    await of.open_ended(ROWS)
    assert around.read == ["s2", "s5"]
    with pytest.raises(Unavailable, match="s4"):
        await of.require_parents(ShardRange("s6", 0, parents=("s4",)), ROWS)
    begun.clear()
    of.ended["s1"] = owner_of("s1")
    await of.open_ended(ROWS)
    assert around.read == ["s2", "s5", "s3", "s4"]


async def test_a_shard_that_can_not_be_read_holds_up_only_what_came_of_it() -> None:
    around = Around(
        make_ended("s1"), make_ended("s2"), make_ended("s3", "s1"), make_ended("s4", "s2")
    )
    around.away.add("s1")
    of = reshapes(around)
    with pytest.raises(Unavailable, match="s1 has no leader"):
        await of.open_ended(ROWS)
    assert around.read == ["s2", "s4"]
    await of.require_parents(ShardRange("s5", 0, parents=("s4",)), ROWS)
    with pytest.raises(Unavailable, match="s3"):
        await of.require_parents(ShardRange("s6", 0, parents=("s3",)), ROWS)
    around.away.clear()
    await of.require_parents(ShardRange("s6", 0, parents=("s3",)), ROWS)
    assert around.read == ["s2", "s4", "s1", "s3"]


class Copying:
    """A copy of which all is in the log, while writes go on, and the slot that is to fold it."""

    def __init__(self, folded: Iterable[int], *, planned: int) -> None:
        self.end = 100
        self._folded = iter(folded)
        self._left = planned

    async def delta(self) -> int:
        self.end += 1
        return 1

    async def find_received(self, _child: ShardRange) -> int:
        return next(self._folded)

    def plan(self, _of: str) -> Reshape | None:
        self._left -= 1
        return MOVED if self._left > 0 else None


MOVED = Reshape("move", 1, ("s1",), (ShardRange("s2", 1),), 1)
ROUNDS = 3


async def caught_up(copying: Copying) -> None:
    """Wait until a slot has folded what is copied, or has had its rounds."""
    of = reshapes(cast(Around, copying))
    with patch.multiple(slot_reshapes, ROUND_S=0.0, ROUNDS_MAX=ROUNDS):
        await of._catch_up(cast(ShardCopy, copying), MOVED, MOVED.children[0])


async def test_a_move_waits_for_a_slot_that_folds_nothing() -> None:
    never = repeat(-1)
    with pytest.raises(Unavailable, match="plan of the move"):
        await caught_up(Copying(never, planned=50 * ROUNDS))
    stopped = chain((1, 2), repeat(2))
    with pytest.raises(Unavailable, match="plan of the move"):
        await caught_up(Copying(stopped, planned=50 * ROUNDS))


async def test_a_move_goes_on_where_a_slot_folds_more_slowly_than_is_written() -> None:
    await caught_up(Copying(count(1), planned=50 * ROUNDS))


async def test_a_move_goes_on_once_a_slot_has_folded_what_there_is() -> None:
    await caught_up(Copying(chain(repeat(-1, 10 * ROUNDS), (200,)), planned=50 * ROUNDS))


async def test_a_shard_that_was_opened_again_and_had_ended_is_not_sealed_by_its_former_owner() -> (
    None
):
    """What was copied was noted by the former one, which knows of no seal."""
    of = reshapes(Around())
    former, again = owner_of("s1"), owner_of("s1")
    former.shard.state.seal = None
    of.ended["s1"] = again
    change = Reshape("move", 1, ("s1",), (ShardRange("s2", 1),), 1)
    with pytest.raises(Unavailable, match="again"):
        await of._seal_parent(former, change)
    assert await of._seal_parent(again, change) == Sealed(9, 9)


@pytest.mark.parametrize(
    ("parents", "known", "marked", "expected"),
    [
        ((), (), False, False),  # All it has is in its own log.
        (("s1",), ("s1",), False, False),  # What it left is read, or the shard stays closed.
        (("s1",), (), True, False),  # The flush of its mark came after the flush of its parents.
        (("s1",), (), False, True),
        (("s1", "s2"), ("s1",), False, True),
    ],
)
def test_what_a_forgotten_shard_left_is_in_the_changelog_or_was_not_read(
    parents: tuple[str, ...], known: tuple[str, ...], *, marked: bool, expected: bool
) -> None:
    rows = cast(RowStore, SimpleNamespace(find_flushed=lambda _shard_id: 7 if marked else -1))
    open_ = [(table(), ShardRange("s3", 0, parents=parents))]
    of = reshapes(Around(*map(make_ended, known)))
    assert of.has_only_changelog(rows, open_) is expected


class Unreadable:
    """A move that is planned for two checks, into a log that cannot be read."""

    def __init__(self) -> None:
        self.looks = 0

    def plan(self, _of: str) -> Reshape | None:
        self.looks += 1
        return replace(MOVED, copier=5) if self.looks < 3 else None

    async def prepare(self, _of: Reshape) -> None:
        raise CorruptRecord("bytes of another version")


async def test_a_move_whose_log_can_not_be_read_ends_no_worker() -> None:
    """The slot's tasks ended by it, and with them each worker that took the slot over."""
    links = Unreadable()
    of = reshapes(cast(Around, links))
    of.ended["s1"] = owner_of("s1")
    with patch.multiple(slot_reshapes, RETRY_S=0.0):
        await of._carry("s1", 7)
    assert links.looks == 3
