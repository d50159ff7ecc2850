"""When numbers include everything that was acknowledged before a moment."""

from __future__ import annotations

from typing import cast

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import ChangePage, SourceShard
from rowtide.core.records.change import UPDATE, Change, ChangeTable
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.dashboards.runtime.fresh import FreshWish
from rowtide.dashboards.runtime.state_rows import PartPosition

TABLE = ChangeTable("orders", (b"id",))
WHOLE = ((b"", b""),)


class Logs:
    """Logs of shards: where each ends, and at which offsets it has changes."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.changes: dict[str, set[int]] = {name: set() for name in ends}
        self.reads = 0

    def add(self, shard: str, *, changes: int = 0, hidden: int = 0) -> None:
        """Append records: changes first, then what no reader sees."""
        end = self.ends.setdefault(shard, 0)
        self.changes.setdefault(shard, set()).update(range(end, end + changes))
        self.ends[shard] = end + changes + hidden

    async def shards(self) -> list[SourceShard]:
        return [SourceShard(name, (), b"", b"") for name in self.ends]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        assert since_us is not None, "the end is asked for"
        return at(shard_id, self.ends[shard_id]).position

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        self.reads += 1
        place = decode_position(position)
        later = sorted(n for n in self.changes[place.shard_id] if n >= place.offset)[:limit]
        found = [Change(UPDATE, TABLE, place.shard_id, number, number) for number in later]
        return ChangePage(found, position, not found)


def at(shard: str, offset: int, *, pending: bool = False) -> PartPosition:
    position = encode_position(Position(shard, 1, offset))
    return PartPosition(position, offset, WHOLE if pending else ())


async def wish_for(logs: Logs) -> FreshWish:
    wish = FreshWish(cast("ApiSource", logs))
    await wish.begin()
    return wish


async def test_numbers_at_the_end_include_everything() -> None:
    wish = await wish_for(Logs(a=5, b=7))
    assert await wish.is_met({"a": at("a", 5), "b": at("b", 9)})


async def test_a_shard_that_is_behind_or_not_begun_is_waited_for() -> None:
    logs = Logs(a=5)
    logs.add("a", changes=2)
    wish = await wish_for(logs)
    assert not await wish.is_met({})
    assert not await wish.is_met({"a": at("a", 6)})
    assert await wish.is_met({"a": at("a", 7)})


async def test_rows_that_are_not_read_yet_are_waited_for() -> None:
    wish = await wish_for(Logs(a=5))
    assert not await wish.is_met({"a": at("a", 5, pending=True)})


async def test_records_that_no_reader_sees_are_not_waited_for() -> None:
    logs = Logs(a=5)
    logs.add("a", hidden=3)
    wish = await wish_for(logs)
    assert await wish.is_met({"a": at("a", 5)})


async def test_what_came_after_the_wish_is_not_waited_for() -> None:
    logs = Logs(a=5)
    wish = await wish_for(logs)
    logs.add("a", hidden=1, changes=4)
    assert await wish.is_met({"a": at("a", 5)})


async def test_a_position_is_looked_at_once() -> None:
    logs = Logs(a=5)
    logs.add("a", changes=2)
    wish = await wish_for(logs)
    for _ in range(10):
        assert not await wish.is_met({"a": at("a", 5)})
    assert logs.reads == 1


async def test_children_of_a_split_that_the_list_lacked_are_waited_for() -> None:
    logs = Logs(a=5)
    wish = await wish_for(logs)
    logs.add("child", changes=1)
    assert not await wish.is_met({"a": at("a", 5)})
    assert not await wish.is_met({"a": at("a", 5), "child": at("child", 0)})
    assert await wish.is_met({"a": at("a", 5), "child": at("child", 1)})


async def test_another_build_that_is_further_back_is_looked_at_again() -> None:
    logs = Logs(a=5)
    logs.add("a", changes=1)
    wish = await wish_for(logs)
    logs.add("late", changes=1)
    # The first build has all of shard a, and nothing of the new shard.
    assert not await wish.is_met({"a": at("a", 6)})
    assert not await wish.is_met({"a": at("a", 5), "late": at("late", 1)})
