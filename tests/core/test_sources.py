"""Sources' rows: each is in the logs once, in order, whatever becomes of shards and processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.records.record import CopyEntry
from rowtide.core.rows.mutation import DELETE, EXPECT_PRESENT, PUT, UPDATE, Outcome
from rowtide.core.shard.source_batch import Earlier, SourceBatch
from rowtide.core.shard.source_position import positions_of, range_of, table_of
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.limits import Limits
from tests.core.sourced_shards import Kept, Row, SourcedTable, change_of, position_of
from tests.support.searches import examples

ROOT = Path(__file__).resolve().parents[2]
LETTERS = "abcdefgh"

# A step is what a source "m" writes (row and position), or what becomes of the shards. ``wrote``
# are the positions that stand in the logs in the end.
SCENARIOS = """
case                                             steps                                  wrote
a row is written once                            a1 a1 a1                               1
a row behind the position is skipped             a5 a3 b4 a6                            5 6
positions are of the shard, not of the row       a5 b5 b6                               5 6
a restart from an earlier place repeats nothing  a1 b2 c3 a1 b2 c3 d4                   1 2 3 4
it is held over a crash                          a5 crash a5 a6                         5 6
it is found in the log alone                     a5 lose a5 a6                          5 6
both children of a split inherit it              a5 split:e a4 f4 f5 a6 f7              5 6 7
children go on apart                             a5 split:e f9 a7 f8 a8                 5 7 8 9
a merge keeps each parent's for its keys         split:e a3 f7 merge:a f5 a5 a6 f8      3 5 6 7 8
the larger hides nothing that the smaller lacks  split:e f7 merge:a a1 a2 f6            1 2 7
merged once more          split:c split:e a1 d5 f9 merge:a merge:a a2 d4 d6 f8  1 2 5 6 9
a moved shard takes it along                     a5 move:a a5 a6                        5 6
and back                                         a5 move:a a6 move:a a6 a7              5 6 7
one of two moves and comes back                  a5 split:e move:a a6 move:a merge:a f4 a6 f7  5 6 7
a child is found in the log alone                a5 split:e f6 lose a5 f5 f6 f7         5 6 7
a move is found in the log alone                 a5 move:a lose a5 a6                   5 6
"""


def scenarios() -> list[object]:
    """Return the lines of the table; its columns stand two blanks apart."""
    lines = [line.replace("  ", "\t") for line in SCENARIOS.strip().splitlines()[1:]]
    split = [[part.strip() for part in line.split("\t") if part] for line in lines]
    return [pytest.param(steps.split(), wrote.split(), id=case) for case, steps, wrote in split]


@pytest.mark.parametrize(("steps", "wrote"), scenarios())
def test_each_row_stands_once_whatever_becomes_of_shards(
    steps: list[str], wrote: list[str]
) -> None:
    table = SourcedTable()
    for step in steps:
        what, _, name = step.partition(":")
        if what == "lose":
            table.lose_disks()
        elif what == "crash":
            table.crash("a")
        elif name:
            {"split": table.split, "merge": table.merge, "move": table.move}[what](name)
        else:
            shard_id = table.shard_of(step[0]).shard_id
            table.write("m", shard_id, [(int(step[1:]), Row(step[0]))])
    assert sorted(kept.number for kept in table.list_rows()) == list(map(int, wrote))


def test_sources_do_not_know_of_each_other() -> None:
    table = SourcedTable()
    for source in ("m", "mm", "m", "n"):
        table.write(source, "s1", [(5, Row("a"))])
    assert [kept.source for kept in table.list_rows()] == ["m", "mm", "n"]


@pytest.mark.parametrize(
    ("kind", "before", "time_ms", "version"),
    [
        (PUT, [], 1000, 1000),
        (PUT, [1000], 2000, 2000),
        (PUT, [1000], 1000, 1001),
        (UPDATE, [1000], 1000, 1001),
        (UPDATE, [1000, 1000, 1000], 1000, 1003),
        (UPDATE, [5000], 1000, 5001),
        (PUT, [5000], 0, 5001),
    ],
)
def test_versions_rise_above_those_before(
    kind: int, before: list[int], time_ms: int, version: int
) -> None:
    table = SourcedTable()
    rows = [Row("a", UPDATE, earlier) for earlier in before] + [Row("a", kind, time_ms)]
    table.write("m", "s1", list(enumerate(rows, start=1)))
    assert table.versions("a")[-1] == version
    assert table.versions("a") == sorted(table.versions("a"))


def test_an_old_time_is_taken_whatever_deviation_the_table_allows() -> None:
    table = SourcedTable()
    assert table.table.options.deviation_s == 86400
    table.write("m", "s1", [(1, Row("a", PUT, 1))])
    assert table.versions("a") == [1]


def test_a_deleted_row_is_written_anew_at_its_own_time() -> None:
    table = SourcedTable()
    rows = [Row("a", PUT, 9000), Row("a", DELETE, 9001), Row("a", PUT, 50)]
    table.write("m", "s1", list(enumerate(rows, start=1)))
    assert table.versions("a") == [9000, 50]


def test_a_refused_row_holds_up_those_behind_it() -> None:
    table = SourcedTable()
    shard = table.shards["s1"]
    changes = [change_of("m", number, Row("a")) for number in (1, 2, 3)]
    changes[1].expectation = EXPECT_PRESENT
    changes[1].key = [(b"pk", variant.encode("absent"))]
    batch = SourceBatch("m", changes, [position_of(number) for number in (1, 2, 3)])
    group = batch.evaluate(shard, 10**15)
    kinds = [type(answer) for answer in batch.outcomes]
    assert kinds == [Outcome, Rejected, Unavailable]
    assert len(group) == 2, "the first row, and the position that it reaches"
    assert shard.sources.find_reached(shard.view, "m").own == position_of(1)
    # Left out, what was held up is written; the position never passed it.
    again = SourceBatch("m", [changes[0], changes[2]], [position_of(1), position_of(3)])
    assert len(again.evaluate(shard, 10**15)) == 2
    assert all(isinstance(answer, Outcome) for answer in again.outcomes)


def test_a_batch_waits_for_what_came_before_it_in_its_request() -> None:
    table = SourcedTable()
    table.split("e")
    shard = table.shards[table.shard_of("a").shard_id]
    first, other, second = [
        change_of("m", number, Row(name)) for number, name in enumerate("axb", start=1)
    ]
    earlier = Earlier([first, other], [position_of(1), position_of(2)])
    batch = SourceBatch("m", [second], [position_of(3)], earlier)
    assert batch.evaluate(shard, 10**15) == []
    assert [type(answer) for answer in batch.outcomes] == [Unavailable]
    # What another shard has of it is not for this one to say.
    assert len(SourceBatch("m", [first], [position_of(1)]).evaluate(shard, 10**15)) == 2
    assert len(batch.evaluate(shard, 10**15)) == 2
    assert [type(answer) for answer in batch.outcomes] == [Outcome]


def test_a_batch_that_is_refused_at_once_leaves_no_trace() -> None:
    table = SourcedTable()
    shard = table.shards["s1"]
    change = change_of("m", 1, Row("a"))
    change.expectation = EXPECT_PRESENT
    assert SourceBatch("m", [change], [position_of(1)]).evaluate(shard, 10**15) == []
    assert shard.sources.find_reached(shard.view, "m").all_above == b""


def test_a_batch_beyond_what_a_group_may_hold_is_written_in_part() -> None:
    table = SourcedTable()
    large = put_cell(b"w", variant.encode(b"x" * 2_000_000), None)
    changes = [change_of("m", number, Row("a")) for number in range(1, 7)]
    for change in changes:
        change.cells = [*change.cells, large]
    batch = SourceBatch("m", changes, [position_of(number) for number in range(1, 7)])
    group = batch.evaluate(table.shards["s1"], 10**15)
    written = sum(isinstance(answer, Outcome) for answer in batch.outcomes)
    assert len(group) == written + 1 == 5
    assert all(isinstance(answer, Unavailable) for answer in batch.outcomes[written:])


def test_a_row_too_large_for_any_group_is_refused_by_itself() -> None:
    table = SourcedTable()
    shard = table.shards["s1"]
    shard.limits = Limits(record_bytes_max=20_000)
    changes = [change_of("m", number, Row("a")) for number in (1, 2, 3)]
    changes[1].cells = [put_cell(b"w", variant.encode(b"x" * 12_000), None)]
    batch = SourceBatch("m", changes, [position_of(number) for number in (1, 2, 3)])
    batch.evaluate(shard, 10**15)
    assert [type(answer) for answer in batch.outcomes] == [Outcome, Rejected, Unavailable]


def test_the_page_shows_how_a_position_is_kept() -> None:
    table = SourcedTable()
    table.split("e")
    table.write("mysql", table.shard_of("f").shard_id, [(7, Row("f"))])
    [(position_key, position)] = table.stores[0].scan(*positions_of(1))
    page = (ROOT / "docs/internals/formats/chunk.md").read_text(encoding="utf-8")
    assert f"`{position_key.hex()}`, value `{position.hex()}`" in page


def test_what_is_evaluated_counts_before_it_stands_and_not_when_it_is_lost() -> None:
    table = SourcedTable()
    shard = table.shards["s1"]
    row = [change_of("m", 1, Row("a"))], [position_of(1)]
    assert len(SourceBatch("m", *row).evaluate(shard, 10**15)) == 2
    assert SourceBatch("m", *row).evaluate(shard, 10**15) == []
    shard.discard()
    assert len(SourceBatch("m", *row).evaluate(shard, 10**15)) == 2


def test_a_copy_never_lowers_a_position() -> None:
    table = SourcedTable()
    table.write("m", "s1", [(7, Row("a"))])
    low, high = positions_of(1)
    [(position_key, _)] = table.stores[0].scan(low, high)
    assert (table_of(position_key), range_of(position_key)) == (1, (b"", b""))
    shard = table.shards["s1"]
    assert shard.fold_copy([CopyEntry(position_key, position_of(6))]) == []
    assert shard.fold_copy([CopyEntry(position_key, position_of(8))]) == [
        (position_key, position_of(8))
    ]


@dataclass(slots=True)
class Source:
    """A source and the process that is it: what it gave, and up to where that was answered."""

    name: str
    given: list[Row] = field(default_factory=list)
    answered: int = 0
    checkpoint: int = 0


class SourcesMachine(RuleBasedStateMachine):
    """Sources write through anything; a request is answered, refused, or never heard of again."""

    def __init__(self) -> None:
        super().__init__()
        self.table = SourcedTable()
        self.sources = [Source("m"), Source("n")]

    names = st.sampled_from(LETTERS)
    which = st.integers(0, 1)
    given_rows = st.builds(
        Row, names, st.sampled_from((PUT, UPDATE)), st.sampled_from((0, 1000, 1001, 9000))
    )

    @rule(which=which, rows=st.lists(given_rows, max_size=6), fates=st.lists(st.integers(0, 5)))
    def write(self, which: int, rows: list[Row], fates: list[int]) -> None:
        source = self.sources[which]
        source.given += rows
        every = list(enumerate(source.given, start=1))[source.answered :]
        answered = True
        for shard_id, part in self.table.parts(every).items():
            fate = fates.pop() if fates else 5
            if fate == 0:
                answered = False  # It never came.
                continue
            self.table.write(source.name, shard_id, part, lost=fate == 1)
            answered = answered and fate > 2  # The answer of 2 is lost.
        if answered:
            source.answered = len(source.given)

    @rule(which=which)
    def keep(self, which: int) -> None:
        self.sources[which].checkpoint = self.sources[which].answered

    @rule(which=which)
    def restart_source(self, which: int) -> None:
        self.sources[which].answered = self.sources[which].checkpoint

    @rule(which=which, begin=st.integers(0, 60), count=st.integers(1, 6))
    def a_late_request_arrives(self, which: int, begin: int, count: int) -> None:
        source = self.sources[which]
        late = list(enumerate(source.given, start=1))[: source.answered][begin : begin + count]
        for shard_id, part in self.table.parts(late).items():
            self.table.write(source.name, shard_id, part)

    @rule(name=names)
    def split(self, name: str) -> None:
        self.table.split(name)

    @rule(name=names)
    def merge(self, name: str) -> None:
        self.table.merge(name)

    @rule(name=names)
    def move(self, name: str) -> None:
        self.table.move(name)

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.table.crash(name)

    @precondition(lambda self: len(self.table.every) > 1)
    @rule()
    def lose_disks(self) -> None:
        self.table.lose_disks()

    @invariant()
    def each_row_is_there_once_and_in_order(self) -> None:
        kept = self.table.list_rows()
        for source in self.sources:
            ours = [row for row in kept if row.source == source.name]
            numbers = sorted(row.number for row in ours)
            assert len(set(numbers)) == len(numbers), f"twice: {numbers}"
            missing = set(range(1, source.answered + 1)) - set(numbers)
            assert not missing, f"answered and gone: {missing}"
            for name in LETTERS:
                of_row = sorted((r for r in ours if r.name == name), key=_stamp_of)
                in_order = [row.number for row in of_row]
                assert in_order == sorted(in_order), f"out of order: {in_order}"

    @invariant()
    def versions_rise_while_a_row_is_updated(self) -> None:
        for name in LETTERS:
            versions = self.table.versions(name)
            assert versions == sorted(set(versions))


def _stamp_of(kept: Kept) -> int:
    return kept.stamp


TestSources = SourcesMachine.TestCase
TestSources.settings = settings(max_examples=examples(30, 60), stateful_step_count=30)
