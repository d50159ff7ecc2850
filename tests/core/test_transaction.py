"""Local transactions: what is seen inside and outside, what a commit logs, what refuses."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.records import record
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.transaction_id import commit_key, decode_commit_stamp
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Rejected, StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import StreamSettings
from tests.core.shard_model import ShardModel, shown_rows, table

# Changes end at a semicolon; the columns inside and after show the partition's rows.
SCENARIOS = """
case                                        before     inside it                     sees      after     log
nothing leaves only its commit              a=1        -                             a=1       a=1       Commit
a put is seen inside, then by all           -          P a=1                         a=1       a=1       Put Commit
a put replaces                              a=1        P a=2                         a=2       a=2       Put Commit
an update merges                            a=1        U a=2                         a=2       a=2       Update Commit
a delete                                    a=1 b=2    D a                           b=2       b=2       Delete Commit
a row put and deleted                       -          P a=1; D a                    -         -         Put Delete Commit
a row deleted and put                       a=1        D a; P a=2                    a=2       a=2       Delete Put Commit
increments see each other                   a=1        U a+2; U a+3                  a=6       a=6       Update Update Commit
an increment of what was put inside         -          P a=5; U a+1                  a=6       a=6       Put Update Commit
a transfer                                  a=9 b=1    U a+-4; U b+4                 a=5 b=5   a=5 b=5   Update Update Commit
a condition sees what was written inside    -          P a=1; P? a=2                 a=2       a=2       Put Put Commit
a condition sees what was deleted inside    a=1        D a; P! a=3                   a=3       a=3       Delete Put Commit
what is refused leaves the rest             -          P a=1; P! a=9 refused; U b=2  a=1 b=2   a=1 b=2   Put Update Commit
a delete of nothing is logged as outside    -          D a                           -         -         Delete Commit
"""  # noqa: E501 - A table reads better on long lines than on broken ones.


def scenarios() -> list[object]:
    """Return the lines of the table; its columns stand two blanks apart."""
    lines = [line.replace("  ", "\t") for line in SCENARIOS.strip().splitlines()[1:]]
    split = [[part.strip() for part in line.split("\t") if part] for line in lines]
    return [pytest.param(*columns, id=case) for case, *columns in split]


def make_model(before: str) -> ShardModel:
    """Return a model with rows written one by one."""
    model = ShardModel()
    for row in before.split():
        if row != "-":
            model.write(f"P {row}")
    return model


@pytest.mark.parametrize(("before", "inside", "sees", "after", "log"), scenarios())
def test_a_transaction_is_seen_inside_and_stands_as_a_whole(
    before: str, inside: str, sees: str, after: str, log: str
) -> None:
    model = make_model(before)
    at = len(model.log)
    transaction = model.begin()
    for step in inside.split("; "):
        text, _, refused = step.partition(" refused")
        if step.endswith("refused"):
            with pytest.raises(Rejected, match="Condition check failed"):
                model.apply(transaction, text)
        elif step != "-":
            model.apply(transaction, text)
        assert refused == ""
    assert shown_rows(transaction.view) == sees
    assert model.rows() == before, "nothing shows outside"
    assert len(model.log) == at, "nothing is logged"
    model.group(transaction)
    assert model.rows() == after
    assert model.groups()[-1] == log
    assert model.replay_log().store.chunks == model.store.chunks, "rows are the fold of the log"


def test_an_answer_is_that_of_the_decision() -> None:
    model = make_model("a=1")
    transaction = model.begin()
    outcome = model.apply(transaction, "U? a+1")
    assert (outcome.read_units, outcome.write_units) == (1, 1)
    assert outcome.row, "the key was asked for"


def test_a_group_is_marked_first_to_last_with_rising_stamps() -> None:
    model = make_model("a=1")
    transaction = model.begin()
    for text in ("P b=1", "P c=1", "D a"):
        model.apply(transaction, text)
    records = model.group(transaction)
    assert [part.group for part in records] == [1, 0, 0, 2]
    assert model.stamps() == sorted(set(model.stamps()))
    (single,) = model.group(model.begin())
    assert single.group == 3


def test_a_commit_leaves_its_id_in_the_store() -> None:
    model = ShardModel()
    transaction = model.begin()
    model.group(transaction)
    stored = model.store.get(commit_key(transaction.id))
    assert stored is not None
    assert decode_commit_stamp(stored) == model.stamps()[-1]
    assert model.replay_log().store.get(commit_key(transaction.id)) == stored


def test_an_abandoned_transaction_leaves_nothing() -> None:
    model = make_model("a=1")
    transaction = model.begin()
    model.apply(transaction, "P a=2")
    model.write("U a+1")
    assert model.rows() == "a=2"
    assert model.store.get(commit_key(transaction.id)) is None


def test_other_partitions_go_on_meanwhile() -> None:
    model = ShardModel()
    transaction = model.begin()
    model.apply(transaction, "P a=1")
    model.write("P x=1", "q")
    model.write("P y=1", "q")
    model.group(transaction)
    assert model.groups() == ["Put", "Put", "Put Commit"]
    assert model.stamps() == sorted(set(model.stamps()))


def test_another_partition_key_is_out_of_scope() -> None:
    model = ShardModel()
    transaction = model.begin()
    with pytest.raises(StoreError) as refused:
        model.apply(transaction, "P a=1", "q")
    assert (refused.value.code, refused.value.message) == (
        "OTSDataOutOfRange",
        "Data out of scope of transaction. Transaction PartKey:p. Data PartKey:q",
    )


def test_a_commit_evaluated_again_comes_out_the_same() -> None:
    model = make_model("a=1")
    transaction = model.begin()
    model.apply(transaction, "U a+1")
    model.apply(transaction, "P b=7")
    first = transaction.evaluate(model.shard, model.now_us)
    model.shard.discard()
    second = transaction.evaluate(model.shard, model.now_us + 5)
    assert [part.body for part in first] == [part.body for part in second]
    assert first[0].stamp < second[0].stamp
    model.stand(second)
    assert model.rows() == "a=2 b=7"


def test_pre_images_are_those_of_the_commit() -> None:
    model = make_model("a=1")
    model.shard.state.stream = StreamSettings("t_1", 1, 24, ("v",))
    transaction = model.begin()
    model.apply(transaction, "U a+1")
    model.apply(transaction, "U a+1")
    model.group(transaction)
    bodies = [record.decode_record(value)[1] for value in model.log]
    former = [body.before for body in bodies if isinstance(body, record.UpdateBody)]
    # The second change's former value is what the first one left.
    values = [[variant.decode(cell.variant) for cell in before or ()] for before in former]
    assert values == [[1], [2]]


def auto_value(outcome: Outcome) -> int:
    """Return the AUTO_INCREMENT value of a returned key."""
    value = outcome.row.index(b"\x05\x09\x00\x00\x00\x00") + 6
    return int.from_bytes(outcome.row[value : value + 8], "little")


def test_auto_increment_rises_over_transactions_and_writes() -> None:
    model = ShardModel(table(auto=True))
    values = [auto_value(model.write("P =1"))]
    transaction = model.begin()
    values += [auto_value(model.apply(transaction, "P =1")) for _ in range(3)]
    model.now_us -= 10_000_000  # The clock goes back.
    model.group(transaction)
    values += [auto_value(model.write("P =1")) for _ in range(2)]
    assert values == sorted(set(values))
    rows = [key.decode(k[5:])[1] for k in model.store.chunks if k[:1] == b"r"]
    assert sorted(variant.decode(value) for value in rows) == values


def test_its_size_is_bounded() -> None:
    model = ShardModel(limits=Limits(transaction_bytes_max=40, transaction_changes_max=3))
    transaction = model.begin()
    model.apply(transaction, "P a=1")
    model.apply(transaction, "P b=1")
    with pytest.raises(Rejected, match=r"data size of the transaction exceeds .* limit: 40"):
        model.apply(transaction, "P c=1")
    many = ShardModel(limits=Limits(transaction_changes_max=3))
    transaction = many.begin()
    for name in "abc":
        many.apply(transaction, f"P {name}=1")
    with pytest.raises(Rejected, match=r"row changes of the transaction .* limit: 3, value: 4"):
        many.apply(transaction, "P d=1")


def test_a_group_too_large_for_a_batch_is_refused_whole() -> None:
    model = ShardModel(limits=Limits(record_bytes_max=400))
    transaction = model.begin()
    for name in "abcdef":
        model.apply(transaction, f"P {name}=1")
    with pytest.raises(Rejected, match="size of the atomic group exceeds"):
        model.group(transaction)
    model.write("P z=1")
    assert model.rows() == "z=1"


names = st.sampled_from("abc")
steps = st.one_of(
    st.builds("P {}={}".format, names, st.integers(0, 9)),
    st.builds("U {}={}".format, names, st.integers(0, 9)),
    st.builds("U {}+{}".format, names, st.integers(0, 9)),
    st.builds("D {}".format, names),
    st.builds("P! {}={}".format, names, st.integers(0, 9)),
    st.builds("P? {}={}".format, names, st.integers(0, 9)),
)


def attempt(write: Callable[[str], Outcome], text: str) -> Outcome | str:
    """Return what a client gets as its answer."""
    try:
        return write(text)
    except Rejected as error:
        return error.message


@given(st.lists(steps), st.lists(steps))
def test_a_transaction_does_what_single_writes_do(before: list[str], inside: list[str]) -> None:
    one, other = ShardModel(), ShardModel()
    for text in before:
        assert attempt(one.write, text) == attempt(other.write, text)
    transaction = one.begin()
    for text in inside:
        assert attempt(partial(one.apply, transaction), text) == attempt(other.write, text)
        assert shown_rows(transaction.view) == other.rows()
    one.group(transaction)
    assert one.rows() == other.rows()
    assert one.replay_log().store.chunks == one.store.chunks
