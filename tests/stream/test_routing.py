"""What a worker answers by the catalog that it knows, and when it reads the catalog first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from rowtide.core.cluster.catalog import (
    TABLE,
    Document,
    revocation_document,
    table_content,
    table_id,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import RangePartRequest
from rowtide.core.records.position import Position, encode_position
from rowtide.core.shard.transaction_id import session_missing
from rowtide.core.values.errors import Elsewhere, LogTrimmed, Rejected, no_table
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    LOCAL,
    Index,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
    TableOptions,
)
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.http.edge import Handler
from rowtide.stream.routing.fan_out import HERE, FanOut
from rowtide.stream.routing.routing import Awaited, Divided, Router
from rowtide.stream.shard.lapsed_lease import LeaseLapsed
from tests.contract.memory_log import MemoryLog
from tests.support.waiting import SOON_S

ANN = Identity("key-of-ann", "shop", b"")
SLOT = 1
ENABLED_AT_US = 1


class CountingLog(MemoryLog):
    """A log that counts how often its end was asked for: once per reading of the catalog."""

    asked = 0

    async def bounds(self) -> tuple[int, int]:
        self.asked += 1
        return await super().bounds()


class DeposedLog(CountingLog):
    """A log that reports ``old_end`` to its reader until it appends."""

    old_end: int | None = None

    async def bounds(self) -> tuple[int, int]:
        start, end = await super().bounds()
        return start, end if self.old_end is None else self.old_end

    async def append(self, entries: Sequence[tuple[bytes, bytes]], *, deadline_s: float) -> int:
        self.old_end = None
        return await super().append(entries, deadline_s=deadline_s)


class Follower:
    """A worker that follows the catalog of ``first``, and asks no other worker."""

    def __init__(self, log: CountingLog) -> None:
        self.first = CatalogOwner(log.twin(), log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
        self.tail = log.twin()
        self.owner = CatalogOwner(log.twin(), self.tail, owner=b"ownerid2", clock_us=lambda: 1)
        self.serving = False
        self.handlers: dict[str, Handler] = {
            "GetRow": self.get_row,
            "PutRow": self.put_row,
            "BatchWriteRow": self.batch_write_row,
            "ListTable": self.list_table,
            "CommitTransaction": self.commit,
        }
        self.directory = directory = Directory(self.owner.catalog, {}, Limits(), lambda: 1)
        streams = StreamOperations(directory)
        self.handlers["GetStreamRecord"] = streams.get_stream_record
        self.handlers["ListStream"] = streams.list_stream
        self.handlers["DescribeStream"] = streams.describe_stream
        fan_out = FanOut(directory, dict, self.router_ask, self.owner.refresh, address="b:1")
        divided = Divided(fan_out, lambda _identity, _body: True, fan_out.write)
        self._divided = {"BatchWriteRow": divided}
        self.router = self.make_router()

    def make_router(self) -> Router:
        """Return a router of the handlers as they are now."""
        return Router(
            self.handlers,
            {RangePartRequest.operation: self.get_range_part},
            self.owner,
            HopClient(lambda: None),
            dict,
            lambda _slot: self.serving,
            self._divided,
            {},
            address="b:1",
        )

    def router_ask(self, at: str, operation: str, identity: Identity, body: bytes) -> Awaited:
        return self.router.ask(at, operation, identity, body)

    def put_row(self, identity: Identity, body: bytes) -> bytes:
        if self.owner.catalog.table(identity.instance, body.decode()) is None:
            raise no_table()
        return b"put"

    def get_row(self, identity: Identity, body: bytes) -> bytes:
        self.directory.check_index_read(self.directory.table(identity.instance, body.decode()))
        return b"row"

    def get_range_part(self, identity: Identity, body: bytes) -> bytes:
        part = RangePartRequest.decode(body)
        name = pb.GetRangeRequest.FromString(part.request).table_name
        if self.owner.catalog.table(identity.instance, name) is None:
            raise no_table()
        return ",".join(part.shards).encode()

    async def batch_write_row(self, identity: Identity, body: bytes) -> bytes:
        named = [t.table_name for t in pb.BatchWriteRowRequest.FromString(body).tables]
        known = [self.owner.catalog.table(identity.instance, name) is not None for name in named]
        return repr(known).encode()

    def list_table(self, identity: Identity, _body: bytes) -> bytes:
        return ",".join(t.name for t in self.owner.catalog.tables_of(identity.instance)).encode()

    async def commit(self, _identity: Identity, _body: bytes) -> bytes:
        await asyncio.sleep(0)
        raise session_missing()

    async def create(self, name: str) -> None:
        """Create a table of which the follower has not read."""
        await self.first.change(lambda _catalog, _stamp: _table(name))

    async def pass_on(self, operation: str, body: bytes) -> tuple[bytes, int]:
        """Pass a request on; return the answer and how often the catalog was read for it."""
        return await self.count_reads(lambda: self.router.answer_forwarded(ANN, operation, body))

    async def ask(self, operation: str, body: bytes) -> tuple[bytes, int]:
        """Ask as a client does."""
        return await self.count_reads(lambda: self.router.make_handlers()[operation](ANN, body))

    async def count_reads(self, ask: Callable[[], Awaited]) -> tuple[bytes, int]:
        before = self.tail.asked
        answer = ask()
        reply = answer if isinstance(answer, bytes) else await answer
        return reply, self.tail.asked - before


def _table(name: str, shard: ShardRange | None = None) -> list[Document]:
    table = _make_table(name, shard)
    return [Document(TABLE, table_id(table), table_content(table))]


def _make_table(name: str, shard: ShardRange | None = None) -> Table:
    return Table(
        instance=ANN.instance,
        name=name,
        table_id=ord(name[0]),
        key=(KeyColumn("PK1", 1),),
        options=TableOptions(),
        stream=StreamSettings(f"{name}_1", ENABLED_AT_US, 24, ()),
        reserved_read=0,
        reserved_write=0,
        created_us=0,
        throughput_changed_s=0,
        shards=(shard or ShardRange(f"s{name}", SLOT),),
        split_points=(),
    )


def _make_indexed(*, building: bool) -> list[Document]:
    """Return the table ``c`` with a local index ``d``."""
    index = Index("d", 100, LOCAL, ("PK1", "n"), (), 0, building=building)
    changed = replace(_make_table("c"), indexes=(index,), defined_columns=(("n", 1),))
    return [Document(TABLE, table_id(changed), table_content(changed))]


def batch(names: Iterable[str]) -> bytes:
    tables = [pb.TableInBatchWriteRowRequest(table_name=name) for name in names]
    return pb.BatchWriteRowRequest(tables=tables).SerializeToString()


@pytest.fixture
async def follower() -> Follower:
    """A worker that knows the table ``a``, but not yet ``b``."""
    found = Follower(CountingLog())
    await found.first.open(1)
    await found.create("a")
    await found.owner.refresh()
    await found.create("b")
    return found


async def test_what_is_known_is_answered_without_reading_the_catalog(follower: Follower) -> None:
    assert await follower.pass_on("PutRow", b"a") == (b"put", 0)
    assert await follower.pass_on("BatchWriteRow", batch("aa")) == (b"[True, True]", 0)
    assert await follower.ask("PutRow", b"a") == (b"put", 0)


async def test_what_was_made_meanwhile_is_found_by_reading_once(follower: Follower) -> None:
    assert await follower.pass_on("PutRow", b"b") == (b"put", 1)
    assert await follower.pass_on("PutRow", b"b") == (b"put", 0)


async def test_a_batch_reads_first_where_it_names_an_unknown_table(follower: Follower) -> None:
    assert await follower.pass_on("BatchWriteRow", batch("ab")) == (b"[True, True]", 1)
    assert await follower.pass_on("BatchWriteRow", batch("abc")) == (b"[True, True, False]", 1)


@pytest.mark.parametrize("ask", [Follower.pass_on, Follower.ask], ids=["worker", "client"])
async def test_nothing_is_called_absent_before_the_catalog_was_read(
    follower: Follower, ask: Callable[..., object]
) -> None:
    before = follower.tail.asked
    for operation in ("PutRow", "CommitTransaction"):
        with pytest.raises(Rejected, match="not exist"):
            await ask(follower, operation, b"c")  # type: ignore[misc]
    assert follower.tail.asked == before + 2


@pytest.mark.parametrize("later", [False, True], ids=["at once", "awaited"])
async def test_after_a_lapsed_lease_nothing_is_called_absent_either(
    follower: Follower, *, later: bool
) -> None:
    """The request waits for the lease, and then meets a table that it has not read of."""
    lapses = 1

    async def renew() -> None:
        nonlocal lapses
        lapses = 0

    def put(identity: Identity, body: bytes) -> bytes:
        if lapses:
            raise LeaseLapsed(renew)
        return follower.put_row(identity, body)

    async def put_later(identity: Identity, body: bytes) -> bytes:
        return put(identity, body)

    follower.handlers["PutRow"] = put_later if later else put
    routed = follower.make_router().make_handlers()["PutRow"]
    assert await follower.count_reads(lambda: routed(ANN, b"b")) == (b"put", 1)
    before, lapses = follower.tail.asked, 1
    with pytest.raises(Rejected, match="not exist"):
        await follower.count_reads(lambda: routed(ANN, b"c"))
    assert (follower.tail.asked, lapses) == (before + 1, 0)


def part_of_range(name: str) -> bytes:
    shard = f"s{name}".encode()
    request = pb.GetRangeRequest(
        table_name=name,
        direction=pb.FORWARD,
        inclusive_start_primary_key=b"",
        exclusive_end_primary_key=b"",
    )
    return len(shard).to_bytes(2) + shard + request.SerializeToString()


async def test_a_part_of_a_range_finds_a_table_that_was_made_meanwhile(follower: Follower) -> None:
    """The worker that divided the range has read of the table, and this one has its shard."""
    assert await follower.pass_on(RangePartRequest.operation, part_of_range("a")) == (b"sa", 0)
    assert await follower.pass_on(RangePartRequest.operation, part_of_range("b")) == (b"sb", 1)
    before = follower.tail.asked
    with pytest.raises(Rejected, match="not exist"):
        await follower.pass_on(RangePartRequest.operation, part_of_range("c"))
    assert follower.tail.asked == before + 1


def stream_request(shard_id: str) -> bytes:
    iterator = encode_position(Position(shard_id, ENABLED_AT_US, 0))
    return pb.GetStreamRecordRequest(shard_iterator=iterator).SerializeToString()


async def test_no_shard_is_called_trimmed_before_the_catalog_was_read(follower: Follower) -> None:
    """Its id may have come from a worker that had read of the shard's split a moment earlier."""
    with pytest.raises(Elsewhere) as elsewhere:
        await follower.pass_on("GetStreamRecord", stream_request("sb"))
    assert elsewhere.value.slot == SLOT
    before = follower.tail.asked
    with pytest.raises(LogTrimmed):
        await follower.pass_on("GetStreamRecord", stream_request("sc"))
    assert follower.tail.asked == before + 1


