"""An owner's transactions on a log in memory: locks, unknown outcomes, restarts, bounds."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.records.record import SINGLE, Envelope, encode_body, encode_record
from rowtide.core.shard.group import AtomicBatch
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState, options_body
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.stream.shard.owner import ShardOwner, ShardSettings
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore, StoreFailed
from rowtide.stream.shard.waiting import Reply, Tell
from tests.contract.memory_log import Fault, MemoryLog
from tests.core.shard_model import NOW_US, change, shown_rows, table
from tests.support.waiting import SOON_S

Submit = Callable[[Tell], None]
P, Q = variant.encode("p"), variant.encode("q")


def name(number: int) -> TransactionId:
    """Return an id."""
    return TransactionId("s1", NOW_US, number)


@dataclass
class Owned:
    """A shard's owner that runs."""

    owner: ShardOwner
    log: MemoryLog
    leased: bool = True

    async def ask(self, submit: Submit) -> str:
        """Return a client's answer: ok, or the code of the failure."""
        reply = Reply(asyncio.get_running_loop())
        try:
            submit(reply)
            await reply.future
        except StoreError as error:
            return error.code
        return "ok"

    async def write(self, text: str, partition: str = "p") -> str:
        """Write one row outside of any transaction."""
        return await self.ask(lambda tell: self.owner.submit(change(text, partition), tell))

    async def begin(self, number: int, partition_key: bytes = P) -> str:
        """Open a transaction."""
        return await self.ask(lambda tell: self.owner.begin(name(number), partition_key, tell))

    def apply(self, number: int, text: str, partition: str = "p") -> str:
        """Write one row within a transaction."""
        try:
            self.owner.apply(name(number), change(text, partition))
        except StoreError as error:
            return error.code
        return "ok"

    async def commit(self, number: int) -> str:
        """Commit a transaction."""
        return await self.ask(lambda tell: self.owner.commit(name(number), tell))

    def abort(self, number: int) -> str:
        """Abort a transaction."""
        try:
            self.owner.abort(name(number))
        except StoreError as error:
            return error.code
        return "ok"

    async def batch(self, *texts: str) -> str:
        """Write an atomic batch."""
        batch = AtomicBatch([change(text) for text in texts])
        return await self.ask(lambda tell: self.owner.submit_group(batch, tell))

    @property
    def rows(self) -> str:
        """The rows as any reader sees them."""
        return shown_rows(self.owner.rows)


OPEN = Limits()


@asynccontextmanager
async def running(
    path: Path,
    log: MemoryLog | None = None,
    *,
    limits: Limits = OPEN,
    settings: ShardSettings | None = None,
    of: Table | None = None,
) -> AsyncIterator[Owned]:
    """Open a shard from its log and serve it: the one of a table, or one ``of`` another."""
    log = log or MemoryLog()
    rows = RowStore(path)
    of = of or table()
    shard = Shard("s1", of, rows, ShardState(of.options), limits=limits)
    shard.adopt_claim(1, b"ownerid8")
    clock = iter(range(NOW_US, NOW_US + 10**9, 1000))
    owned = Owned(None, log)  # type: ignore[arg-type]  # The owner asks it for its lease.
    owner = owned.owner = ShardOwner(
        shard,
        log,
        rows,
        clock_us=lambda: next(clock),
        lease=ReadLease(lambda: owned.leased),
        settings=settings or ShardSettings(),
    )
    _, end = await log.bounds()
    owner.fold.replay(await log.read(0, bytes_max=1 << 20) if end else [])
    owner.open()
    try:
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(owner.run())
            yield owned
            run.cancel()
    finally:
        rows.close()


async def test_a_partition_key_is_held_until_the_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        assert await owned.write("P a=1") == "ok"
        assert await owned.begin(1) == "ok"
        assert await owned.begin(2) == "OTSRowOperationConflict"
        assert await owned.write("P a=5") == "OTSRowOperationConflict"
        assert await owned.batch("P a=5", "P b=5") == "OTSRowOperationConflict"
        assert await owned.write("P a=5", "q") == "ok"
        assert await owned.begin(3, Q) == "ok"
        assert owned.apply(1, "U a+1") == "ok"
        assert owned.rows == "a=1", "others read what was last committed"
        assert await owned.commit(1) == "ok"
        assert owned.rows == "a=2"
        assert await owned.write("U a+1") == "ok"
        assert await owned.begin(2) == "ok"


async def test_an_abort_lets_go_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await owned.begin(1)
        owned.apply(1, "P a=1")
        assert owned.abort(1) == "ok"
        assert owned.abort(1) == "OTSSessionNotExist"
        assert await owned.commit(1) == "OTSSessionNotExist"
        assert owned.apply(1, "P a=1") == "OTSSessionNotExist"
        assert await owned.batch("P b=1") == "ok"
        assert owned.rows == "b=1"


