"""A BatchWriteRow that kernels read and decide has the answers and rows that Python gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core import native
from rowtide.core.protocol.row_form import FORMS
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.fold import read_cells
from rowtide.core.values import key, variant
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import ShardRange, Table, TableOptions
from rowtide.stream.api.batch_reading import BatchReader
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row import RowOperations
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.slot import Slot
from tests.contract.memory_log import Fault, MemoryLog
from tests.core.native.ways import KERNELS, needs_kernels, python
from tests.stream.test_batch_reading import (
    ANN,
    PUTS,
    REQUESTS,
    TEACHING,
    batch,
    directory,
    item,
    outcome,
    row,
    table,
)
from tests.stream.test_owned_transactions import Owned, name, running

pytestmark = needs_kernels


@pytest.fixture(autouse=True)
def use_kernels() -> Iterator[None]:
    """Use kernels, also where the suite runs without."""
    before, native.kernels = native.kernels, KERNELS
    yield
    native.kernels = before


def read(body: bytes) -> tuple[object, object]:
    """Return what kernels and what Python make of a batch."""
    FORMS.forget()
    where = directory()
    found = outcome(BatchReader(where), body)
    return found, python(lambda: outcome(BatchReader(where), body))


@given(REQUESTS)
def test_a_batch_is_read_as_by_python(request: pb.BatchWriteRowRequest) -> None:
    found, expected = read(request.SerializeToString())
    assert found == expected


@given(st.sampled_from(TEACHING), st.data())
def test_a_damaged_batch_is_refused_as_by_python(
    request: pb.BatchWriteRowRequest, draw: st.DataObject
) -> None:
    body = bytearray(request.SerializeToString())
    for _ in range(draw.draw(st.integers(1, 2))):
        body[draw.draw(st.integers(0, len(body) - 1))] ^= draw.draw(st.integers(1, 255))
    found, expected = read(bytes(body))
    assert found == expected


@pytest.mark.parametrize("request_", TEACHING)
def test_rows_that_are_usual_are_plain(request_: pb.BatchWriteRowRequest) -> None:
    found = BatchReader(directory()).read(ANN, request_.SerializeToString())
    assert [len(its.rows) for its in found.plain] == [len(request_.tables[0].rows)]


class OneSlot(NamedTuple):
    """A slot of one open shard."""

    served: ShardOwner
    is_foreign: bool = False

    def owner(self, _shard_id: str) -> ShardOwner:
        """Return the shard."""
        return self.served


def submit_batch(owned: Owned, request: pb.BatchWriteRowRequest) -> asyncio.Future[bytes]:
    """Ask that shard, alone in its slot, for a batch; it is submitted at once."""
    where = directory()
    served = owned.owner.shard.table
    where.catalog.tables[ANN.instance, served.name] = served
    slots = cast(dict[int, Slot], {0: OneSlot(owned.owner)})
    operations = RowOperations(Directory(where.catalog, slots, where.limits, where.clock_us))
    answer = operations.batch_write_row(ANN, request.SerializeToString())
    assert isinstance(answer, asyncio.Future)
    return answer


def of_one_shard(options: TableOptions | None = None) -> Table:
    """Return table t."""
    return replace(table("t", 1, options=options), shards=(ShardRange("s1", 0),))


def read_stored(owned: Owned) -> list[tuple[bytes, object]]:
    """Return all rows with names and values of their cells: their versions are times."""
    rows = owned.owner.rows
    found = rows.scan(row_key(1, b""), row_key(2, b""))
    return [
        (at, [(cell.name, cell.variant) for cell in read_cells(rows, at) or ()]) for at, _ in found
    ]


async def write_batches(
    path: Path, requests: Sequence[pb.BatchWriteRowRequest]
) -> tuple[list[object], list[tuple[bytes, object]]]:
    """Return the clients' answers to batches, and the rows that are stored then."""
    answers: list[object] = []
    async with running(path, of=of_one_shard()) as owned:
        for request in requests:
            try:
                answers.append(await submit_batch(owned, request))
            except StoreError as error:
                answers.append((error.code, error.message))
        return answers, read_stored(owned)