async def test_no_shard_is_called_trimmed_by_what_a_deposed_leader_tells() -> None:
    log = DeposedLog()
    follower = Follower(log)
    await follower.first.open(1)
    await follower.create("a")
    await follower.owner.refresh()
    assert isinstance(follower.tail, DeposedLog)
    _, follower.tail.old_end = await follower.tail.bounds()
    await follower.first.change(lambda _c, _s: _table("b", ShardRange("s7", SLOT)))
    await follower.owner.refresh()
    assert "s7" not in follower.owner.catalog.shards
    with pytest.raises(Elsewhere):
        await follower.pass_on("GetStreamRecord", stream_request("s7"))
    with pytest.raises(LogTrimmed):
        await follower.pass_on("GetStreamRecord", stream_request("s9"))


async def test_no_local_index_is_refused_before_the_catalog_was_read(follower: Follower) -> None:
    """A client that reads of a table that its index is built may have read it at another
    worker.
    """
    await follower.first.change(lambda _catalog, _stamp: _make_indexed(building=True))
    await follower.owner.refresh()
    before = follower.tail.asked
    with pytest.raises(Rejected, match="Disallow read local index"):
        await follower.pass_on("GetRow", b"d")
    assert follower.tail.asked == before + 1
    await follower.first.change(lambda _catalog, _stamp: _make_indexed(building=False))
    assert await follower.pass_on("GetRow", b"d") == (b"row", 1)
    assert await follower.pass_on("GetRow", b"d") == (b"row", 0)


