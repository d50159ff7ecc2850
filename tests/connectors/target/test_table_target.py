"""What a source writes is in the tables: once, in order, with the versions of its history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.reader import read_changes
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import SourceRow, TableShape
from rowtide.connectors.runtime.place import table_shape
from rowtide.connectors.runtime.source_lease import SOURCE_TABLE, SourceLease
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.source import RowRefused
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.api.test_reshape import living, merge, read_stream, split

pytestmark = pytest.mark.system

KEY = (KeyColumn("name", STRING), KeyColumn("id", INTEGER))
_numbers = count()


@pytest.fixture
def shape(client: ProtocolClient) -> Iterator[TableShape]:
    """A table that a source makes."""
    made = TableShape(f"sourced_{next(_numbers)}", KEY)
    yield made
    client.delete_table(made.name)


def row(
    shape: TableShape,
    name: str,
    columns: dict[str, Scalar | None] | None,
    position: int,
    *,
    time_ms: int = 1000,
    whole: bool = True,
) -> SourceRow:
    at = position.to_bytes(4, "big")
    return SourceRow(shape.name, (("name", name), ("id", 7)), columns, whole, time_ms, at)


async def read_cells(
    endpoint: Endpoint, shape: TableShape, *, versions: int = 9
) -> dict[str, list[tuple[str, Scalar, int]]]:
    """Return every row's cells as (column, value, version)."""

    def encode_bound(end: bytes) -> bytes:
        key = [(column.name.encode(), end) for column in KEY]
        return plainbuffer.HEADER + plainbuffer.encode_row(key, [])

    request = pb.GetRangeRequest(
        table_name=shape.name,
        direction=pb.FORWARD,
        max_versions=versions,
        inclusive_start_primary_key=encode_bound(variant.V_INF_MIN),
        exclusive_end_primary_key=encode_bound(variant.V_INF_MAX),
    )
    response = await endpoint.call("GetRange", request, pb.GetRangeResponse)
    return {
        str(variant.decode(found.key[0][1])): [
            (c.name.decode(), variant.decode(c.variant), c.version_ms or 0) for c in found.cells
        ]
        for found in plainbuffer.decode_rows(response.rows)
    }


async def test_rows_come_as_they_are_at_the_source(endpoint: Endpoint, shape: TableShape) -> None:
    async with TableTarget(endpoint, "plain", max_versions=3) as target:
        await target.ensure_table(shape)
        await target.write(
            [
                row(shape, "a", {"n": 1, "s": "x", "none": None}, 1),
                row(shape, "b", {"d": 1.5, "t": True, "b": b"\0\1"}, 2),
                row(shape, "a", {"n": 2, "s": None}, 3, time_ms=3000, whole=False),
                row(shape, "a", {"n": 3}, 4, time_ms=2000, whole=False),
                row(shape, "c", {"n": 9}, 5),
                row(shape, "c", None, 6),
                row(shape, "bare", {}, 7),
            ]
        )
    assert await read_cells(endpoint, shape) == {
        "a": [("n", 3, 3001), ("n", 2, 3000), ("n", 1, 1000)],
        "b": [("b", b"\0\1", 1000), ("d", 1.5, 1000), ("t", True, 1000)],
        "bare": [],
    }


async def test_rows_written_again_are_skipped(endpoint: Endpoint, shape: TableShape) -> None:
    rows = [row(shape, "a", {"n": 1}, 1), row(shape, "a", {"n": 2}, 2)]
    async with TableTarget(endpoint, "again") as target:
        await target.ensure_table(shape)
        for _ in range(3):
            await target.write(rows)
            await target.write(rows[:1])
        await target.write([rows[0], row(shape, "b", {"n": 3}, 3)])
    assert await read_cells(endpoint, shape) == {"a": [("n", 2, 1001)], "b": [("n", 3, 1000)]}
    async with read_changes(ApiSource(endpoint, shape.name)) as batches:
        async for batch in batches:
            assert [change.key[0][1] for change in batch] == ["a", "a", "b"]
            break


async def test_a_refused_row_is_named_and_what_is_before_it_is_written(
    endpoint: Endpoint, shape: TableShape
) -> None:
    wide = row(shape, "wide", {"n": "x" * (2 * 1024 * 1024 + 1)}, 2)
    rows = [row(shape, "a", {"n": 1}, 1), wide, row(shape, "b", {"n": 3}, 3)]
    async with TableTarget(endpoint, "refused") as target:
        await target.ensure_table(shape)
        with pytest.raises(RowRefused, match="exceeds") as refused:
            await target.write(rows)
        assert refused.value.row is wide
        await target.write([r for r in rows if r is not wide])
    assert sorted(await read_cells(endpoint, shape)) == ["a", "b"]