ABSENT = pb.EXPECT_NOT_EXIST
BATCHES = {
    "new rows": [batch(*PUTS)],
    "rows that are there": [batch(*PUTS), batch(*PUTS)],
    "updates of rows that are there and of others": [
        batch(*PUTS[:3]),
        batch(*(item(row(f"row{n}", n, 7.5), pb.UPDATE) for n in range(6))),
    ],
    "a key that comes twice": [batch(PUTS[0], item(row("row0", 0, "other")), PUTS[1])],
    "a row that is expected and is not there": [
        batch(PUTS[0], item(row("no", 1, "a"), expected=pb.EXPECT_EXIST), PUTS[1])
    ],
    "only rows that are there and must not": [
        batch(*PUTS[:2]),
        batch(*(item(one.row_change, expected=ABSENT) for one in PUTS[:2])),
    ],
    "a delete among puts": [batch(*PUTS), batch(PUTS[0], item(row("row1", 1), pb.DELETE))],
    "a row after its delete": [
        batch(*PUTS),
        batch(item(row("row1", 1), pb.DELETE)),
        batch(item(row("row1", 1, 5), pb.UPDATE), item(row("row1", 2, 5))),
    ],
}


@pytest.mark.parametrize("requests", BATCHES.values(), ids=list(BATCHES))
async def test_a_batch_is_written_as_by_python(
    requests: Sequence[pb.BatchWriteRowRequest], tmp_path: Path
) -> None:
    found = await write_batches(tmp_path / "native", requests)
    native.choose(pure=True)
    assert found == await write_batches(tmp_path / "python", requests)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_a_batch_of_unknown_outcome_is_written_once(fault: Fault, tmp_path: Path) -> None:
    async with running(tmp_path, log := MemoryLog(), of=of_one_shard()) as owned:
        log.fault = fault
        answer = await submit_batch(owned, batch(*PUTS))
        assert all(one.is_ok for one in results(answer))
        assert len(read_stored(owned)) == len(PUTS)
        state = owned.owner.shard.state
    async with running(tmp_path / "again", log.twin(), of=of_one_shard()) as again:
        assert len(read_stored(again)) == len(PUTS)
        assert again.owner.shard.state.stamp == state.stamp


def results(response: bytes) -> Sequence[Any]:
    """Return the results of the rows of a batch's one table."""
    return pb.BatchWriteRowResponse.FromString(response).tables[0].rows


async def test_a_batch_that_waits_too_long_is_told_unknown_once(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        waiting = submit_batch(owned, batch(*PUTS))
        owned.owner._settings = replace(owned.owner._settings, write_s_max=-1.0)
        owned.owner.expire()
        owned.owner.expire()
        answer = await waiting
        assert isinstance(answer, UnknownWithin)
        assert {one.error.code for one in results(answer)} == {"OTSTimeout"}
        await owned.owner.drain()
        assert len(read_stored(owned)) == len(PUTS)


async def test_without_a_lease_a_refusal_waits_and_rows_are_written(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        await submit_batch(owned, batch(PUTS[0]))
        owned.leased = False
        again = item(PUTS[0].row_change, expected=ABSENT)
        answer = await submit_batch(owned, batch(again, PUTS[1]))
        codes = [one.error.code for one in results(answer)]
        assert codes == ["OTSConditionCheckFail", ""], "the append proves what was seen"
        waiting = submit_batch(owned, batch(again))
        await submit_batch(owned, batch(PUTS[2]))
        assert not waiting.done()
        owned.leased = True
        assert [one.error.code for one in results(await waiting)] == ["OTSConditionCheckFail"]


async def test_rows_of_a_held_partition_key_alone_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        assert await owned.begin(1, variant.encode("row1")) == "ok"
        answer = await submit_batch(owned, batch(*PUTS[:3]))
        assert [one.error.code for one in results(answer)] == ["", "OTSRowOperationConflict", ""]
        owned.owner.abort(name(1))


async def test_rows_go_to_the_shards_that_hold_them(tmp_path: Path) -> None:
    border = key.encode([variant.encode("row3")])
    shards = (ShardRange("s1", 0, end=border), ShardRange("s2", 1, begin=border))
    both = replace(of_one_shard(), shards=shards)
    async with running(tmp_path, of=both) as owned:
        answer = await submit_batch(owned, batch(*PUTS))
        assert [one.is_ok for one in results(answer)] == [True] * 3 + [False] * 3
        assert len(read_stored(owned)) == 3