async def test_a_commit_may_be_repeated(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await owned.begin(1)
        owned.apply(1, "P a=1")
        assert [await owned.commit(1), await owned.commit(1)] == ["ok", "ok"]
        assert owned.abort(1) == "OTSSessionNotExist"
        assert await owned.commit(9) == "OTSSessionNotExist"
        assert owned.owner.end == 2


def commits(owned: Owned) -> list[bytes]:
    """Return the store keys of commits that are not flushed."""
    return sorted(key for key in owned.owner.ledger.keys if key[:1] == b"t")


async def test_a_repeated_commit_succeeds_after_a_restart(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path / "one", log) as owned:
        await owned.begin(1)
        owned.apply(1, "P a=1")
        await owned.commit(1)
        await owned.begin(2)
        owned.apply(2, "P a=9")
    async with running(tmp_path / "two", log) as owned:
        assert await owned.commit(1) == "ok"
        assert await owned.commit(2) == "OTSSessionNotExist"
        assert owned.rows == "a=1"
        assert commits(owned) == [b"t" + bytes.fromhex(str(name(1))[3:])]


async def test_old_commits_are_found_by_their_start(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        for number in (1, 2):
            await owned.begin(number)
            await owned.commit(number)
        rows = owned.owner.rows
        assert rows.old_commits(NOW_US) == []
        assert rows.old_commits(NOW_US + 1) == commits(owned)
        assert len(rows.old_commits(NOW_US + 1, count=1)) == 1


async def test_two_commits_at_once_are_one(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await owned.begin(1)
        owned.apply(1, "U a+1")
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(owned.commit(1)) for _ in range(3)]
            await asyncio.sleep(0)
            assert owned.apply(1, "U a+1") == "OTSRowOperationConflict"
            assert owned.abort(1) == "OTSRowOperationConflict"
        assert [task.result() for task in asked] == ["ok"] * 3
        assert owned.rows == "a=1"


async def test_a_transaction_begins_when_what_was_written_before_stands(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(owned.write("P a=1"))
            begun = tasks.create_task(owned.begin(1))
            await begun
            assert owned.rows == "a=1"
        owned.apply(1, "U a+1")
        await owned.commit(1)
        assert owned.rows == "a=2"


@contextmanager
def late_appends(owned: Owned) -> Iterator[asyncio.Event]:
    """Let the log append nothing before the event."""
    append, gate = owned.log.append, asyncio.Event()

    async def append_late(*args: Any, **more: Any) -> int:
        await gate.wait()
        return await append(*args, **more)

    with patch.object(owned.log, "append", append_late):
        yield gate


async def test_a_transaction_waits_for_no_write_to_another_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        with late_appends(owned) as gate:
            async with asyncio.TaskGroup() as tasks:
                writes = [tasks.create_task(owned.write("P a=1", "q"))]
                await asyncio.sleep(0)
                assert await owned.begin(1) == "ok"
                writes.append(tasks.create_task(owned.batch("P a=1", "P b=2")))
                await asyncio.sleep(0)
                assert await writes[1] == "OTSRowOperationConflict", "it is held from the begin"
                begun = tasks.create_task(owned.begin(2, Q))
                await asyncio.sleep(0)
                assert not begun.done()
                assert not writes[0].done()
                gate.set()
        assert begun.result() == "ok"


async def test_a_transaction_waits_for_a_rejected_write_to_its_rows(tmp_path: Path) -> None:
    """It would be evaluated again, and perhaps accepted, if the batch before it were void."""
    async with running(tmp_path) as owned:
        with late_appends(owned) as gate:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(owned.write("P a=1", "q"))
                await asyncio.sleep(0)
                rejected = tasks.create_task(owned.write("P? b=1"))
                await asyncio.sleep(0)
                begun = tasks.create_task(owned.begin(1))
                await asyncio.sleep(0)
                assert not begun.done()
                gate.set()
        assert rejected.result() == "OTSConditionCheckFail"
        assert begun.result() == "ok"


@contextmanager
def unreadable(owned: Owned, name: str) -> Iterator[None]:
    """Let a row not be read for a while, as where a process has too many files open."""
    rows = owned.owner.rows
    read = rows.get

    def reading(key: bytes) -> bytes | None:
        if name.encode() in key:
            raise StoreFailed("Too many open files")
        return read(key)

    with patch.object(rows, "get", reading):
        yield


async def test_a_commit_that_could_not_read_a_row_may_be_tried_again(tmp_path: Path) -> None:
    """It counted as committing: its partition key was held for good, without an answer."""
    async with running(tmp_path) as owned:
        await owned.write("P row=1")
        await owned.begin(1)
        owned.apply(1, "U row+1")
        with unreadable(owned, "row"), pytest.raises(StoreFailed):
            await owned.commit(1)
        assert await owned.write("P row=9") == "OTSRowOperationConflict", "it is still open"
        async with asyncio.timeout(SOON_S):
            assert await owned.commit(1) == "ok"
        assert owned.rows == "row=2"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.DELAYED])
async def test_an_unknown_outcome_is_settled_once(tmp_path: Path, fault: Fault) -> None:
    async with running(tmp_path) as owned:
        await owned.write("P a=1")
        await owned.begin(1)
        owned.apply(1, "U a+1")
        owned.apply(1, "P b=1")
        owned.log.fault = fault
        assert await owned.commit(1) == "ok"
        if owned.log.delayed:
            owned.log.land_late()
        assert await owned.write("U a+10") == "ok"
        assert owned.rows == "a=12 b=1"
    async with running(tmp_path / "again", owned.log) as again:
        assert again.rows == "a=12 b=1"


async def test_a_commit_that_was_not_written_may_be_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path, settings=ShardSettings(write_s_max=0.0)) as owned:
        await owned.begin(1)
        owned.apply(1, "P a=1")
        owned.log.fault = Fault.REFUSED
        assert await owned.commit(1) == "OTSPartitionUnavailable"
        assert await owned.write("P a=9") == "OTSRowOperationConflict", "it is still open"
        assert owned.apply(1, "U a+1") == "ok"
        assert await owned.commit(1) == "ok"
        assert owned.rows == "a=2"