async def test_tables_are_listed_by_the_catalog_as_it_is_now(follower: Follower) -> None:
    assert await follower.pass_on("ListTable", b"") == (b"a,b", 1)
    assert await follower.pass_on("ListTable", b"") == (b"a,b", 1)


async def test_streams_are_listed_by_the_catalog_as_it_is_now(follower: Follower) -> None:
    asked = pb.ListStreamRequest(table_name="b").SerializeToString()
    answer, count = await follower.ask("ListStream", asked)
    assert [s.stream_id for s in pb.ListStreamResponse.FromString(answer).streams] == ["b_1"]
    assert count == 1


async def test_shards_of_a_stream_are_listed_by_the_catalog_as_it_is_now(
    follower: Follower,
) -> None:
    """A reader that learns of a shard's end from one worker finds its children at every other."""
    child = ShardRange("sa2", SLOT, parents=("sa",))
    await follower.first.change(lambda _catalog, _stamp: _table("a", child))
    asked = pb.DescribeStreamRequest(stream_id="a_1").SerializeToString()
    answer, count = await follower.ask("DescribeStream", asked)
    assert [s.shard_id for s in pb.DescribeStreamResponse.FromString(answer).shards] == ["sa2"]
    assert count == 1


async def test_an_owner_reads_its_own_catalog_only_while_its_lease_holds(
    follower: Follower,
) -> None:
    await follower.owner.open(2)
    follower.serving = True
    assert await follower.ask("ListTable", b"") == (b"a,b", 0)
    follower.serving = False  # It slept, perhaps, and another one owns the catalog by now.
    assert await follower.ask("ListTable", b"") == (b"a,b", 1)
    with pytest.raises(Rejected):
        await follower.ask("PutRow", b"c")
    assert follower.tail.asked >= 2


