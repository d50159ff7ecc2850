"""Which shards of a slot one flush writes: a table of slots, each with what their shards lack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from rowtide.core.rows import chunk
from rowtide.core.values.schema import LOCAL, Index, ShardRange, Table
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.changelog.flush_scope import SAMPLE, FlushScope, flush_scope
from tests.core.shard_model import table

INDEX = Index("by_n", 2, LOCAL, ("n", "pk"), (), 0)
TABLE = replace(table(), indexes=(INDEX,))


@dataclass
class Owner:
    """What a flush asks of a shard's owner."""

    is_complete: bool = True
    has_unflushed: bool = True
    keys: set[bytes] = field(default_factory=set)
    sizes: dict[bytes, int] = field(default_factory=dict)

    @property
    def rows(self) -> Owner:
        return self

    @property
    def ledger(self) -> Owner:
        return self

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        assert len(keys) <= SAMPLE + 1
        return [bytes(self.sizes[key]) if key in self.sizes else None for key in keys]


READY, READING, CLEAN = Owner(), Owner(is_complete=False), Owner(has_unflushed=False)


@pytest.mark.parametrize(
    ("held", "owners", "written"),
    [
        # One shard beside another: neither waits for it.
        ({"a": "a-m", "b": "m-"}, {"a": READY, "b": READY}, "ab"),
        ({"a": "a-m", "b": "m-"}, {"a": READY, "b": READING}, "a"),
        ({"a": "a-m", "b": "m-"}, {"a": READY}, "a"),
        ({"a": "a-m", "b": "m-"}, {"a": READY, "b": CLEAN}, "a"),
        # A parent "p" that has ended, and its children.
        ({"p": "-", "a": "-m", "b": "m-"}, {"p": READY, "a": READY, "b": READY}, "pab"),
        ({"p": "-", "a": "-m", "b": "m-"}, {"p": READY, "a": READY, "b": READING}, ""),
        ({"p": "-", "a": "-m", "b": "m-"}, {"p": READY, "a": READY}, ""),
        ({"p": "-", "a": "-m", "b": "m-"}, {"p": CLEAN, "a": READY}, "a"),
        ({"p": "-", "a": "-m", "b": "m-"}, {"a": READY, "b": READY}, ""),
        # Two parents that were merged, one of them split again, and a shard beside.
        (
            {"p": "-f", "q": "f-m", "c": "-m", "d": "-c", "e": "c-m", "z": "m-"},
            {"p": READY, "q": READY, "c": READY, "d": READY, "z": READY},
            "z",
        ),
        (
            {"p": "-f", "q": "f-m", "c": "-m", "d": "-c", "e": "c-m", "z": "m-"},
            {"p": CLEAN, "q": READY, "c": CLEAN, "d": READY, "z": READY},
            "dz",
        ),
    ],
)
def test_what_shares_rows_is_flushed_together_or_not_at_all(
    held: dict[str, str], owners: dict[str, Owner], written: str
) -> None:
    distinct = {shard_id: replace(owner) for shard_id, owner in owners.items()}
    scope = flush_scope(cast(dict[str, ShardOwner], distinct), places(held))
    named = {id(owner): shard_id for shard_id, owner in distinct.items()}
    assert sorted(named[id(owner)] for owner in scope.shards) == sorted(written)


def test_what_is_left_out_is_left_with_its_rows_in_local_indexes() -> None:
    owners = cast(dict[str, ShardOwner], {"a": Owner(), "b": Owner(is_complete=False)})
    scope = flush_scope(owners, places({"a": "a-m", "b": "m-"}))
    assert scope.left == [
        (chunk.table_prefix(1) + b"m", chunk.table_prefix(2)),
        (chunk.table_prefix(2) + b"m", chunk.table_prefix(3)),
    ]


def test_tables_do_not_wait_for_one_another() -> None:
    other = (replace(TABLE, table_id=7, indexes=()), ShardRange("o", 0))
    owners = cast(dict[str, ShardOwner], {"a": Owner(keys={b"1", b"2"}), "o": READING})
    scope = flush_scope(owners, [*places({"a": "-"}), other])
    assert scope.shards == [owners["a"]]
    assert scope.dirty == 2


def places(held: dict[str, str]) -> list[tuple[Table, ShardRange]]:
    """Return shards by what they hold, as in ``a-m``: from a up to m."""
    bounds = [(shard_id, text.encode().split(b"-")) for shard_id, text in held.items()]
    return [(TABLE, ShardRange(shard_id, 0, begin, end)) for shard_id, (begin, end) in bounds]


@pytest.mark.parametrize(
    ("chunks", "at_least", "at_most"),
    [
        ([], 0, 0),
        ([{}], 0, 0),
        ([{3: 100}], 300, 300),
        ([{10_000: 100}], 10**6, 10**6),
        # Half of them are removed.
        ([{5_000: 100, 5_001: 0}], 2 * 10**5, 8 * 10**5),
        ([{1_000: 10_000}, {1: 10}], 9 * 10**6, 10**7 + 10),
        # Half of them are large: an estimate, by a sample.
        ([{2_000: 10_000}, {2_001: 10}], 15 * 10**6, 25 * 10**6),
    ],
)
def test_a_sample_tells_how_much_is_to_be_flushed(
    chunks: list[dict[int, int]], at_least: int, at_most: int
) -> None:
    owners = []
    for number, counts in enumerate(chunks):
        sizes = {
            b"r%d %d %d" % (number, count, n): size
            for count, size in counts.items()
            for n in range(count)
        }
        gone = {key for key, size in sizes.items() if not size}
        left = {key: size for key, size in sizes.items() if size}
        owners.append(Owner(keys={*left, *gone}, sizes=left))
    scope = FlushScope(cast(list[ShardOwner], owners), [])
    assert at_least <= scope.dirty_bytes <= at_most


def test_the_changelog_lacks_what_any_shard_has_still_to_flush() -> None:
    """A child goes over rows that its parent deleted, and flushes after it."""
    parent, child = Owner(keys={b"deleted"}), Owner(keys={b"changed"})
    scope = FlushScope([cast(ShardOwner, parent), cast(ShardOwner, child)], [(b"m", b"p")])
    asked = (b"deleted", b"changed", b"m", b"none", b"p", b"z")
    assert [key for key in asked if scope.is_unflushed(key)] == [
        b"deleted",
        b"changed",
        b"m",
        b"none",
    ]
