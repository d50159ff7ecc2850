"""Batches of several workers' rows: every part, and the answer, is what its messages would be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, ShardRange, Table, TableOptions
from rowtide.stream.api.batch_parts import PartResult, divide, join_answers, part_bodies, row_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row import RowOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.routing.fan_out import HERE, FanOut
from tests.contract.memory_log import MemoryLog

ANN = Identity("key-of-ann", "shop", b"")
WORKERS = [HERE, "b:1", "c:1"]

SIZES = st.sampled_from([0, 1, 100, 123, 124, 125, 127, 128, 129, 16_370, 16_384, 70_000])
ROWS = st.builds(
    pb.RowInBatchWriteRowRequest,
    type=st.none() | st.sampled_from([pb.PUT, pb.DELETE]),
    row_change=st.none() | SIZES.map(bytes),
    condition=st.none() | st.just(pb.Condition(row_existence=pb.IGNORE)),
)
TABLES = st.builds(
    pb.TableInBatchWriteRowRequest,
    table_name=st.sampled_from(["", "a", "b", "a" * 130]),
    rows=st.lists(ROWS, max_size=5),
)
REQUESTS = st.builds(
    pb.BatchWriteRowRequest,
    tables=st.lists(TABLES, min_size=1, max_size=3),
    is_atomic=st.none() | st.booleans(),
)
WHOSE = st.lists(st.sampled_from(WORKERS), min_size=5, max_size=5)
RESULTS = st.builds(
    pb.RowInBatchWriteRowResponse,
    is_ok=st.booleans(),
    row=st.none() | SIZES.map(bytes),
    error=st.none() | st.just(pb.Error(code="OTSInvalidPK", message="m" * 130)),
)


def draw_addresses(request: pb.BatchWriteRowRequest, draw: st.DataObject) -> list[list[str]]:
    """Return whose each row is, by table."""
    return [draw.draw(WHOSE)[: len(table.rows)] for table in request.tables]


def build_parts(
    request: pb.BatchWriteRowRequest, whose: Sequence[Sequence[str]]
) -> dict[str, pb.BatchWriteRowRequest]:
    """Return every worker's part, made of messages."""
    found: dict[str, pb.BatchWriteRowRequest] = {}
    for table, addresses in zip(request.tables, whose, strict=True):
        for address in dict.fromkeys(addresses):
            part = found.setdefault(address, pb.BatchWriteRowRequest())
            if request.is_atomic:
                part.is_atomic = True
            rows = [r for r, at in zip(table.rows, addresses, strict=True) if at == address]
            part.tables.add(table_name=table.table_name, rows=rows)
    return found


def parts(
    request: pb.BatchWriteRowRequest, whose: Sequence[Sequence[str]], body: bytes
) -> dict[str, pb.BatchWriteRowRequest]:
    """Return every worker's part, as it is sent."""
    fields = row_fields(body, [len(table.rows) for table in request.tables])
    bodies = part_bodies(request, fields, divide(request, whose))
    return {at: pb.BatchWriteRowRequest.FromString(part) for at, part in bodies.items()}


@given(REQUESTS, st.data())
def test_each_worker_gets_its_rows_in_their_order(
    request: pb.BatchWriteRowRequest, draw: st.DataObject
) -> None:
    whose = draw_addresses(request, draw)
    assert parts(request, whose, request.SerializeToString()) == build_parts(request, whose)


LONG_ZERO = b"\x80\x80\x00"
UNUSUAL = {
    "a length in more bytes than it takes": b"\x0a\x84\x00\x12\x02\x08\x01",
    "a row's length likewise": b"\x0a\x06\x12\x82\x80\x00\x08\x01",
    "a tag likewise": b"\x0a\x05\x92\x00\x02\x08\x01",
    "a number likewise": b"\x0a\x04\x12\x02\x08\x01\x18" + LONG_ZERO,
    "a name behind the rows": b"\x0a\x0a\x12\x02\x08\x01\x0a\x01a\x0a\x01b",
    "a field of eight bytes": b"\x0a\x04\x12\x02\x08\x01\x29" + bytes(8),
    "a field of four bytes": b"\x0a\x09\x12\x02\x08\x01\x2d" + bytes(4),
    "a group": b"\x0a\x06\x12\x02\x08\x01\x2b\x2c",
    "a field nobody knows": b"\x0a\x07\x12\x02\x08\x01\x3a\x01x\x3a\x02\x12\x00",
    "rows as a number": b"\x0a\x06\x12\x02\x08\x01\x10\x01",
    "a table as a number": b"\x08\x01\x0a\x04\x12\x02\x08\x01",
}


