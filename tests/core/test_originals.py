"""What records tell of the original columns: values before and after, and whether the row existed.

Histories by chance are compared with the rows of ``tests/model/row_model.py``: a dictionary, which
knows nothing of records. Each record is read as the log has it, and as the Stream API answers it,
with all cells and with those of few columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.client.kept_columns import read_kept_columns
from rowtide.client.wire_row import Delete, Put
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    UPDATE,
    Change,
    ChangeTable,
    Kind,
    LoggedChange,
    WireChange,
)
from rowtide.core.records.change_selection import ChangeSelection
from rowtide.core.records.record_wire import StreamRow, select_row, stream_row
from rowtide.core.rows import mutation
from rowtide.core.rows.mutation import ChangeRequest
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import AtomicBatch, Transaction
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, PUT, Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    STRING,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
    TableOptions,
)
from rowtide.core.values.variant import Scalar
from rowtide.stream.api.row_answers import stream_answer
from tests.core.shard_model import NOW_US, Store
from tests.model import row_model
from tests.model.requests import Options, Read
from tests.model.row_model import Rows

NAMES = (b"pk", b"name")
CHANGES = ChangeTable("t", NAMES)
KEPT = ("a", "b", "n")
COLUMNS = ("a", "b", "n", "other")
KINDS: dict[type, Kind] = {
    record.PutBody: PUT_ROW,
    record.UpdateBody: UPDATE,
    record.DeleteBody: DELETE,
}
WHAT: dict[Kind, str] = {PUT_ROW: "PUT", UPDATE: "UPDATE", DELETE: "DELETE"}
ACTIONS: dict[int, Kind] = {1: PUT_ROW, 2: UPDATE, 3: DELETE}
SECOND_US = 1_000_000


class World:
    """A shard whose log takes everything, and the dictionary beside it."""

    def __init__(self, *, ttl_s: int = -1, max_versions: int = 1) -> None:
        options = TableOptions(
            time_to_live_s=ttl_s, max_versions=max_versions, deviation_s=10**7, allow_update=True
        )
        columns = KeyColumn("pk", STRING), KeyColumn("name", STRING)
        self.stream = StreamSettings("t_1", 1, 24, (*KEPT, "name"))
        shards = (ShardRange("s1", 0),)
        table = Table("i", "t", 1, columns, options, self.stream, 0, 0, 1, 1, shards)
        self.store = Store()
        state = ShardState(options, stream=self.stream)
        self.shard = Shard("s1", table, self.store, state, limits=Limits())
        self.now_us = NOW_US
        self.rows: Rows = {}
        self.changes: list[Change] = []
        self._count = 0

    def write(self, kind: int, name: str, *cells: Cell) -> None:
        """Write one change."""
        change = ChangeRequest(kind, row_key(name), cells)
        evaluated = self.shard.evaluate(change, self.now_us)
        if evaluated.body is not None:
            self.stand([evaluated])

    def stand(self, batch: Sequence[Evaluated]) -> None:
        """Let records stand in the log, and compare each with the dictionary."""
        base = self._count
        values = [self.shard.encode_record(one, base + at) for at, one in enumerate(batch)]
        self._count += len(batch)
        writes = self.shard.confirm(batch, base)
        self.store.write(writes)
        self.shard.settle_writes(writes)
        for at, value in enumerate(values):
            self._check(value, base + at)

    def _check(self, value: bytes, offset: int) -> None:
        envelope, body = record.decode_record(value)
        if not isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
            return
        _, at = record.read_envelope(value)
        kind = KINDS[type(body)]
        logged = LoggedChange(kind, CHANGES, "s1", offset, envelope.stamp, value=value, at=at)
        self.changes.append(logged)
        key = _key(logged)
        row = self.rows.pop(key, None)
        options, now_ms = self._options(), self.now_us // 1000
        before = _newest(row, options, now_ms)
        made = row_model.fold(row, WHAT[kind], _model_changes(logged.cells), options.max_versions)
        if made is not None:
            self.rows[key] = made
        expected = before, _newest(made, options, now_ms), row is not None
        for change in (logged, *_read_answers(value, offset)):
            assert (change.before, change.after, change.existed) == expected
            assert change.original_columns == sorted(KEPT)

    def _options(self) -> Options:
        options = self.shard.state.options
        return Options(options.time_to_live_s, options.max_versions)

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now_us += int(seconds * SECOND_US)

    def reclaim(self) -> None:
        """Remove what nobody can see."""
        evaluated = self.shard.control(record.Reclaim(b"\x00", b"\xff", 0, 0), self.now_us)
        self.rows = row_model.reclaim_rows(self.rows, self._options(), self.now_us // 1000)
        if evaluated.body is not None:
            self.stand([evaluated])

    def begin(self) -> Transaction:
        """Open a transaction."""
        number = TransactionId("s1", self.now_us, self._count)
        return Transaction(number, variant.encode("p"), self.shard, expires_s=60.0)

    @property
    def last(self) -> tuple[dict[str, Scalar] | None, dict[str, Scalar] | None, bool | None]:
        """What the last change tells."""
        change = self.changes[-1]
        return change.before, change.after, change.existed


def row_key(name: str) -> list[tuple[bytes, bytes]]:
    """Return the key of a row."""
    return [(b"pk", variant.encode("p")), (b"name", variant.encode(name))]


def put(name: str, value: Scalar, version_ms: int | None = None) -> Cell:
    """Return a cell that is put."""
    return plainbuffer.put_cell(name.encode(), variant.encode(value), version_ms)


def drop(name: str, version_ms: int | None = None) -> Cell:
    """Return the delete of a column, or of one version."""
    return plainbuffer.delete_cell(name.encode(), version_ms)


def add(name: str, by: int) -> Cell:
    """Return an increment."""
    return plainbuffer.increment_cell(name.encode(), variant.encode(by))


def _key(change: Change) -> tuple[str, int]:
    return str(change.key[1][1]), 0


def _model_changes(cells: Sequence[Cell]) -> list[Put | Delete]:
    found: list[Put | Delete] = []
    for cell in cells:
        name = cell.name.decode()
        if cell.op == PUT:
            found.append(Put(name, variant.decode(cell.variant), cell.version_ms))
        else:
            assert cell.op in (DELETE_ALL, DELETE_ONE)
            found.append(Delete(name, cell.version_ms))
    return found


def _newest(row: row_model.Row | None, options: Options, now_ms: int) -> dict[str, Scalar]:
    cells = row_model.choose_cells(row or {}, Read(newest=1), options, now_ms)
    return {cell.name: cell.value for cell in cells if cell.name in KEPT}


def _read_answers(value: bytes, offset: int) -> Iterator[Change]:
    """Yield a record as the Stream API answers it: with every cell, and with those of columns."""
    whole = stream_row(value, offset, NAMES)
    assert whole is not None
    yield _of_answer(whole)
    for columns in ((), (b"a",), (b"b", b"other")):
        row = select_row(value, offset, NAMES, ChangeSelection(frozenset(columns)))
        if row is not None:
            yield _of_answer(row)


def _of_answer(row: StreamRow) -> Change:
    answer = stream_answer([row], 1, "", more=False, wants_kept=True)
    (found,) = pb.GetStreamRecordResponse.FromString(answer).stream_records
    return WireChange(
        ACTIONS[found.action_type],
        CHANGES,
        "s1",
        0,
        row.stamp,
        row=found.record,
        before=found.origin_record,
        kept=read_kept_columns(found),
    )


# What is easily wrong, one by one.


def test_a_new_row_did_not_exist() -> None:
    world = World()
    world.write(mutation.PUT, "r", put("a", 1), put("other", 2))
    assert world.last == ({}, {"a": 1}, False)
    world.write(mutation.PUT, "r", put("b", 2))
    assert world.last == ({"a": 1}, {"b": 2}, True)


def test_an_update_creates_a_row_that_did_not_exist() -> None:
    world = World()
    world.write(mutation.UPDATE, "r", put("a", 1))
    assert world.last == ({}, {"a": 1}, False)
    world.write(mutation.UPDATE, "r", put("other", 1))
    assert world.last == ({"a": 1}, {"a": 1}, True)


def test_a_delete_of_a_missing_row_says_so() -> None:
    world = World()
    world.write(mutation.DELETE, "r")
    assert world.last == ({}, {}, False)
    world.write(mutation.PUT, "r", put("a", 1))
    world.write(mutation.DELETE, "r")
    assert world.last == ({"a": 1}, {}, True)
    world.write(mutation.DELETE, "r")
    assert world.last == ({}, {}, False)
    world.write(mutation.PUT, "r", put("a", 2))
    assert world.last == ({}, {"a": 2}, False)


def test_a_row_without_cells_exists() -> None:
    world = World()
    world.write(mutation.PUT, "r")
    world.write(mutation.PUT, "r", put("a", 1))
    assert world.last == ({}, {"a": 1}, True)


def test_an_expired_row_exists_until_it_is_reclaimed() -> None:
    world = World(ttl_s=10)
    world.write(mutation.PUT, "r", put("a", 1))
    world.pass_time(20)
    world.write(mutation.PUT, "r", put("b", 2))
    assert world.last == ({}, {"b": 2}, True)
    world.pass_time(20)
    world.reclaim()
    world.write(mutation.UPDATE, "r", put("b", 3))
    assert world.last == ({}, {"b": 3}, False)


def test_a_deleted_version_shows_an_older_one() -> None:
    world = World(max_versions=3)
    now_ms = world.now_us // 1000
    for age in (3, 2, 1):
        world.write(mutation.UPDATE, "r", put("a", age, now_ms - age))
    world.write(mutation.UPDATE, "r", drop("a", now_ms - 1))
    assert world.last == ({"a": 1}, {"a": 2}, True)
    world.write(mutation.UPDATE, "r", drop("a", now_ms - 3))
    assert world.last == ({"a": 2}, {"a": 2}, True)
    world.write(mutation.UPDATE, "r", drop("a", now_ms - 2))
    assert world.last == ({"a": 2}, {}, True)


def test_a_surplus_version_shows_when_a_newer_one_is_deleted() -> None:
    world = World(max_versions=2)
    now_ms = world.now_us // 1000
    for age in (2, 1):
        world.write(mutation.UPDATE, "r", put("a", age, now_ms - age))
    state = world.shard.state
    state.options = replace(state.options, max_versions=1)
    world.write(mutation.UPDATE, "r", drop("a", now_ms - 1))
    assert world.last == ({"a": 1}, {"a": 2}, True)


def test_an_older_version_that_is_put_stays_below_the_newest() -> None:
    world = World(max_versions=2)
    now_ms = world.now_us // 1000
    world.write(mutation.UPDATE, "r", put("a", "new", now_ms))
    world.write(mutation.UPDATE, "r", put("a", "old", now_ms - 5))
    assert world.last == ({"a": "new"}, {"a": "new"}, True)


def test_an_increment_starts_at_nothing_once_the_number_expired() -> None:
    world = World(ttl_s=10)
    for passed, before, after in ((0, {}, 5), (1, {"n": 5}, 10), (20, {}, 5)):
        world.pass_time(passed)
        world.write(mutation.UPDATE, "r", add("n", 5))
        assert world.last == (before, {"n": after}, passed > 0)


def test_what_is_put_in_a_transaction_may_expire_before_the_commit() -> None:
    world = World(ttl_s=10)
    transaction = world.begin()
    change = ChangeRequest(mutation.PUT, row_key("r"), [put("a", 1)])
    transaction.apply(world.shard, change, world.now_us)
    later = ChangeRequest(mutation.UPDATE, row_key("r"), [put("b", 2)])
    transaction.apply(world.shard, later, world.now_us + 9 * SECOND_US)
    world.pass_time(15)
    world.stand(transaction.evaluate(world.shard, world.now_us))
    assert [(c.before, c.after, c.existed) for c in world.changes] == [
        ({}, {}, False),
        ({}, {"b": 2}, True),
    ]


def test_a_batch_sees_its_own_earlier_rows() -> None:
    world = World()
    batch = AtomicBatch(
        [
            ChangeRequest(mutation.PUT, row_key("r"), [put("a", 1)]),
            ChangeRequest(mutation.DELETE, row_key("r"), []),
            ChangeRequest(mutation.UPDATE, row_key("r"), [put("a", 2)]),
        ]
    )
    world.stand(batch.evaluate(world.shard, world.now_us))
    assert [change.existed for change in world.changes] == [False, True, False]
    assert world.last == ({}, {"a": 2}, False)


def test_what_a_source_committed_long_ago_has_expired() -> None:
    world = World(ttl_s=10)
    old_ms = world.now_us // 1000 - 60_000
    change = ChangeRequest(mutation.UPDATE, row_key("r"), [put("a", 1)], time_ms=old_ms)
    batch = SourceBatch("db", [change], [b"\x01"])
    world.stand(batch.evaluate(world.shard, world.now_us))
    assert world.last == ({}, {}, False)
    again = ChangeRequest(mutation.UPDATE, row_key("r"), [put("a", 2)], time_ms=old_ms + 59_000)
    world.stand(SourceBatch("db", [again], [b"\x02"]).evaluate(world.shard, world.now_us))
    assert world.last == ({}, {"a": 2}, True)


def test_a_wide_row_tells_the_same() -> None:
    world = World(max_versions=2)
    wide = [put(f"w{number:03}", "x" * 2000) for number in range(60)]
    world.write(mutation.PUT, "r", put("a", 1), *wide)
    version = world.changes[-1].cells[0].version_ms
    world.pass_time(1)
    world.write(mutation.UPDATE, "r", put("a", 2), put("n", 3))
    assert world.last == ({"a": 1}, {"a": 2, "n": 3}, True)
    newest = next(cell.version_ms for cell in world.changes[-1].cells if cell.name == b"a")
    assert newest != version
    world.write(mutation.UPDATE, "r", drop("a", newest))
    assert world.last == ({"a": 2, "n": 3}, {"a": 1, "n": 3}, True)
    world.write(mutation.DELETE, "r")
    assert world.last == ({"a": 1, "n": 3}, {}, True)


def test_a_key_column_is_no_original_column() -> None:
    world = World()
    world.write(mutation.PUT, "r", put("a", 1))
    assert world.changes[-1].original_columns == ["a", "b", "n"]


@pytest.mark.parametrize("columns", [(), ("a",)])
def test_a_narrowed_change_tells_the_same(columns: tuple[str, ...]) -> None:
    world = World()
    world.write(mutation.PUT, "r", put("a", 1), put("b", 1))
    world.write(mutation.UPDATE, "r", put("a", 2), drop("b"))
    change = world.changes[-1]
    change.narrow([cell for cell in change.cells if cell.name.decode() in columns])
    assert (change.before, change.after) == ({"a": 1, "b": 1}, {"a": 2})
    change.narrow(())
    assert change.after == {"a": 2}


def test_a_record_of_an_earlier_schema_tells_only_the_values_before() -> None:
    cells = [put("a", 1, 5)]
    body = record.PutBody([value for _, value in row_key("r")], cells, cells)
    value = record.encode_record(record.Envelope(0, 1, bytes(8), 9, 3), record.encode_body(body))
    _, at = record.read_envelope(value)
    logged = LoggedChange(PUT_ROW, CHANGES, "s1", 0, 9, value=value, at=at)
    found = [logged, *_read_answers(value, 0)]
    for change in found:
        assert (change.before, change.after, change.existed) == ({"a": 1}, None, None)
        assert change.original_columns is None


def test_a_stream_without_original_columns_tells_nothing() -> None:
    world = World()
    world.shard.state.stream = replace(world.stream, columns=())
    evaluated = world.shard.evaluate(
        ChangeRequest(mutation.PUT, row_key("r"), [put("a", 1)]), world.now_us
    )
    value = world.shard.encode_record(evaluated, 0)
    assert value.startswith(b"\xc3\x01" + record.FINGERPRINT_V4)
    _, body = record.decode_record(value)
    assert isinstance(body, record.PutBody)
    assert (body.before, body.kept) == (None, None)


# What nobody thought of.


@given(
    chance=st.randoms(use_true_random=False),
    ttl_s=st.sampled_from([-1, 5, 30]),
    max_versions=st.sampled_from([1, 2, 3]),
)
def test_every_record_of_a_history_tells_what_the_rows_were(
    chance: Random, ttl_s: int, max_versions: int
) -> None:
    world = World(ttl_s=ttl_s, max_versions=max_versions)
    for _ in range(25):
        _step(world, chance)


def _step(world: World, chance: Random) -> None:
    kind = chance.randrange(12)
    if kind == 0:
        world.pass_time(chance.choice((0.5, 3, 20)))
    elif kind == 1:
        world.reclaim()
    elif kind == 2:
        state = world.shard.state
        state.options = replace(
            state.options,
            max_versions=chance.choice((1, 2, 3)),
            time_to_live_s=chance.choice((-1, 5, 30)),
        )
    elif kind == 3:
        _transact(world, chance)
    elif kind == 4:
        batch = AtomicBatch([_change(world, chance) for _ in range(chance.randrange(1, 4))])
        _attempt(world, lambda: batch.evaluate(world.shard, world.now_us))
    else:
        change = _change(world, chance)
        _attempt(world, lambda: [world.shard.evaluate(change, world.now_us)])
    world.pass_time(chance.choice((0, 0, 0.001, 0.5)))


def _attempt(world: World, evaluate: Callable[[], list[Evaluated]]) -> None:
    try:
        group = evaluate()
    except Rejected:
        return
    world.stand([one for one in group if one.body is not None])


def _transact(world: World, chance: Random) -> None:
    transaction = world.begin()
    for _ in range(chance.randrange(3)):
        try:
            transaction.apply(world.shard, _change(world, chance), world.now_us)
        except Rejected:
            continue
    world.pass_time(chance.choice((0, 3, 20)))
    world.stand(transaction.evaluate(world.shard, world.now_us))


def _change(world: World, chance: Random) -> ChangeRequest:
    kind = chance.choice((mutation.PUT, mutation.UPDATE, mutation.UPDATE, mutation.DELETE))
    cells: list[Cell] = []
    if kind != mutation.DELETE:
        names = chance.choices(COLUMNS, k=chance.randrange(4))
        cells = [_cell(world, chance, name, updates=kind == mutation.UPDATE) for name in names]
    return ChangeRequest(kind, row_key(chance.choice("rs")), cells)


def _cell(world: World, chance: Random, name: str, *, updates: bool) -> Cell:
    ages_ms = (0, 1, 2, 4000, 20_000, -5000)
    version = world.now_us // 1000 - chance.choice(ages_ms) if chance.randrange(2) else None
    kind = chance.randrange(8) if updates else 7
    if kind == 0 and name == "n":
        return add(name, 1)
    if kind < 2:
        return drop(name)
    if kind < 4:
        return drop(name, _choose_version(world, chance, name))
    return put(name, chance.randrange(3), version)


def _choose_version(world: World, chance: Random, name: str) -> int:
    stored = [v for row in world.rows.values() for v in row.get(name, ())]
    return chance.choice([*stored, world.now_us // 1000])