async def test_a_late_commit_is_unknown_and_holds_its_key_until_it_is_known(tmp_path: Path) -> None:
    async with running(tmp_path, settings=ShardSettings(write_s_max=0.0)) as owned:
        await owned.begin(1)
        owned.apply(1, "P a=1")
        reply = Reply(asyncio.get_running_loop())
        owned.owner.commit(name(1), reply)
        await asyncio.sleep(0)
        owned.owner.expire()
        with pytest.raises(OutcomeUnknown):
            await reply.future
        assert await owned.write("P a=9") == "OTSRowOperationConflict"
        assert await owned.commit(1) == "ok"
        assert await owned.write("U a+1") == "ok"
        assert owned.rows == "a=2"


async def test_a_transaction_ends_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path, limits=Limits(transaction_s_max=0.0)) as owned:
        await owned.begin(1)
        assert owned.apply(1, "P a=1") == "OTSSessionNotExist"
        assert await owned.commit(1) == "OTSSessionNotExist"
        await owned.begin(2)
        assert await owned.write("P a=1") == "ok", "the write that meets its lock ends it"
        await owned.begin(3)
        owned.owner.expire()
        assert owned.owner.transactions.locks == {}


async def test_the_number_and_the_memory_of_transactions_are_bounded(tmp_path: Path) -> None:
    settings = ShardSettings(transactions_max=1, transactions_bytes_max=1)
    async with running(tmp_path, settings=settings) as owned:
        await owned.begin(1)
        assert await owned.begin(2, Q) == "OTSServerBusy"
        assert owned.apply(1, "P a=1") == "ok"
        assert owned.apply(1, "P b=1") == "OTSServerBusy"
        await owned.commit(1)
        assert await owned.begin(2, Q) == "ok"
        assert owned.apply(2, "P a=1", "q") == "ok"


async def test_without_the_lease_nothing_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await owned.begin(1)
        await owned.begin(2, Q)
        await owned.commit(2)
        owned.leased = False
        assert owned.apply(1, "P a=1") == "OTSPartitionUnavailable"
        assert await owned.begin(3, variant.encode("r")) == "OTSPartitionUnavailable"
        assert await owned.commit(2) == "OTSPartitionUnavailable"
        assert await owned.commit(1) == "ok", "what stands in the log needs no lease"


async def test_a_drain_ends_open_transactions_and_answers_commits(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await owned.begin(1)
        await owned.begin(2, Q)
        owned.apply(1, "P a=1")
        async with asyncio.TaskGroup() as tasks:
            commit = tasks.create_task(owned.commit(1))
            await asyncio.sleep(0)
            await owned.owner.drain()
        assert commit.result() == "ok"
        assert owned.owner.transactions.locks == {}
        assert owned.apply(2, "P a=1", "q") == "OTSPartitionUnavailable"
        assert owned.rows == "a=1"


async def test_groups_and_writes_share_a_batch_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        async with asyncio.TaskGroup() as tasks:
            for step in range(5):
                tasks.create_task(owned.write(f"U a+{step}"))
                tasks.create_task(owned.batch("U a+1", f"P b={step}"))
        assert owned.rows == "a=15 b=4"
    async with running(tmp_path / "again", owned.log) as again:
        assert again.rows == "a=15 b=4"


async def test_an_owner_that_was_replaced_closes_and_says_so_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as owned:
        later = encode_record(
            Envelope(0, 2, b"ownerid9", NOW_US, SINGLE), encode_body(options_body(table()))
        )
        await owned.log.append([(b"", later)], deadline_s=1.0)
        assert await owned.write("P a=1") == "OTSPartitionUnavailable"
    [record] = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.getMessage() == (
        "shard s1 stopped: shard s1 has a later owner; this one steps down"
    )
    assert not record.exc_info, "a traceback is for a fault"
