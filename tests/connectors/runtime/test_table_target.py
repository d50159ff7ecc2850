"""What a source writes is in the tables: once, in order, with the versions of its history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from rowtide.cli.client import Client
from rowtide.connectors.rows import SourceRow, TableShape
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.source import RowRefused
from rowtide.core import plainbuffer, variant
from rowtide.core.errors import Rejected
from rowtide.core.schema import INTEGER, STRING, KeyColumn
from rowtide.core.variant import Scalar
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.change_api import ApiSource
from rowtide.stream.change_reader import read_changes
from rowtide.stream.endpoint import Endpoint

pytestmark = pytest.mark.system

KEY = (KeyColumn("name", STRING), KeyColumn("id", INTEGER))
_numbers = count()


@pytest.fixture
def shape(client: Client) -> Iterator[TableShape]:
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


async def stored(
    endpoint: Endpoint, shape: TableShape, *, versions: int = 9
) -> dict[str, list[tuple[str, Scalar, int]]]:
    """Return every row's cells as (column, value, version)."""

    def bound(end: bytes) -> bytes:
        key = [(column.name.encode(), end) for column in KEY]
        return plainbuffer.HEADER + plainbuffer.encode_row(key, [])

    request = pb.GetRangeRequest(
        table_name=shape.name,
        direction=pb.FORWARD,
        max_versions=versions,
        inclusive_start_primary_key=bound(variant.V_INF_MIN),
        exclusive_end_primary_key=bound(variant.V_INF_MAX),
    )
    told = await endpoint.call("GetRange", request, pb.GetRangeResponse)
    return {
        str(variant.decode(found.key[0][1])): [
            (c.name.decode(), variant.decode(c.variant), c.version_ms or 0) for c in found.cells
        ]
        for found in plainbuffer.decode_rows(told.rows)
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
    assert await stored(endpoint, shape) == {
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
    assert await stored(endpoint, shape) == {"a": [("n", 2, 1001)], "b": [("n", 3, 1000)]}
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
    assert sorted(await stored(endpoint, shape)) == ["a", "b"]


async def test_a_checkpoint_is_found_by_the_next_process(endpoint: Endpoint) -> None:
    async with TableTarget(endpoint, "kept") as target:
        assert await target.checkpoint() == b""
        await target.keep(b"\xff binlog 7")
        term = target.term
    async with TableTarget(endpoint, "kept") as target:
        assert await target.checkpoint() == b"\xff binlog 7"
        assert target.term > term


async def test_one_process_at_a_time_is_the_source(endpoint: Endpoint) -> None:
    entered = asyncio.Event()

    async def second() -> None:
        async with TableTarget(endpoint, "one", lease_s=0.5):
            entered.set()

    async with asyncio.TaskGroup() as tasks:
        async with TableTarget(endpoint, "one", lease_s=0.5) as first:
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