class SlowLog(CountingLog):
    """A log that holds back the answer to an append, which is durable, while ``held``."""

    held: asyncio.Event | None = None

    async def append(self, entries: Sequence[tuple[bytes, bytes]], *, deadline_s: float) -> int:
        base = await super().append(entries, deadline_s=deadline_s)
        if self.held is not None:
            await self.held.wait()
        return base


async def test_an_owner_lists_what_others_have_read_of_before_it_was_told_that_it_stands() -> None:
    """A reader that learns of a shard's end from one of them finds its children here, too."""
    follower = Follower(SlowLog())
    owner, log = follower.owner, follower.owner._log
    assert isinstance(log, SlowLog)
    await owner.open(1)
    await owner.change(lambda _catalog, _stamp: _table("a"))
    follower.serving = True
    child = ShardRange("sa2", SLOT, parents=("sa",))
    log.held = asyncio.Event()
    asked = pb.DescribeStreamRequest(stream_id="a_1").SerializeToString()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        change = owner.change(lambda _catalog, _stamp: _table("a", child))
        tasks.create_task(change, name="change")
        while "sa2" not in follower.first.catalog.shards:
            await asyncio.sleep(0)
            await follower.first.refresh()
        task = tasks.create_task(follower.ask("DescribeStream", asked), name="describe")
        await asyncio.sleep(0.01)
        log.held.set()
    shards = pb.DescribeStreamResponse.FromString(task.result()[0]).shards
    assert [shard.shard_id for shard in shards] == ["sa2"]


async def test_a_part_of_a_batch_for_this_worker_reads_nothing(follower: Follower) -> None:
    answer = await follower.count_reads(
        lambda: follower.router.ask(HERE, "BatchWriteRow", ANN, batch("a"))
    )
    assert answer == (b"[True]", 0)


async def test_a_revoked_key_is_refused_whoever_let_it_in() -> None:
    """A worker that is cut off from Kafka may pass its requests on."""
    log = CountingLog()
    follower = Follower(log)
    await follower.first.open(1)
    await follower.create("orders")
    assert (await follower.pass_on("PutRow", b"orders"))[0] == b"put"
    await follower.first.change(lambda _c, _s: [revocation_document(ANN.access_key_id)])
    await follower.owner.refresh()
    with pytest.raises(Rejected, match="does not exist") as refused:
        await follower.pass_on("PutRow", b"orders")
    assert refused.value.code == "OTSAuthFailed"
