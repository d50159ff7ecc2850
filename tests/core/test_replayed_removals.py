"""A shard that folds a log holds nothing of it in memory once the rows have it."""

from __future__ import annotations

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.mutation import DELETE, IGNORE, PUT, ChangeRequest
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.limits import Limits
from tests.core.shard_model import NOW_US, Store, address, table


def shard(rows: Store) -> Shard:
    of = table()
    made = Shard("s1", of, rows, ShardState(of.options), limits=Limits())
    made.adopt_claim(1, b"ownerid8")
    return made


def take(rows: Store, of: Shard, writes: Writes) -> None:
    for key, value in writes:
        if value is None:
            rows.chunks.pop(key, None)
        else:
            rows.chunks[key] = value
    of.settle_writes(writes)


def test_chunks_that_were_removed_are_forgotten_as_those_that_were_written() -> None:
    """Each removal was counted twice and settled once: copies grew with each row deleted."""
    owner_rows, copy_rows = Store(), Store()
    owner, copy = shard(owner_rows), shard(copy_rows)
    cells = [plainbuffer.put_cell(b"c%02d" % n, variant.encode("x" * 900), None) for n in range(40)]
    for offset, kind in enumerate([PUT, DELETE, PUT, DELETE]):
        change = ChangeRequest(kind, address("wide"), cells if kind == PUT else [], IGNORE)
        evaluated = owner.evaluate(change, NOW_US + offset)
        entry = owner.encode_record(evaluated, offset)
        take(owner_rows, owner, owner.confirm([evaluated], offset))
        take(copy_rows, copy, copy.replay(offset, entry).writes)
    assert copy_rows.chunks == owner_rows.chunks
    assert not owner.view.pending()
    assert not copy.view.pending()
