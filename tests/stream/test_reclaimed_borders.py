"""What a shard reclaims, and what is noted of it as it is recovered, is the shard's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rowtide.core.protocol.plainbuffer import key_piece
from rowtide.core.records.record import Reclaim
from rowtide.core.rows.chunk import row_end, row_key, table_prefix
from rowtide.core.rows.fold import RowAddress, put_row
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import key, variant
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.upkeep.reclaimer import chunk_ranges
from tests.core.shard_model import address, table
from tests.stream.test_changelog_flush import columns
from tests.stream.test_owned_transactions import running

P = key.encode([variant.encode("p")])
BOTH = replace(table(), shards=(ShardRange("s1", 0, end=P), ShardRange("s2", 0, begin=P)))


def test_a_row_of_the_shard_beside_it_is_not_among_them(tmp_path: Path) -> None:
    """The first row of the range is gone since, so the row before it is of another shard. That
    one's rows may be ahead of its mark in the changelog: it flushes them itself, with its mark.
    """
    rows = RowStore(tmp_path)
    beside = row_key(1, key.encode([value for _, value in address("z", "o")]))
    rows.write(
        put_row(rows, RowAddress(beside, *key_piece(address("z", "o"))), columns(0, 2), 9, 1)
    )
    shard = Shard("s2", BOTH, rows, ShardState(BOTH.options), limits=Limits())
    first = key.encode([value for _, value in address("a", "p")])
    [(low, high)] = shard.find_written_ranges(b"", Reclaim(first, row_end(first), 1, 1))
    found = [chunk_key for chunk_key, _ in rows.scan(low, high)]
    rows.close()
    assert found == []


async def test_a_shard_that_arrived_before_its_table_had_it_goes_over_its_own_rows_alone(
    tmp_path: Path,
) -> None:
    """Others of its table in the slot have writes under way, of which it does not see anything."""
    moved = replace(table(), shards=(ShardRange("s0", 0, end=P), ShardRange("s1", 0, begin=P)))
    before = replace(table(), shards=(ShardRange("s0", 0, end=P), ShardRange("s9", 1, begin=P)))
    async with running(tmp_path, of=before) as owned:
        owned.owner.shard.retable(moved)
        assert chunk_ranges(owned.owner) == [(row_key(1, P), table_prefix(2))]
