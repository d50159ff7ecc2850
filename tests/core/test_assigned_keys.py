"""A source's rows whose keys the shard completes: each is there once, whatever is repeated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import RowForm
from rowtide.core.records import record
from rowtide.core.rows.mutation import PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.shard import source_row
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.source_batch import SKIPPED, SourceBatch
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange
from tests.core.shard_model import NOW_US, Store
from tests.core.sourced_shards import ASSIGNED, Row, SourcedTable, position_of
from tests.core.test_sources import SourcesMachine
from tests.support.searches import examples


def new_row(
    name: str, number: int, columns: dict[str, variant.Scalar] | None = None
) -> ChangeRequest:
    """Return the put of a row without an id."""
    cells = [
        plainbuffer.put_cell(column.encode(), variant.encode(value), None)
        for column, value in (columns or {"v": number}).items()
    ]
    key = [(b"pk", variant.encode(name)), (b"n", variant.V_AUTO_INCREMENT)]
    return ChangeRequest(PUT, key, cells)


def keys_of(table: SourcedTable) -> list[tuple[object, ...]]:
    """Return the keys in the logs with the row's number, in the order of the commits."""
    found: list[tuple[object, ...]] = []
    for log in table.logs.values():
        for value in log:
            envelope, body = record.decode_record(value)
            if isinstance(body, record.PutBody):
                name, id = map(variant.decode, body.key)
                [number] = [variant.decode(c.variant) for c in body.cells if c.name == b"v"]
                assert id == envelope.stamp
                assert {cell.version_ms for cell in body.cells} == {envelope.stamp // 1000}
                found.append((id, name, number))
    return sorted(found)


def write(table: SourcedTable, *numbers: int, name: str = "a", lost: bool = False) -> list[object]:
    """Write rows of a source with these positions; return the answers."""
    shard = table.shards[table.shard_of(name).shard_id]
    rows = [(number, Row(name)) for number in numbers]
    return [*table.write("m", shard.shard_id, rows, lost=lost).outcomes]


def test_ids_are_commit_stamps_that_rise_in_the_order_of_the_rows() -> None:
    table = SourcedTable(ASSIGNED)
    write(table, 1, 2, 3)
    write(table, 4)
    assert [number for *_, number in keys_of(table)] == [1, 2, 3, 4]


def test_a_repeat_is_answered_as_written_and_writes_nothing() -> None:
    table = SourcedTable(ASSIGNED)
    write(table, 1, 2)
    assert write(table, 1, 2) == [SKIPPED, SKIPPED]
    assert len(keys_of(table)) == 2


def test_a_repeat_writes_what_its_first_attempt_lacks() -> None:
    table = SourcedTable(ASSIGNED)
    write(table, 1, 2)
    answers = write(table, 1, 2, 3)
    assert answers[:2] == [SKIPPED, SKIPPED]
    assert answers[2] != SKIPPED
    assert [number for *_, number in keys_of(table)] == [1, 2, 3]


@pytest.mark.parametrize("event", ["nothing", "crash", "lose", "split", "merge", "move"])
def test_after_a_lost_answer_the_rows_are_found_by_their_positions(event: str) -> None:
    table = SourcedTable(ASSIGNED)
    if event == "merge":
        table.split("e")
    write(table, 1, 2)
    before = keys_of(table)
    if event == "lose":
        table.lose_disks()
    elif event != "nothing":
        name = "e" if event == "split" else "a"
        getattr(table, event)(name)
    assert write(table, 1, 2) == [SKIPPED, SKIPPED]
    assert keys_of(table) == before
    write(table, 3)
    assert [number for *_, number in keys_of(table)] == [1, 2, 3]


def test_a_batch_that_never_came_to_the_log_is_written_by_its_repeat() -> None:
    table = SourcedTable(ASSIGNED)
    write(table, 1, 2, lost=True)
    assert keys_of(table) == []
    write(table, 1, 2)
    assert [number for *_, number in keys_of(table)] == [1, 2]


def test_a_partial_batch_is_written_up_to_the_refused_row() -> None:
    table = SourcedTable(ASSIGNED)
    shard = table.shards["s1"]
    shard.limits = Limits(record_bytes_max=20_000)
    changes = [new_row("a", number) for number in (1, 2, 3)]
    changes[1] = new_row("a", 2, {"v": 2, "w": "x" * 12_000})
    positions = [position_of(number) for number in (1, 2, 3)]
    batch = SourceBatch("m", changes, positions)
    table.append(shard, batch)
    assert [type(answer) for answer in batch.outcomes] == [Outcome, Rejected, Unavailable]
    assert [number for *_, number in keys_of(table)] == [1]
    rest = SourceBatch("m", [changes[0], changes[2]], [positions[0], positions[2]])
    table.append(shard, rest)
    assert rest.outcomes[0] == SKIPPED
    assert [number for *_, number in keys_of(table)] == [1, 3]


def test_a_batch_beyond_what_a_group_may_hold_is_written_in_part() -> None:
    table = SourcedTable(ASSIGNED)
    shard = table.shards["s1"]
    changes = [new_row("a", n, {"v": n, "w": "x" * 2_000_000}) for n in range(1, 7)]
    positions = [position_of(number) for number in range(1, 7)]
    first = SourceBatch("m", changes, positions)
    table.append(shard, first)
    written = sum(isinstance(answer, Outcome) for answer in first.outcomes)
    assert 0 < written < 6
    table.append(shard, SourceBatch("m", changes, positions))
    assert [number for *_, number in keys_of(table)] == [1, 2, 3, 4, 5, 6]


def test_a_row_with_an_id_of_its_own_must_be_there() -> None:
    table = SourcedTable(ASSIGNED)
    shard = table.shards["s1"]
    change = new_row("a", 1)
    change.key[1] = (b"n", variant.encode(5))
    batch = SourceBatch("m", [change], [position_of(1)])
    table.append(shard, batch)
    [answer] = batch.outcomes
    assert isinstance(answer, Rejected)
    assert answer.code == "OTSConditionCheckFail"
    write(table, 2)
    [(id, *_)] = keys_of(table)
    change.key[1] = (b"n", variant.encode(int(str(id))))
    change.kind, change.time_ms = UPDATE, 1000
    again = SourceBatch("m", [change], [position_of(3)])
    table.append(shard, again)
    assert isinstance(again.outcomes[0], Outcome)


VALUES: st.SearchStrategy[variant.Scalar] = st.sampled_from([0, 5, 0.5, "", "x", "é", b"z"])


def pack_cells(change: ChangeRequest) -> ChangeRequest:
    """Return the change with its cells as rows of a form are read."""
    form = RowForm.of(change.cells)
    assert form is not None
    cells = form.read(plainbuffer.cells_piece(change.cells) + bytes(20), 0)
    assert cells is not None
    return replace(change, cells=cells)


def evaluate(rows: list[ChangeRequest]) -> tuple[list[Evaluated], list[object]]:
    shards = (ShardRange("s1", 0),)
    table = replace(ASSIGNED, shards=shards)
    shard = Shard("s1", table, Store(), ShardState(table.options), limits=Limits())
    batch = SourceBatch("m", rows, [position_of(number) for number in range(1, len(rows) + 1)])
    return batch.evaluate(shard, NOW_US), [*batch.outcomes]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "k", "é\0"]),
            st.dictionaries(st.sampled_from(["a", "b", "cd"]), VALUES, min_size=1),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_rows_become_the_same_in_one_step(
    rows: list[tuple[str, dict[str, variant.Scalar]]],
) -> None:
    plain = [new_row(name, 0, dict(sorted(columns.items()))) for name, columns in rows]
    in_one_step = evaluate([pack_cells(change) for change in plain])
    assert len(in_one_step[0]) == len(rows) + 1
    assert in_one_step == evaluate(plain)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(source_row, "is_plain", lambda _: False)
        assert in_one_step == evaluate([pack_cells(change) for change in plain])


class AssignedMachine(SourcesMachine):
    """Sources of new rows, through anything that befalls shards, requests and processes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SourcedTable(ASSIGNED)

    @invariant()
    def versions_rise_while_a_row_is_updated(self) -> None:
        """Ids rise instead, along each name: a reader that has passed one misses nothing."""
        keys_of(self.table)


TestAssigned = AssignedMachine.TestCase
TestAssigned.settings = settings(max_examples=examples(30, 60), stateful_step_count=30)
