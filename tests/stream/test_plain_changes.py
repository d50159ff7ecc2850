"""Writes of one row that arrive together have the answers and rows that each would have alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.core import native
from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.record import NoOp
from rowtide.core.rows.mutation import EXPECT_ABSENT, EXPECT_PRESENT, IGNORE, PUT, UPDATE
from rowtide.core.shard.plain_batch import evaluate_together
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row import RowOperations
from rowtide.stream.shard import owner as owner_module
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.slot import Slot
from tests.contract.memory_log import Fault, MemoryLog
from tests.core.native.ways import KERNELS, needs_kernels, python
from tests.core.shard_model import change, table
from tests.stream.test_owned_transactions import Owned, P, running
from tests.stream.test_plain_batches import OneSlot

pytestmark = needs_kernels

ANN = Identity("key-of-ann", "i", b"")
EXPECTED = {IGNORE: pb.IGNORE, EXPECT_PRESENT: pb.EXPECT_EXIST, EXPECT_ABSENT: pb.EXPECT_NOT_EXIST}


@pytest.fixture(autouse=True)
def use_kernels() -> Iterator[None]:
    """Use kernels, also where the suite runs without."""
    before, native.kernels = native.kernels, KERNELS
    yield
    native.kernels = before


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of writes of each evaluation of several."""
    counts: list[int] = []

    def count(*given: Any) -> Any:
        counts.append(len(given[1]))
        return evaluate_together(*given)

    monkeypatch.setattr(owner_module, "evaluate_together", count)
    return counts


def of_one_shard() -> Table:
    """Return the table of the model, with its shard."""
    return replace(table(), shards=(ShardRange("s1", 0),))


class Clients:
    """Clients of one running shard, who send what ``change`` describes."""

    def __init__(self, owned: Owned) -> None:
        catalog, served = Catalog(), owned.owner.shard.table
        catalog.tables[ANN.instance, served.name] = served
        slots = cast(dict[int, Slot], {0: OneSlot(owned.owner)})
        self._operations = RowOperations(Directory(catalog, slots, Limits(), lambda: 1))

    def send(self, text: str) -> asyncio.Future[bytes]:
        """Send a write. Raises what refuses it at once."""
        wanted = change(text)
        row = HEADER + plainbuffer.encode_row(wanted.key, wanted.cells)
        condition = pb.Condition(row_existence=EXPECTED[wanted.expectation])
        operations = self._operations
        if wanted.kind == PUT:
            put = pb.PutRowRequest(table_name="t", row=row, condition=condition)
            answer = operations.put_row(ANN, put.SerializeToString())
        elif wanted.kind == UPDATE:
            update = pb.UpdateRowRequest(table_name="t", row_change=row, condition=condition)
            answer = operations.update_row(ANN, update.SerializeToString())
        else:
            delete = pb.DeleteRowRequest(table_name="t", primary_key=row, condition=condition)
            answer = operations.delete_row(ANN, delete.SerializeToString())
        assert isinstance(answer, asyncio.Future)
        return answer

    async def send_all(self, texts: Sequence[str]) -> list[object]:
        """Send writes in one turn; return their answers, or codes and texts of refusals."""
        return [await outcome(sent) for sent in [self.send(text) for text in texts]]


async def outcome(sent: asyncio.Future[bytes]) -> object:
    try:
        return await sent
    except StoreError as error:
        return error.code, error.message