async def test_rows_prepared_in_a_thread_are_written_and_refused_as_others(
    endpoint: Endpoint, shape: TableShape
) -> None:
    wrong = row(shape, "wrong", {"n": 2**63}, 2)
    rows = [row(shape, "a", {"n": 1}, 1), wrong, row(shape, "b", {"n": 3}, 3)]
    async with TableTarget(endpoint, "prepared") as target:
        await target.ensure_table(shape)
        prepared = await asyncio.to_thread(target.prepare, rows)
        assert await read_cells(endpoint, shape) == {}
        with pytest.raises(RowRefused) as refused:
            await target.write(prepared)
        assert refused.value.row is wrong
        assert sorted(await read_cells(endpoint, shape)) == ["a"]
        await target.write(target.prepare(prepared[2:]))
        await target.write(target.prepare([]))
    assert sorted(await read_cells(endpoint, shape)) == ["a", "b"]


async def test_rows_of_other_tables_before_a_refused_one_are_written(
    client: ProtocolClient, endpoint: Endpoint, shape: TableShape
) -> None:
    other = TableShape(f"sourced_{next(_numbers)}", KEY)
    wide = row(shape, "wide", {"n": 2**63}, 1500)
    rows = [row(other, f"r{n}", {"n": n}, n) for n in range(1, 1500)]
    async with TableTarget(endpoint, "refused_there") as target:
        await target.ensure_table(shape)
        await target.ensure_table(other)
        with pytest.raises(RowRefused) as refused:
            await target.write([*rows, wide, row(other, "last", {"n": 3}, 1501)])
        assert refused.value.row is wide
        assert len(await read_cells(endpoint, other)) >= len(rows)
    client.delete_table(other.name)


async def test_a_table_that_was_dropped_is_made_again(
    client: ProtocolClient, endpoint: Endpoint, shape: TableShape
) -> None:
    async with TableTarget(endpoint, "dropped") as target:
        await target.ensure_table(shape)
        await target.write([row(shape, "a", {"n": 1}, 1)])
        await asyncio.to_thread(client.delete_table, shape.name)
        with pytest.raises(Rejected, match="does not exist"):
            await target.write([row(shape, "a", {"n": 2}, 2)])
        await target.ensure_table(shape)
        await target.write([row(shape, "a", {"n": 2}, 2)])
    assert await read_cells(endpoint, shape) == {"a": [("n", 2, 1000)]}


async def test_a_checkpoint_is_found_by_the_next_process(endpoint: Endpoint) -> None:
    async with TableTarget(endpoint, "kept") as target:
        assert await target.checkpoint() == b""
        await target.keep(b"\xff binlog 7")
        term = target.term
    async with TableTarget(endpoint, "kept") as target:
        assert await target.checkpoint() == b"\xff binlog 7"
        assert target.term > term


async def test_one_process_at_a_time_is_the_source(endpoint: Endpoint) -> None:
    # Long: a process that is silent for so long is not the source any more.
    entered, lease_s = asyncio.Event(), 5.0

    async def second() -> None:
        async with TableTarget(endpoint, "one", lease_s=lease_s):
            entered.set()

    async with asyncio.TaskGroup() as tasks:
        async with TableTarget(endpoint, "one", lease_s=lease_s) as first:
            waiting = tasks.create_task(second(), name="second")
            for number in range(10):
                await first.keep(b"%d" % number)
            assert not waiting.done()
            assert not entered.is_set()
        await entered.wait()


async def test_a_table_with_another_key_is_refused(endpoint: Endpoint, shape: TableShape) -> None:
    async with TableTarget(endpoint, "other") as target:
        await target.ensure_table(shape)
        with pytest.raises(Rejected, match="has another primary key"):
            await target.ensure_table(TableShape(shape.name, KEY[:1]))


def silent(endpoint: Endpoint, source: str, lease_s: float) -> SourceLease:
    """Return a lease without renewals, like that of a stopped process."""
    leases = TableLeases(endpoint, source, table=SOURCE_TABLE)
    return SourceLease(leases, lease_s=lease_s)


async def test_a_silent_process_is_taken_over_and_can_keep_nothing_more(endpoint: Endpoint) -> None:
    stopped = silent(endpoint, "silent", 0.5)
    await stopped.take()
    await stopped.keep(b"1")
    async with TableTarget(endpoint, "silent", lease_s=0.5) as target:
        assert await target.checkpoint() == b"1"
        assert target.term > stopped.term
        await target.keep(b"2")
        with pytest.raises(Rejected, match="Another process is the source 'silent'"):
            await stopped.keep(b"3")
        await stopped.release()  # It has nothing to release, and takes nothing away.
        await target.keep(b"4")
        assert await target.checkpoint() == b"4"


