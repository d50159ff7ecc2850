"""A source's rows whose ids the server assigns: what a request and its repeats are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.values import variant
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.contract.memory_log import Fault
from tests.stream.test_source_writes import PAIRS, SHOP, Worker, of_forms, part, request, running

INBOX = replace(SHOP, key=(KeyColumn("pk", STRING), KeyColumn("id", INTEGER, True)))
ID = (b"id", variant.V_AUTO_INCREMENT)
FORM = HEADER + plainbuffer.encode_row(
    [(b"pk", variant.encode("")), ID], [put_cell(b"v", variant.encode(0), None)]
)


def new(name: str, at: int, **more: object) -> pb.RowInBulkImportRequest:
    """Return a row of one user's inbox, in PlainBuffer."""
    cells = [put_cell(b"v", variant.encode(at), None)]
    row = HEADER + plainbuffer.encode_row([(b"pk", variant.encode(name)), ID], cells)
    return part(name, at, **{"row_change": row, **more})


def packed(name: str, at: int, **more: object) -> pb.RowInBulkImportRequest:
    """Return what ``new`` does, packed by ``FORM``."""
    text = name.encode()
    row = len(text).to_bytes(2, "little") + at.to_bytes(8, "little") + text
    return part(name, at, **{"row_change": row, "row_form": 1, **more})


def ids_of(worker: Worker) -> list[tuple[str, list[int]]]:
    """Return the ids of each inbox, in the order of its shard's log."""
    found: dict[str, list[int]] = {}
    for log in worker.logs.values():
        for entry in log._storage.entries:
            envelope, body = record.decode_record(entry.value)
            if envelope.at == entry.offset and isinstance(body, record.PutBody):
                name, id = map(variant.decode, body.key)
                assert {cell.version_ms for cell in body.cells} == {int(str(id)) // 1000}
                found.setdefault(str(name), []).append(int(str(id)))
    return sorted(found.items())


@pytest.mark.parametrize("make", [new, packed])
async def test_each_row_gets_a_rising_id_and_a_repeat_gets_none(
    tmp_path: Path, make: object
) -> None:
    assert callable(make)
    async with running(tmp_path, table=INBOX) as worker:
        rows = [make(name, at) for at, name in enumerate(("a", "z", "é", "a", "a"), start=1)]
        assert await worker.ask(of_forms(*rows, forms=[FORM])) == "wwwww"
        ids = ids_of(worker)
        assert [(name, len(found)) for name, found in ids] == [("a", 3), ("z", 1), ("é", 1)]
        assert all(found == sorted(set(found)) for _, found in ids)
        assert await worker.ask(of_forms(*rows, forms=[FORM])) == "wwwww"
        assert ids_of(worker) == ids


async def test_packed_rows_become_the_same_records(tmp_path: Path) -> None:
    logs: list[Sequence[bytes]] = []
    for make in (new, packed):
        async with running(tmp_path / make.__name__, table=INBOX) as worker:
            rows = [make(name, at) for at, name in enumerate(("a", "z", "a"), start=1)]
            assert await worker.ask(of_forms(*rows, forms=[FORM])) == "www"
            logs.append([e.value for log in worker.logs.values() for e in log._storage.entries])
    assert logs[0] == logs[1]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.REFUSED])
async def test_a_request_that_met_a_fault_is_made_again(tmp_path: Path, fault: Fault) -> None:
    async with running(tmp_path, table=INBOX) as worker:
        worker.logs["s1"].fault = fault
        rows = request(new("a", 1), new("b", 2), new("a", 3))
        async with asyncio.TaskGroup() as tasks:
            first, second = [tasks.create_task(worker.ask(rows)) for _ in range(2)]
        assert (first.result(), second.result()) == ("www", "www")
        assert [(name, len(ids)) for name, ids in ids_of(worker)] == [("a", 2), ("b", 1)]
        assert worker.read_log("s1") == ["1", "2", "3", "=3"]


async def test_slices_of_a_request_keep_their_order(tmp_path: Path) -> None:
    async with running(tmp_path, table=INBOX, limits=PAIRS) as worker:
        assert await worker.ask(request(*[new("a", at) for at in range(1, 8)])) == "w" * 7
        assert worker.read_log("s1") == ["1", "2", "=2", "3", "4", "=4", "5", "6", "=6", "7", "=7"]


async def test_a_refused_row_stops_those_behind_it_and_a_repeat_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, table=INBOX) as worker:
        wrong = new("a", 2, row_change=b"x")
        assert await worker.ask(request(new("a", 1), wrong, new("a", 3))) == "wru"
        assert await worker.ask(request(new("a", 1), new("a", 3))) == "ww"
        assert worker.read_log("s1") == ["1", "=1", "3", "=3"]


async def test_positions_are_found_when_shards_open_again(tmp_path: Path) -> None:
    rows = request(new("a", 1), new("z", 2))
    async with running(tmp_path / "first", table=INBOX) as worker:
        assert await worker.ask(rows) == "ww"
        logs, ids = worker.logs, ids_of(worker)
    async with running(tmp_path / "second", logs, table=INBOX) as worker:
        assert await worker.ask(rows) == "ww"
        assert ids_of(worker) == ids


@pytest.mark.parametrize(
    "wrong",
    [new("a", 1, type=pb.UPDATE), packed("a", 1, type=pb.UPDATE), new("a", 1, time_ms=-1)],
    ids=["an update", "a packed update", "a time below 0"],
)
async def test_only_a_put_leaves_its_id_to_the_server(
    tmp_path: Path, wrong: pb.RowInBulkImportRequest
) -> None:
    async with running(tmp_path, table=INBOX) as worker:
        assert await worker.ask(of_forms(wrong, forms=[FORM])) == "r"
        assert worker.read_log("s1") == []


async def test_a_table_without_such_a_column_takes_no_such_row(tmp_path: Path) -> None:
    async with running(tmp_path) as worker:
        assert await worker.ask(request(new("a", 1))) == "r"
