"""A plain put of a row that the shard numbers gives the bytes that the general path gives.

Only kernels decode plain rows, so there is one way without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.client.wire_row import Key, Put, Special, encode_row
from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.rows.mutation import PUT, RETURN_KEY, RETURN_NOTHING, ChangeRequest
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.numbered_row import fold_numbered
from rowtide.core.shard.plain_write import WireCells, decode_plain
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import GLOBAL, INTEGER, LOCAL, STRING, Index, KeyColumn, Table
from tests.core.shard_model import ShardModel, table

pytestmark = pytest.mark.skipif(native.kind() != "native", reason="kernels decode plain rows")

INTEGER_COLUMN, STRING_COLUMN = 1, 4
KEY = (KeyColumn("pk", STRING), KeyColumn("room", INTEGER), KeyColumn("n", INTEGER, True))
DEFINED = (("m", STRING_COLUMN), ("k", INTEGER_COLUMN))
BY_M = Index("by_m", 2, LOCAL, ("pk", "m", "room", "n"), (), 1)
BY_K = Index("by_k", 3, GLOBAL, ("k", "pk", "room", "n"), (), 1)
BY_ROOM = Index("by_room", 4, LOCAL, ("pk", "room", "n"), (), 1)
WITH_K = Index("with_k", 5, LOCAL, ("pk", "m", "room", "n"), ("k",), 1)
INDEXES = {
    "no index": (),
    "a local index": (BY_M,),
    "a global index": (BY_K,),
    "an index of key columns": (BY_ROOM,),
    "an index with another column": (WITH_K,),
    "all indexes": (BY_M, BY_K, BY_ROOM, WITH_K),
}

values = st.one_of(st.integers(-9, 9), st.text(max_size=3), st.binary(max_size=3), st.booleans())
rows = st.dictionaries(st.sampled_from(["m", "k", "text", "x"]), values, max_size=4)


def table_of(indexes: Sequence[Index]) -> Table:
    return replace(table(), key=KEY, defined_columns=DEFINED, indexes=tuple(indexes))


def evaluate(of: Table, buffer: bytes, return_type: int, *, plain: bool) -> Evaluated | str:
    """Return a row as a shard evaluates it, or the rejection."""
    row = decode_plain(buffer, Limits()) if plain else plainbuffer.decode_row(buffer)
    assert row is not None
    assert isinstance(row.cells, WireCells) == plain
    model = ShardModel(of)
    change = ChangeRequest(PUT, row.key, row.cells, return_type=return_type)
    try:
        done = model.shard.evaluate(change, model.now_us)
    except StoreError as error:
        return f"{error.code} {error.message}"
    model.stand([done])
    assert model.replay_log().store.chunks == model.store.chunks
    return done


@pytest.mark.parametrize("indexes", INDEXES.values(), ids=list(INDEXES))
@given(columns=rows, return_type=st.sampled_from([RETURN_NOTHING, RETURN_KEY]))
def test_both_ways_give_the_same_bytes(
    indexes: Sequence[Index], columns: dict[str, int | str | bytes | bool], return_type: int
) -> None:
    key: Key = [("pk", "p"), ("room", 7), ("n", Special.AUTO_INCREMENT)]
    puts = [Put(name, value) for name, value in sorted(columns.items())]
    buffer = encode_row(key, [*puts, Put("z", 1.5)])
    of = table_of(indexes)
    general = evaluate(of, buffer, return_type, plain=False)
    assert evaluate(of, buffer, return_type, plain=True) == general


def test_a_row_with_a_number_of_its_own_is_left_to_the_shard() -> None:
    buffer = encode_row([("pk", "p"), ("room", 7), ("n", 5)], [Put("z", 1)])
    row = decode_plain(buffer, Limits())
    assert row is not None
    model = ShardModel(table_of(()))
    shard = model.shard
    change = ChangeRequest(PUT, row.key, row.cells)
    assert fold_numbered(change, model.table, shard.keys, shard.state, shard.indexes, 1) is None
