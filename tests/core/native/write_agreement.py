"""PutRow, UpdateRow and DeleteRow by kernels against Python: the same records, rows and refusals.

As in ``agreement.py``, a function fails where the two ways differ, and returns whether the kernels
did answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.plain_batch import (
    PlainWrite,
    evaluate_together,
    is_independent,
    read_write,
)
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import (
    INTEGER,
    STRING,
    KeyColumn,
    StreamSettings,
    Table,
    TableOptions,
)
from rowtide.stream.api.index_requests import check_write
from rowtide.stream.api.plain_change import read_change
from tests.core.native.inputs import COLUMNS, NAMES, Inputs
from tests.core.native.ways import outcome, python
from tests.core.shard_model import NOW_US, Store

__all__ = ["BEHIND_NAME", "KINDS", "WRITE_AGREEMENTS", "request_of"]

LIMITS = Limits()
KEY = (KeyColumn("id", STRING), KeyColumn("n", INTEGER))
KINDS = (PUT, UPDATE, UPDATE, UPDATE, DELETE)
EXPECTATIONS = (pb.IGNORE, pb.IGNORE, pb.IGNORE, pb.EXPECT_EXIST, pb.EXPECT_NOT_EXIST)
NUMBERS = (0, 1, -1, 7, 2**40, INT64_MAX, -INT64_MAX - 1)
BEHIND_NAME = 3
"""The offset behind the name of table t."""

Answer = tuple[object, ...] | str


def writes(inputs: Inputs) -> bool:
    """Compare what requests of a few rows become, several of them evaluated at once."""
    chance = inputs.chance
    options = TableOptions(
        max_versions=chance.choice((1, 1, 2, 5)),
        time_to_live_s=chance.choice((-1, -1, 86400)),
        allow_update=chance.randrange(8) > 0,
    )
    table = Table("i", "t", 1, KEY, options, None, 0, 0, 1, 1, ())
    stream = _stream(inputs)
    shards = [
        Shard("s1", table, Store(), ShardState(table.options, stream=stream), limits=LIMITS)
        for _ in range(2)
    ]
    answered = 0
    for step in range(chance.randrange(1, 7)):
        now_us = NOW_US + chance.choice((step, step * 1_000_000, 10**12, -(10**9)))
        came = [_plain(inputs, table) for _ in range(chance.choice((1, 1, 2, 3)))]
        kept = [write for write in came if write is not None]
        if not kept or not is_independent(shards[1], [write.row for write in kept]):
            continue
        expected = python(partial(_one_by_one, shards[0], kept, now_us))
        found = evaluate_together(shards[1], kept, now_us)
        assert [_describe(one) for one in found] == expected
        answered += 1
    return answered > 0


def _stream(inputs: Inputs) -> StreamSettings | None:
    """Return a stream, which keeps original columns in most cases, or none."""
    chance = inputs.chance
    if chance.randrange(3) == 0:
        return None
    columns = chance.sample((*COLUMNS, "id", "never"), chance.choice((0, 1, 3, 9)))
    return StreamSettings("t_1", 1, 24, tuple(columns) * chance.choice((1, 1, 2)))


def _plain(inputs: Inputs, table: Table) -> PlainWrite | None:
    """Return a request that a kernel has read; Python must accept it, too."""
    kind = inputs.chance.choice(KINDS)
    body = inputs.maybe_damage(request_of(inputs, kind).SerializeToString())
    if body[:BEHIND_NAME] != b"\x0a\x01t":
        return None
    row = read_write(body, BEHIND_NAME, kind, table, LIMITS)
    if row is None:
        return None
    change = python(partial(_change, kind, body, table))
    assert (row[0], row[1]) == (change.kind, change.expectation)
    return PlainWrite(row, lambda: change)


def _change(kind: int, body: bytes, table: Table) -> ChangeRequest:
    change = read_change(kind, body, table, LIMITS)
    check_write(table, kind)
    return change


def request_of(
    inputs: Inputs, kind: int
) -> pb.PutRowRequest | pb.UpdateRowRequest | pb.DeleteRowRequest:
    chance = inputs.chance
    request: pb.PutRowRequest | pb.UpdateRowRequest | pb.DeleteRowRequest
    if kind == PUT:
        request = pb.PutRowRequest(table_name="t", row=inputs.row())
    elif kind == UPDATE:
        buffer = inputs.row() if chance.randrange(3) == 0 else _row(inputs, _changes(inputs))
        request = pb.UpdateRowRequest(table_name="t", row_change=buffer)
    else:
        cells = _changes(inputs) if chance.randrange(20) == 0 else ()
        buffer = _row(inputs, cells, deleted=chance.randrange(2) > 0)
        request = pb.DeleteRowRequest(table_name="t", primary_key=buffer)
    if chance.randrange(3):
        request.condition.row_existence = chance.choice(EXPECTATIONS)
    if chance.randrange(20) == 0:
        request.return_content.return_type = pb.RT_PK
    if chance.randrange(40) == 0:
        request.transaction_id = "x"
    return request


def _row(inputs: Inputs, cells: list[Cell] | tuple[()], *, deleted: bool = False) -> bytes:
    key = inputs.key()
    if inputs.chance.randrange(4):
        key = [
            (NAMES[0], variant.encode("k")),
            (NAMES[1], variant.encode(inputs.chance.choice((1, 2)))),
        ]
    return HEADER + plainbuffer.encode_row(key, cells, deleted=deleted)


def _changes(inputs: Inputs) -> list[Cell]:
    """Return puts, mostly of numbers, increments and deletes of columns."""
    chance = inputs.chance
    return [
        _change_of(inputs, name.encode()) for name in chance.sample(COLUMNS, chance.randrange(5))
    ]


def _change_of(inputs: Inputs, name: bytes) -> Cell:
    chance = inputs.chance
    kind = chance.randrange(8)
    if kind < 3:
        return plainbuffer.increment_cell(name, variant.encode(chance.choice(NUMBERS)))
    if kind < 5:
        return plainbuffer.delete_cell(name, None)
    if kind < 7:
        return plainbuffer.put_cell(name, variant.encode(chance.choice(NUMBERS)), None)
    return inputs.cell(name, odd=chance.randrange(4) == 0)


def _one_by_one(shard: Shard, kept: list[PlainWrite], now_us: int) -> list[Answer]:
    """Return what Python makes of the requests, each with the stamp that its place gives it."""
    answers: list[Answer] = []
    first = shard.next_stamp(now_us)
    for at, write in enumerate(kept):
        evaluate = partial(_evaluate_at, shard, write, first + at, now_us)
        found = outcome(evaluate)
        answers.append(found if isinstance(found, str) else _describe(found))
    return answers


def _evaluate_at(shard: Shard, write: PlainWrite, stamp: int, now_us: int) -> Evaluated:
    evaluated = shard.decide(write.change(), shard.view, stamp, now_us)
    shard.take_group([evaluated] if evaluated.body is not None else [])
    return evaluated


def _describe(result: object) -> Answer:
    if isinstance(result, StoreError):
        return f"{type(result).__name__}: {result}"
    assert isinstance(result, Evaluated)
    assert isinstance(result.outcome, Outcome)
    if result.body is None:
        return (result.outcome, None)
    return result.outcome, result.stamp, result.log_key, result.body, result.writes


WRITE_AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {"read_write, stored_writes": writes}