async def write(path: Path, turns: Sequence[Sequence[str]]) -> tuple[list[object], str]:
    """Return the answers to what arrives in some turns, and the rows after them."""
    async with running(path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        return [await clients.send_all(texts) for texts in turns], owned.rows


TURNS = {
    "different rows": ["P a=1", "P b=2", "U c=3"],
    "increments of one row": ["P a=1", "U a+1", "U a+5", "U a+7"],
    "a put, its delete, and another": ["P a=1", "D a", "P! a=2"],
    "conditions": ["P! a=1", "P! a=2", "P? b=1", "U? a=4", "D? b", "D? a"],
    "a refusal among others": ["P a=1", "P? b=1", "P c=1"],
    "an increment that overflows": [f"P a={2**63 - 1}", "U a+1", "U b+1"],
    "deletes of what is not there": ["D a", "D b"],
}


@pytest.mark.parametrize("texts", TURNS.values(), ids=list(TURNS))
async def test_writes_of_one_turn_are_as_by_python(texts: Sequence[str], tmp_path: Path) -> None:
    found = await write(tmp_path / "native", [texts, texts])
    native.choose(pure=True)
    assert found == await write(tmp_path / "python", [texts, texts])


LETTERS = st.sampled_from(("P", "P!", "P?", "U", "U!", "U?"))
WRITES = st.builds(
    "{} {}{}{}".format, LETTERS, st.sampled_from("abc"), st.just("="), st.integers(-9, 9)
)
INCREMENTS = st.builds("U {}+{}".format, st.sampled_from("abc"), st.integers(-9, 9))
DELETES = st.builds("{} {}".format, st.sampled_from(("D", "D!", "D?")), st.sampled_from("abc"))
TEXTS = st.lists(st.lists(WRITES | INCREMENTS | DELETES, min_size=1, max_size=6), max_size=6)


@given(turns=TEXTS)
@settings(max_examples=30)
def test_any_writes_of_some_turns_are_as_by_python(turns: list[list[str]]) -> None:
    with TemporaryDirectory() as folder:
        found = asyncio.run(write(Path(folder) / "native", turns))
        expected = python(lambda: asyncio.run(write(Path(folder) / "python", turns)))
    assert found == expected


async def test_writes_of_one_turn_are_evaluated_together(
    tmp_path: Path, together: list[int]
) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        await clients.send_all(["P a=1", "P b=1", "P c=1"])
        assert together == [3]
        first = clients.send("P a=2")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert owned.owner._queue.in_flight, "the next writes wait for this batch"
        others = [clients.send(f"P {row}=3") for row in "bcd"]
        await asyncio.sleep(0)
        assert together == [3, 3], "they do not wait for the batch to be evaluated"
        for sent in (first, *others):
            await sent
        assert owned.rows == "a=2 b=3 c=3 d=3"


async def test_the_order_of_arrival_holds_between_kinds_of_writes(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        sent = [clients.send("P a=1"), clients.send("P b=1")]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(owned.batch("U a+1", "U b+1"))
            await asyncio.sleep(0)
            sent += [clients.send("U a+2"), clients.send("U b+2")]
            hidden = owned.owner.submit_hidden(NoOp())
            sent += [clients.send("U a+4"), clients.send("U b+4")]
            tasks.create_task(owned.write("U a+8"))
        await hidden
        assert [type(await outcome(one)) for one in sent] == [bytes] * 6
        assert owned.rows == "a=16 b=8"
    async with running(tmp_path / "again", owned.log, of=of_one_shard()) as again:
        assert again.rows == "a=16 b=8"


async def test_a_transaction_sees_the_writes_of_its_turn(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        sent = [clients.send("P a=1"), clients.send("P b=1")]
        assert await owned.begin(1, P) == "ok"
        assert owned.rows == "a=1 b=1"
        assert [one.done() for one in sent] == [True, True]
        with pytest.raises(StoreError, match="being modified"):
            clients.send("P a=2")
        owned.abort(1)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.REFUSED])
async def test_writes_of_unknown_outcome_are_written_once(fault: Fault, tmp_path: Path) -> None:
    async with running(tmp_path, log := MemoryLog(), of=of_one_shard()) as owned:
        clients = Clients(owned)
        log.fault = fault
        first = [clients.send("P a=1"), clients.send("P b=1")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        later = [clients.send("U a+1"), clients.send("U b+1")]
        for sent in (*first, *later):
            await sent
        assert owned.rows == "a=2 b=2"
    async with running(tmp_path / "again", log.twin(), of=of_one_shard()) as again:
        assert again.rows == "a=2 b=2"


async def test_writes_on_a_log_that_has_moved_are_evaluated_again(tmp_path: Path) -> None:
    async with running(tmp_path / "old", log := MemoryLog(), of=of_one_shard()) as owned:
        clients = Clients(owned)
        await clients.send_all(["P a=1", "P b=1"])
        async with running(tmp_path / "other", log.twin(), of=of_one_shard()) as other:
            other.owner.shard.adopt_claim(0, b"ownerid7")
            await Clients(other).send_all(["U a+10"])
        assert await clients.send_all(["U a+1", "P! b=7", "P c=1"]) == [
            *await clients.send_all(["U b+0"]),
            ("OTSConditionCheckFail", "Condition check failed."),
            *await clients.send_all(["U b+0"]),
        ]
        assert owned.rows == "a=12 b=1 c=1"


@contextmanager
def unreadable(owned: Owned) -> Iterator[None]:
    """Let no row be read for a while, as where a process has too many files open."""

    def fail(_: object) -> None:
        raise StoreFailed("Too many open files")

    rows = owned.owner.rows
    with patch.object(rows, "get", fail), patch.object(rows, "get_many", fail):
        yield


@pytest.mark.parametrize("texts", [["P a=5", "P b=5"], ["P a=5"], ["P a=5", "U a+1"]])
async def test_a_write_whose_row_cannot_be_read_fails_and_changes_nothing(
    texts: Sequence[str], tmp_path: Path
) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        await clients.send_all(["P a=1", "P b=1"])
        with unreadable(owned):
            found = await clients.send_all(texts)
        assert found == [("OTSInternalServerError", "Internal server error.")] * len(texts)
        assert await owned.write("U b+1") == "ok"
        assert owned.rows == "a=1 b=2"
    async with running(tmp_path / "again", owned.log, of=of_one_shard()) as again:
        assert again.rows == "a=1 b=2"


async def test_without_a_lease_a_refusal_waits_and_other_writes_do_not(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        await clients.send_all(["P a=1"])
        owned.leased = False
        waiting = [clients.send("P! a=2"), clients.send("P? z=2")]
        await clients.send_all(["P b=1", "P c=1"])
        assert not any(one.done() for one in waiting)
        owned.leased = True
        refusal = "OTSConditionCheckFail", "Condition check failed."
        assert [await outcome(one) for one in waiting] == [refusal] * 2


async def test_a_drain_answers_what_has_arrived(tmp_path: Path) -> None:
    async with running(tmp_path, of=of_one_shard()) as owned:
        clients = Clients(owned)
        sent = [clients.send("P a=1"), clients.send("P b=1")]
        await owned.owner.drain()
        assert [one.done() for one in sent] == [True, True]
        assert owned.rows == "a=1 b=1"
        with pytest.raises(StoreError):
            clients.send("P a=2")