async def test_what_runs_as_the_source_ends_when_another_takes_over(endpoint: Endpoint) -> None:
    async def run() -> None:
        async with TableTarget(endpoint, "ended", lease_s=0.5):
            other = silent(endpoint, "ended", 0.0)  # It does not wait.
            await other.take()
            await asyncio.Event().wait()

    with pytest.raises(Rejected, match="Another process is the source 'ended'"):
        await run()


async def test_what_a_late_process_sends_does_no_harm(
    endpoint: Endpoint, shape: TableShape
) -> None:
    async with TableTarget(endpoint, "late", lease_s=0.5) as target:
        await target.ensure_table(shape)
        await target.write([row(shape, "a", {"n": number}, number) for number in (1, 2, 3)])
        late = TableTarget(endpoint, "late")  # It never knew that it was taken over.
        await late.write([row(shape, "a", {"n": number}, number) for number in (2, 3)])
        await target.write([row(shape, "a", {"n": 4}, 4)])
        await late.write([row(shape, "a", {"n": 3}, 3)])
    assert await read_cells(endpoint, shape) == {"a": [("n", 4, 1003)]}


async def test_rows_of_several_tables_go_out_together(
    client: ProtocolClient, endpoint: Endpoint
) -> None:
    shapes = [TableShape(f"sourced_{next(_numbers)}", KEY) for _ in range(3)]
    async with TableTarget(endpoint, "several") as target:
        for table in shapes:
            await target.ensure_table(table)
        await target.write([row(shapes[n % 3], f"r{n}", {"n": n}, n) for n in range(1, 1900)])
    for number, table in enumerate(shapes):
        expected = {f"r{n}": [("n", n, 1000)] for n in range(1, 1900) if n % 3 == number}
        assert await read_cells(endpoint, table) == expected
        client.delete_table(table.name)


async def test_rows_stay_once_through_splits_and_merges(
    client: ProtocolClient, endpoint: Endpoint, shape: TableShape
) -> None:
    given = [row(shape, f"{'abcdefgh'[n % 8]}", {"n": n}, n, whole=False) for n in range(1, 400)]

    async def write(target: TableTarget, until: int) -> None:
        # From the start: every shard skips what it has.
        await target.write(given[:until])

    async with TableTarget(endpoint, "reshaped", max_versions=1000) as target:
        await target.ensure_table(shape)
        await write(target, 100)
        [first] = await asyncio.to_thread(living, client, shape.name)
        left, right = await asyncio.to_thread(split, client, shape.name, first, "e")
        await write(target, 150)
        # The right one goes on alone: parents of the merge are at different places.
        await target.write([r for r in given[:200] if str(r.key[0][1]) >= "e"])
        await asyncio.to_thread(merge, client, shape.name, left, right)
        await write(target, 300)
        [whole] = await asyncio.to_thread(living, client, shape.name)
        await asyncio.to_thread(split, client, shape.name, whole, "c")
        await write(target, 399)
    rows = await read_cells(endpoint, shape, versions=1000)
    numbers = {name: [number for _, number, _ in cells][::-1] for name, cells in rows.items()}
    assert numbers == {
        name: [n for n in range(1, 400) if "abcdefgh"[n % 8] == name] for name in "abcdefgh"
    }
    changes = await asyncio.to_thread(read_stream, client, shape.name)
    assert len(changes) == 399


async def test_keys_come_in_pages_in_their_order(endpoint: Endpoint, shape: TableShape) -> None:
    names = ["ant", "bee", "cat", "dog", "emu"]
    async with TableTarget(endpoint, "keyed") as target:
        await target.ensure_table(shape)
        rows = [row(shape, name, {}, number) for number, name in enumerate(names, 1)]
        await target.write(rows)
        found: list[str] = []
        page = await target.keys(shape.name, None, limit=2)
        while page:
            assert len(page) <= 2
            found += [str(key[0][1]) for key in page]
            await target.write([row(shape, found[-1], None, 10 + len(found))])
            page = await target.keys(shape.name, page[-1], limit=2)
        assert found == names


async def test_a_table_that_is_not_there_is_named(endpoint: Endpoint) -> None:
    """A connector's status said of its table that it does not exist, and not which."""
    with pytest.raises(Rejected, match="There is no table 'misspelt'"):
        await table_shape(endpoint, "misspelt")
