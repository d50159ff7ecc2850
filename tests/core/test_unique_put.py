"""A put of a new row, unless a local index has a row like it: one step over the evaluated rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows.mutation import DELETE, PUT, RETURN_KEY, ChangeRequest
from rowtide.core.shard.unique_put import UniquePut, find_unique_index
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.core.values.schema import GLOBAL, INTEGER, LOCAL, STRING, Index, KeyColumn, Table
from rowtide.core.values.variant import Scalar
from tests.core.shard_model import ShardModel, table

TEXT = 4
"""The number of the type of texts among defined columns."""

INDEX = Index("by_message", 2, LOCAL, ("pk", "message", "room", "n"), (), 1)
ROOMS: Table = replace(
    table(),
    key=(KeyColumn("pk", STRING), KeyColumn("room", INTEGER), KeyColumn("n", INTEGER, True)),
    defined_columns=(("message", TEXT),),
    indexes=(INDEX,),
)


def put(message: Scalar | None, *, partition: str = "p", room: int = 1) -> UniquePut:
    """Return a put of a message into a room."""
    key = [(b"pk", variant.encode(partition)), (b"room", variant.encode(room))]
    cells = [plainbuffer.put_cell(b"v", variant.encode(7), None)]
    if message is not None:
        cells.insert(0, plainbuffer.put_cell(b"message", variant.encode(message), None))
    row = [*key, (b"n", variant.V_AUTO_INCREMENT)]
    return UniquePut(ChangeRequest(PUT, row, cells, return_type=RETURN_KEY), INDEX)


def key_of(done: UniquePut) -> list[Scalar]:
    """Return the key of the stored row, as the client gets it."""
    row = plainbuffer.decode_row(plainbuffer.HEADER + done.outcome.row)
    return [variant.decode(value) for _, value in row.key]


def delete(model: ShardModel, done: UniquePut) -> None:
    """Delete the stored row."""
    names = (b"pk", b"room", b"n")
    row = list(zip(names, map(variant.encode, key_of(done)), strict=True))
    model.stand([model.shard.evaluate(ChangeRequest(DELETE, row, []), model.now_us)])


def test_of_equal_puts_only_the_first_adds_a_row() -> None:
    model = ShardModel(ROOMS)
    first, second, third = put("m"), put("m"), put("m")
    pending = first.evaluate(model.shard, model.now_us)
    assert second.evaluate(model.shard, model.now_us) == [], "it sees a row that is not stored yet"
    model.stand(pending)
    assert model.group(third) == []
    assert [one.is_new for one in (first, second, third)] == [True, False, False]
    assert key_of(first) == key_of(second) == key_of(third)
    assert [one.outcome[1:] for one in (first, second, third)] == [(1, 1), (1, 0), (1, 0)]
    assert model.groups() == ["Put"]
    assert model.replay_log().store.chunks == model.store.chunks


def test_a_put_behind_a_void_one_adds_the_row_itself() -> None:
    model = ShardModel(ROOMS)
    first, second = put("m"), put("m")
    first.evaluate(model.shard, model.now_us)
    second.evaluate(model.shard, model.now_us)
    model.shard.discard()  # The log refused the first one's place: both are evaluated again.
    assert len(model.group(second)) == 1
    assert (second.is_new, model.group(first), first.is_new) == (True, [], False)
    assert key_of(first) == key_of(second)


@pytest.mark.parametrize("other", [{"partition": "q"}, {"room": 2}])
def test_rows_that_differ_in_another_column_of_the_key_are_not_alike(other: dict[str, str]) -> None:
    model = ShardModel(ROOMS)
    puts = [put("m"), put("m", **other), put("k")]  # type: ignore[arg-type]
    assert [len(model.group(one)) for one in puts] == [1, 1, 1]
    assert len({tuple(key_of(one)) for one in puts}) == 3


def test_a_row_that_was_deleted_can_be_put_again() -> None:
    model = ShardModel(ROOMS)
    first, again = put("m"), put("m")
    model.group(first)
    delete(model, first)
    model.group(again)
    assert again.is_new
    assert key_of(again) > key_of(first)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (None, "Column 'message' of index 'by_message' is missing"),
        (5, "INTEGER"),
        ("x" * 2000, "exceeds the MaxLength:1024"),
    ],
)
def test_a_row_that_the_index_cannot_have_is_rejected(message: Scalar | None, words: str) -> None:
    model = ShardModel(ROOMS)
    with pytest.raises(Rejected, match=words):
        model.group(put(message))
    assert model.log == []


def test_a_shard_without_the_index_or_the_key_rejects_for_now() -> None:
    with pytest.raises(Unavailable, match="does not have index 'by_message' at present"):
        ShardModel(replace(ROOMS, indexes=())).group(put("m"))
    model = ShardModel(ROOMS)
    model.shard.keys = (b"\xf0", b"")
    with pytest.raises(Unavailable):
        model.group(put("m"))


@pytest.mark.parametrize(
    ("of", "name", "code"),
    [
        (ROOMS, "other", "OTSObjectNotExist"),
        (replace(ROOMS, indexes=(replace(INDEX, kind=GLOBAL),)), INDEX.name, "OTSParameterInvalid"),
        (replace(table(), indexes=(INDEX,)), INDEX.name, "OTSParameterInvalid"),
        (
            replace(ROOMS, indexes=(replace(INDEX, key=("pk", "n", "message", "room")),)),
            INDEX.name,
            "OTSParameterInvalid",
        ),
    ],
)
def test_an_index_must_be_local_and_end_with_the_assigned_column(
    of: Table, name: str, code: str
) -> None:
    with pytest.raises(StoreError) as refused:
        find_unique_index(of, name)
    assert refused.value.code == code
    assert find_unique_index(ROOMS, INDEX.name) is INDEX