@pytest.mark.parametrize("body", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_written_otherwise_is_divided_alike(body: bytes) -> None:
    request = pb.BatchWriteRowRequest.FromString(body)
    assert [len(table.rows) for table in request.tables] == [1]
    for address in WORKERS:
        assert parts(request, [[address]], body) == build_parts(request, [[address]])


@given(REQUESTS, st.data())
def test_results_come_in_the_order_of_the_request(
    request: pb.BatchWriteRowRequest, draw: st.DataObject
) -> None:
    whose = draw_addresses(request, draw)
    whole = pb.BatchWriteRowResponse()
    answers: dict[str, pb.BatchWriteRowResponse] = {}
    for table, addresses in zip(request.tables, whose, strict=True):
        of_all = whole.tables.add(table_name=table.table_name).rows
        its = {
            at: answers.setdefault(at, pb.BatchWriteRowResponse()).tables.add(
                table_name=table.table_name
            )
            for at in dict.fromkeys(addresses)
        }
        for address in addresses:
            row = draw.draw(RESULTS)
            of_all.append(row)
            its[address].rows.append(row)
    parts: dict[str, PartResult] = {
        at: answer.SerializeToString() for at, answer in answers.items()
    }
    assert join_answers(request, whose, parts) == whole.SerializeToString()


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(Unavailable(), bytes), (OutcomeUnknown(), UnknownWithin)],
    ids=["unavailable", "unknown"],
)
def test_a_part_without_an_answer_fails_row_by_row(
    failure: Unavailable | OutcomeUnknown, kind: type
) -> None:
    request = pb.BatchWriteRowRequest()
    request.tables.add(table_name="a", rows=[pb.RowInBatchWriteRowRequest()] * 4)
    fine = pb.RowInBatchWriteRowResponse(is_ok=True)
    part = pb.BatchWriteRowResponse()
    part.tables.add(table_name="a", rows=[fine] * 2)
    answers: dict[str, PartResult] = {HERE: part.SerializeToString(), "b:1": failure}
    answer = join_answers(request, [["b:1", HERE, "b:1", HERE]], answers)
    error = pb.Error(code=failure.code, message=failure.message)
    failed = pb.RowInBatchWriteRowResponse(is_ok=False, error=error)
    whole = pb.BatchWriteRowResponse()
    whole.tables.add(table_name="a", rows=[failed, fine] * 2)
    assert type(answer) is kind
    assert answer == whole.SerializeToString()


# The part of the worker that was asked.


def table(options: TableOptions | None = None) -> Table:
    middle = b"\x04m\x00\x01"
    return Table(
        instance=ANN.instance,
        name="t",
        table_id=1,
        key=(KeyColumn("pk", STRING), KeyColumn("n", INTEGER)),
        options=options or TableOptions(),
        stream=None,
        reserved_read=0,
        reserved_write=0,
        created_us=0,
        throughput_changed_s=0,
        shards=(ShardRange("s1", 1, end=middle), ShardRange("s2", 2, begin=middle)),
        split_points=(),
    )


