"""Of which closed shards the logs are looked at again, and when they were closed by mistake."""

from __future__ import annotations

import pytest

from rowtide.core.records.record import CorruptRecord
from rowtide.stream.shard.appender import LogShortened
from rowtide.stream.slot.reshape.closed_shards import ClosedShards

SHORT, CORRUPT = LogShortened("s ends at 3"), CorruptRecord("s, offset 3")


@pytest.mark.parametrize(
    ("closed", "whole", "mistaken"),
    [
        ({}, set(), False),
        ({"s1": SHORT}, set(), False),
        ({"s1": SHORT}, {"s1"}, True),
        ({"s1": SHORT, "s2": SHORT}, {"s2"}, False),  # It may have come of the other.
        ({"s1": SHORT, "s2": SHORT}, {"s1", "s2"}, True),
        ({"s1": CORRUPT}, {"s1"}, False),  # A log's ends do not show its content.
        ({"s1": SHORT, "s2": CORRUPT}, {"s1", "s2"}, False),
    ],
)
async def test_shards_were_closed_by_mistake_where_no_log_lacks_anything(
    closed: dict[str, LogShortened | CorruptRecord], whole: set[str], *, mistaken: bool
) -> None:
    async def has_all_entries(shard_id: str) -> bool:
        return shard_id in whole

    shards = ClosedShards()
    for shard_id, error in closed.items():
        shards.close(shard_id, error)
    assert await shards.can_reopen(has_all_entries) is mistaken
    assert dict(shards) == {shard_id: str(error) for shard_id, error in closed.items()}


async def test_a_shard_that_was_repaired_does_not_count() -> None:
    async def has_all_entries(shard_id: str) -> bool:
        return shard_id == "s1"

    shards = ClosedShards()
    shards.close("s1", SHORT)
    shards.close("s2", SHORT)
    assert not await shards.can_reopen(has_all_entries)
    del shards["s2"]
    assert await shards.can_reopen(has_all_entries)


def test_those_that_the_catalog_does_not_know_are_forgotten() -> None:
    shards = ClosedShards()
    shards.close("s1", SHORT)
    shards.close("s2", CORRUPT)
    shards.keep({"s2", "s3"})
    assert shards.keys() == {"s2"}
