"""Atomic batches: all of their changes or none; and groups in the log, whole or damaged."""

import pytest

from rowtide.core.records.record import CorruptRecord
from rowtide.core.shard.group import AtomicBatch, conflict
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from tests.core.shard_model import ShardModel, change

SCENARIOS = """
case                                   before   batch               after     log
one change is a group of its own       -        P a=1               a=1       Put
several changes are one group          a=1      U a+1; P b=2; D a   b=2       Update Put Delete
a change sees the one before           -        P a=1; P? a=2       a=2       Put Put
a refusal in the middle refuses all    a=1      P b=1; P! a=9; D a  a=1       -
a refusal at the end refuses all       -        P a=1; U? b=1       -         -
"""


def scenarios() -> list[object]:
    """Return the lines of the table; its columns stand two blanks apart."""
    lines = [line.replace("  ", "\t") for line in SCENARIOS.strip().splitlines()[1:]]
    split = [[part.strip() for part in line.split("\t") if part] for line in lines]
    return [pytest.param(*columns, id=case) for case, *columns in split]


def batch(text: str, partition: str = "p") -> AtomicBatch:
    """Return the batch of a text."""
    return AtomicBatch([change(step, partition) for step in text.split("; ")])


@pytest.mark.parametrize(("before", "changes", "after", "log"), scenarios())
def test_a_batch_stands_or_falls_as_a_whole(
    before: str, changes: str, after: str, log: str
) -> None:
    model = ShardModel()
    if before != "-":
        model.write(f"P {before}")
    at = len(model.groups())
    if log == "-":
        with pytest.raises(Rejected, match="Condition check failed"):
            model.group(batch(changes))
    else:
        model.group(batch(changes))
    assert (model.groups()[at:] or ["-"]) == [log]
    assert model.rows() == after
    assert model.replay_log().store.chunks == model.store.chunks
    model.write("P z=1")
    assert model.rows() == f"{after} z=1".removeprefix("- "), "a refused batch leaves no trace"


def test_every_change_has_its_outcome() -> None:
    model = ShardModel()
    wanted = batch("P a=1; U? a+1; D b")
    model.group(wanted)
    assert [outcome[1:] for outcome in wanted.outcomes] == [(0, 1), (1, 1), (0, 1)]


def test_a_change_without_effect_has_an_outcome_and_no_record() -> None:
    model = ShardModel()
    wanted = batch("U a; P b=1; U c")  # An update without cells creates nothing.
    model.group(wanted)
    assert model.groups() == ["Put"]
    assert len(wanted.outcomes) == 3


def test_two_partition_keys_are_out_of_scope() -> None:
    mixed = AtomicBatch([change("P a=1", "0"), change("P a=1", "0"), change("P a=1", "1")])
    with pytest.raises(StoreError) as refused:
        mixed.check_scope()
    assert (refused.value.code, refused.value.message) == (
        "OTSDataOutOfRange",
        "Data out of scope of atomic. Atomic PartKey:0. Data PartKey:1",
    )


def test_rows_of_a_refused_batch_fail_with_one_code() -> None:
    model = ShardModel()
    wanted = batch("P a=1; U? b=1; P c=1")
    with pytest.raises(Rejected) as refused:
        model.group(wanted)
    failures = [wanted.failure(index, refused.value) for index in range(3)]
    assert {error.code for error in failures} == {"OTSConditionCheckFail"}
    other = "The atomic batch is not applied, its row 1 fails: Condition check failed."
    assert [error.message for error in failures] == [other, "Condition check failed.", other]


def test_rows_that_no_row_refused_fail_alike() -> None:
    wanted = batch("P a=1; P b=1")
    busy: Unavailable = conflict()
    assert [wanted.failure(index, busy) for index in range(2)] == [busy, busy]


# Groups in the log.


def test_a_group_is_applied_when_its_last_record_is_there() -> None:
    model = ShardModel()
    model.write("P a=1")
    model.group(batch("P a=2; P b=2; P c=2"))
    entries = list(enumerate(model.log))
    half = model.replay_log(entries[:3])
    assert (half.rows(), half.shard.state.applied) == ("a=1", 0)
    rest = half.shard.replay(*entries[3])
    half.store.write(rest.writes)
    assert (half.rows(), half.shard.state.applied) == ("a=2 b=2 c=2", 3)


def test_a_group_elsewhere_is_void_whole() -> None:
    model = ShardModel()
    model.write("P a=1")
    model.group(batch("P a=2; P b=2"))
    late = [(offset + 1, value) for offset, value in enumerate(model.log)][1:]
    other = model.replay_log([(0, model.log[0]), *late])
    assert (other.rows(), other.shard.state.applied) == ("a=1", 3)


@pytest.mark.parametrize("missing", ["first", "middle", "last"])
def test_a_torn_group_is_damage(missing: str) -> None:
    model = ShardModel()
    model.group(batch("P a=2; P b=2; P c=2"))
    model.write("P d=1")
    gone = {"first": 0, "middle": 1, "last": 2}[missing]
    # A record that is void, as one of another batch would be, in the place of one of the group.
    entries = [
        (offset, model.log[3] if offset == gone else value)
        for offset, value in enumerate(model.log)
    ]
    with pytest.raises(CorruptRecord, match="has no end, or no begin"):
        model.replay_log(entries)