class UnopenedWorker:
    """A worker that has slot 1 by the group's word, but has not opened it."""

    def __init__(self) -> None:
        log = MemoryLog()
        self.catalog = CatalogOwner(log.twin(), log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
        self.directory = Directory(self.catalog.catalog, {}, Limits(), lambda: 1)
        self.rows = RowOperations(self.directory)
        self.asked: list[tuple[str, int]] = []
        owners = {1: "a:1", 2: "b:1"}
        self.fan_out = FanOut(
            self.directory, lambda: owners, self.ask, self.catalog.refresh, address="a:1"
        )

    async def ask(self, address: str, _operation: str, _identity: Identity, body: bytes) -> bytes:
        request = pb.BatchWriteRowRequest.FromString(body)
        self.asked.append((address, sum(len(table.rows) for table in request.tables)))
        answer = pb.BatchWriteRowResponse()
        for wanted in request.tables:
            rows = [pb.RowInBatchWriteRowResponse(is_ok=True)] * len(wanted.rows)
            answer.tables.add(table_name=wanted.table_name, rows=rows)
        return answer.SerializeToString()

    async def make(self, made: Table) -> None:
        content = Document(TABLE, table_id(made), table_content(made))
        await self.catalog.change(lambda _catalog, _stamp: [content])


def batch(*names: str, of: str = "t") -> bytes:
    """Return a batch of puts of these rows."""
    request = pb.BatchWriteRowRequest()
    wanted = request.tables.add(table_name=of)
    for name in names:
        key = [(b"pk", variant.encode(name)), (b"n", variant.encode(1))]
        row = plainbuffer.HEADER + plainbuffer.encode_row(key, [])
        wanted.rows.add(type=pb.PUT, row_change=row)
    return request.SerializeToString()


@pytest.fixture
async def worker() -> UnopenedWorker:
    worker = UnopenedWorker()
    await worker.catalog.open(1)
    await worker.make(table())
    return worker


async def write_batch(worker: UnopenedWorker, body: bytes, *, changed: Table | None = None) -> str:
    """Return a letter for each row: written by another one, or not written here."""
    checked = worker.rows.check_batch_write(ANN, body)
    assert checked is not None
    if changed is not None:
        await worker.make(changed)
    answer = await worker.fan_out.write(ANN, body, checked)
    rows = pb.BatchWriteRowResponse.FromString(answer).tables[0].rows
    return "".join("w" if row.is_ok else "-" for row in rows)


async def test_rows_of_the_worker_that_checked_them_are_not_read_again(
    worker: UnopenedWorker,
) -> None:
    assert await write_batch(worker, batch("z", "a", "y")) == "w-w"
    assert worker.asked == [("b:1", 2)]
    assert await write_batch(worker, batch("a", "b")) == "--"
    assert worker.asked == [("b:1", 2)]


async def test_rows_checked_by_a_table_that_has_changed_are_read_again(
    worker: UnopenedWorker,
) -> None:
    changed = table(TableOptions(allow_update=False))
    assert await write_batch(worker, batch("z", "a", "y"), changed=changed) == "www"
    assert sorted(worker.asked) == [(HERE, 1), ("b:1", 2)]
    worker.asked.clear()
    assert await write_batch(worker, batch("a"), changed=table()) == "w"
    assert worker.asked == [(HERE, 1)]


async def test_rows_of_a_table_that_is_not_there_are_for_the_handler(
    worker: UnopenedWorker,
) -> None:
    assert await write_batch(worker, batch("z", "a", of="gone")) == "ww"
    assert worker.asked == [(HERE, 2)]


async def test_the_rows_of_an_atomic_table_go_to_one_worker(worker: UnopenedWorker) -> None:
    # There they are refused: they have several partition keys.
    body = batch("z", "a") + pb.BatchWriteRowRequest(is_atomic=True).SerializeToString()
    assert await write_batch(worker, body) == "ww"
    assert worker.asked == [("b:1", 2)]


async def test_a_batch_that_names_its_table_twice_is_refused(worker: UnopenedWorker) -> None:
    for _ in range(20):  # Rows that are like earlier ones are read another way.
        with pytest.raises(Rejected, match="Duplicated table name: t"):
            await write_batch(worker, batch("z", "y", "x", "w") + batch("a", "b", "c", "d"))
        await write_batch(worker, batch("z", "y", "x", "w"))
