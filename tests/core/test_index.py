"""Indexes agree with their table, whatever is written, built, followed twice or replayed.

One machine writes rows in every way there is, creates and drops indexes in between, and lets slices
of old rows be gone through and slices of the log be followed. What an index holds is compared with
a plain function of the table's visible rows, at the offset that the index has reached.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rowtide.core.protocol.plainbuffer import delete_cell, increment_cell, put_cell
from rowtide.core.records.record import IndexBuild
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE, ChangeRequest
from rowtide.core.shard import shard_index
from rowtide.core.shard.group import AtomicBatch, Transaction
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import GLOBAL, LOCAL, Index
from tests.core.indexed_shard import Follower, IndexedShard, Rows, rows_of
from tests.core.shard_model import NOW_US, address
from tests.support.searches import examples

VERSIONS = [None, None, *(NOW_US // 1000 + shift for shift in (-1, 0, 1))]
LARGE = "x" * 12_000
"""Three of these make a row of two chunks, in the table and in an index that keeps them."""

VALUES = {
    b"n": st.sampled_from([1, 2, 3, "another type"]),
    b"s": st.sampled_from(["a", "b", "a" * 9, 7]),
    **{name: st.sampled_from(["small", LARGE, LARGE]) for name in (b"k1", b"k2", b"k3")},
    b"o": st.just("no index looks at it"),
}


def put_cells(name: bytes) -> st.SearchStrategy[Cell]:
    return st.builds(
        lambda value, version: put_cell(name, variant.encode(value), version),
        VALUES[name],
        st.sampled_from(VERSIONS),
    )


def update_cells(name: bytes) -> st.SearchStrategy[Cell]:
    removed = st.builds(lambda version: delete_cell(name, version), st.sampled_from(VERSIONS))
    added = st.just(increment_cell(name, variant.encode(1)))
    return st.one_of(put_cells(name), removed, *([added] if name == b"n" else []))


@st.composite
def changes(draw: st.DrawFn, partition: str | None = None) -> ChangeRequest:
    kind = draw(st.sampled_from([PUT, UPDATE, UPDATE, UPDATE, DELETE]))
    row = address(draw(st.sampled_from("abc")), partition or draw(st.sampled_from("pq")))
    if kind == DELETE:
        return ChangeRequest(kind, row, [])
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True))
    cells = put_cells if kind == PUT else update_cells
    return ChangeRequest(kind, row, [draw(cells(name)) for name in sorted(names)])


partitions = st.sampled_from("pq")
KEYS = {LOCAL: (("pk", "n"), ("pk", "s", "n"), ("pk", "name")), GLOBAL: (("n",), ("s", "n"))}
kinds = st.sampled_from([LOCAL, GLOBAL])
outcomes = st.sampled_from([True, True, True, False])
"""Whether the log takes what was evaluated."""


class IndexMachine(RuleBasedStateMachine):
    """A table, its local indexes, and the shards of its global ones."""

    def __init__(self) -> None:
        super().__init__()
        self.source = IndexedShard()
        self.created: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        """Offsets of the log: where indexes were created, and from which on they have all rows."""
        self.followers: dict[int, Follower] = {}
        self.open: dict[str, Transaction] = {}

    @initialize(some=st.lists(changes(), min_size=1, max_size=12), columns=st.integers(0, 2))
    def begin_with_rows(self, some: list[ChangeRequest], columns: int) -> None:
        """Write what no index checks yet, then create one of each kind."""
        self.write(some, stands=True)
        self.create(LOCAL, columns, base=True)
        self.create(GLOBAL, columns, base=True)

    # Writing.

    def free(self, change: ChangeRequest) -> bool:
        """True if no transaction holds the partition key."""
        return str(variant.decode(change.key[0][1])) not in self.open

    @rule(some=st.lists(changes(), min_size=1, max_size=5), stands=outcomes)
    def write(self, some: list[ChangeRequest], stands: bool) -> None:
        """Write changes that wait together; the log takes them or does not."""
        evaluated = []
        for change in filter(self.free, some):
            try:
                evaluated.append(self.source.evaluate(change))
            except Rejected:
                continue
        if stands:
            self.source.stand(evaluated)
        else:
            self.source.shard.discard()

    @rule(data=st.data(), partition=partitions)
    def write_atomically(self, data: st.DataObject, partition: str) -> None:
        some = data.draw(st.lists(changes(partition), min_size=1, max_size=4))
        if partition not in self.open:
            try:
                batch = AtomicBatch(some).evaluate(self.source.shard, self.source.tick())
            except Rejected:
                return
            self.source.stand(batch)

    @rule(partition=partitions)
    def begin(self, partition: str) -> None:
        if partition not in self.open:
            held = TransactionId("s1", self.source.tick(), len(self.source.model.log))
            self.open[partition] = Transaction(
                held, variant.encode(partition), self.source.shard, expires_s=60.0
            )

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def write_within(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.open)))
        change = data.draw(changes(partition))
        try:
            self.open[partition].apply(self.source.shard, change, self.source.tick())
        except Rejected:
            return

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        partition = data.draw(st.sampled_from(sorted(self.open)))
        held = self.open.pop(partition)
        if commits:
            self.source.stand(held.evaluate(self.source.shard, self.source.tick()))

    # Indexes.

    @property
    def indexes(self) -> Sequence[Index]:
        return self.source.table.indexes

    @precondition(lambda self: len(self.indexes) < 4)
    @rule(kind=kinds, columns=st.integers(0, 2), base=st.booleans())
    def create(self, kind: int, columns: int, base: bool) -> None:
        chosen = KEYS[kind][columns % len(KEYS[kind])]
        index = self.source.create(kind, chosen, whole=base)
        self.created[index.table_id] = len(self.source.model.log)
        if not base:
            self.whole[index.table_id] = len(self.source.model.log)
        if kind == GLOBAL:
            self.followers[index.table_id] = Follower(self.source, index)

    @precondition(lambda self: len(self.whole) < len(self.indexes))
    @rule(data=st.data(), stands=outcomes)
    def build(self, data: st.DataObject, stands: bool) -> None:
        left = [index for index in self.indexes if index.table_id not in self.whole]
        index = data.draw(st.sampled_from(left))
        if not stands:
            asked = IndexBuild(index.table_id, self.source.find_next_slice(index), ())
            self.source.shard.control(asked, self.source.tick())
            self.source.shard.discard()
        elif self.source.build(index):
            self.whole[index.table_id] = len(self.source.model.log)

    @precondition(lambda self: len(self.indexes) > 2)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.indexes))
        self.source.drop(index)
        self.followers.pop(index.table_id, None)
        self.whole.pop(index.table_id, None)

    @precondition(lambda self: self.followers)
    @rule(data=st.data(), length=st.integers(1, 12), again=st.integers(0, 6), stands=outcomes)
    def feed(self, data: st.DataObject, length: int, again: int, stands: bool) -> None:
        """Follow a slice of the log, perhaps with a crash before it stands.

        An unacknowledged slice may be followed by another, shorter one.
        """
        follower = self.followers[data.draw(st.sampled_from(sorted(self.followers)))]
        start, end = follower.end, len(self.source.model.log)
        if start < end:
            follower.feed(start, min(end, start + length), stands=stands)
        if again and start + again <= follower.end:
            follower.feed(start, start + again, stands=True)

    # What must hold.

    @invariant()
    def a_local_index_agrees_with_the_rows_at_once(self) -> None:
        for index in self.indexes:
            if index.kind == LOCAL:
                rows = rows_of(self.source.model.store, index.table_id)
                self.compare(index, rows, len(self.source.model.log))

    @invariant()
    def a_global_index_agrees_with_the_rows_at_the_offset_it_has_reached(self) -> None:
        for follower in self.followers.values():
            self.compare(follower.index, follower.rows(), follower.end)

    def compare(self, index: Index, rows: Rows, end: int) -> None:
        number = index.table_id
        expected = self.source.witness.expect_rows(index, self.created[number], end)
        if number in self.whole and end >= self.whole[number]:
            assert rows == expected
        else:
            # While it is built it lacks rows, and has none that it should not have.
            assert all(expected.get(row_key) == cells for row_key, cells in rows.items())

    def teardown(self) -> None:
        log = self.source.model.log
        for follower in self.followers.values():
            while follower.end < len(log):
                follower.feed(follower.end, min(len(log), follower.end + 7), stands=True)
            self.compare(follower.index, follower.rows(), len(log))
        for mark in range(0, len(self.source.marks), 5):
            self.source.check_replays(mark)


def test_indexes_agree_with_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "BUILD_ROWS", 2)
    run_state_machine_as_test(
        IndexMachine,
        settings=settings(max_examples=examples(40, 80), stateful_step_count=60, deadline=None),
    )


def wide_row(name: str, cell_bytes: int) -> ChangeRequest:
    """Return a put of three cells that an index by n keeps."""
    cells = [put_cell(b"n", variant.encode(1), None)]
    text = variant.encode("x" * cell_bytes)
    cells += [put_cell(column, text, None) for column in (b"k1", b"k2", b"k3")]
    return ChangeRequest(PUT, address(name), sorted(cells, key=lambda cell: cell.name))


def test_a_slice_of_wide_rows_ends_by_their_size() -> None:
    source = IndexedShard()
    source.stand([source.evaluate(wide_row(name, 250_000)) for name in "abcdef"])
    index = source.create(LOCAL, ("pk", "n"), whole=True)
    slices = 1
    while not source.build(index):
        slices += 1
    assert slices == 3, "two rows of 750,000 bytes exceed a megabyte"
    assert len(rows_of(source.model.store, index.table_id)) == 6


def test_a_row_that_no_record_can_hold_stops_the_build_and_not_the_table() -> None:
    source = IndexedShard()
    text = variant.encode("x" * 6_000_000)
    for column in (b"k1", b"k2", b"k3"):
        cells = [put_cell(column, text, None)]
        source.stand([source.evaluate(ChangeRequest(UPDATE, address("a"), cells))])
    source.stand(
        [
            source.evaluate(
                ChangeRequest(UPDATE, address("a"), [put_cell(b"n", variant.encode(1), None)])
            )
        ]
    )
    index = source.create(LOCAL, ("pk", "n"), whole=True)
    with pytest.raises(Rejected, match="too large for its index"):
        source.build(index)
    source.stand([source.evaluate(ChangeRequest(DELETE, address("a"), []))])
    assert source.build(index)
