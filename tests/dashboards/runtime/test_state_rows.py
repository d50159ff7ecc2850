"""A part of the state is written whole or not at all, and by the last reader only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count

import pytest

from rowtide.client.endpoint import Endpoint
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.runtime.state_rows import (
    ROWS_MAX,
    PartPosition,
    PartWriter,
    StateRow,
    StateTable,
    part_of,
)
from rowtide.deploy.up import Ready

pytestmark = pytest.mark.system

_numbers = count(1)


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    async with Endpoint(**server._asdict()) as asked:
        await StateTable(asked).ensure()
        yield asked


@pytest.fixture
def part() -> str:
    return part_of("written", f"b{next(_numbers)}", "shard-1")


def writer(endpoint: Endpoint, part: str, term: int) -> PartWriter:
    return PartWriter(endpoint, part, term, asyncio.Event())


def at(stamp: int) -> PartPosition:
    return PartPosition(f"position {stamp}", stamp, ((b"a", b"b"), (b"c", b"")))


def group(number: int, body: bytes = b"body") -> StateRow:
    columns: Mapping[str, Scalar] = {"key": b"key", "body": body}
    return StateRow("panel", number.to_bytes(16, "big"), columns)


async def test_what_is_written_is_read(endpoint: Endpoint, part: str) -> None:
    first = writer(endpoint, part, 1)
    await first.fence()
    assert (await StateTable(endpoint).read(part)).position is None
    await first.write([group(1), group(2), at(5).row()], time_ms=5)
    await first.write([StateRow("panel", group(1).group, None), at(6).row()], time_ms=6)
    found = await StateTable(endpoint).read(part)
    assert found.position == at(6)
    assert found.panels == {"panel": {group(2).group: {"key": b"key", "body": b"body"}}}


async def test_an_earlier_reader_writes_nothing_after_the_fence(
    endpoint: Endpoint, part: str
) -> None:
    first, second = writer(endpoint, part, 7), writer(endpoint, part, 9)
    await first.fence()
    await first.write([group(1), at(5).row()], time_ms=5)
    await second.fence()
    # Answered as written: the first one has lost its lease and cannot move its checkpoint.
    await first.write([group(2), at(8).row()], time_ms=8)
    found = await StateTable(endpoint).read(part)
    assert found.position == at(5)
    assert set(found.panels["panel"]) == {group(1).group}
    await second.write([group(3), at(6).row()], time_ms=6)
    found = await StateTable(endpoint).read(part)
    assert (found.position, len(found.panels["panel"])) == (at(6), 2)


async def test_parts_do_not_hinder_each_other(endpoint: Endpoint, part: str) -> None:
    await writer(endpoint, part, 100).fence()
    other = writer(endpoint, f"{part}0", 1)
    await other.fence()
    await other.write([group(1), at(1).row()], time_ms=1)
    prefix = part.rpartition("/")[0] + "/"
    found = await StateTable(endpoint).read_all(prefix)
    assert {name: rows.position for name, rows in found.items()} == {part: None, f"{part}0": at(1)}
    assert part.split("/")[1] in await StateTable(endpoint).list_builds("written")
    await StateTable(endpoint).remove(prefix)
    assert await StateTable(endpoint).read_all(prefix) == {}


async def test_a_part_of_several_pages_is_read_as_of_one_moment(
    endpoint: Endpoint, part: str
) -> None:
    """Each write sets some groups and the position to one number. No read may mix two of them."""
    first, table = writer(endpoint, part, 1), StateTable(endpoint)
    size, groups = 40_000, ROWS_MAX - 1
    await first.fence()

    async def write(number: int) -> None:
        body = number.to_bytes(4, "big") * (size // 4)
        rows = [group(n, body) for n in range(groups)]
        await first.write([*rows[: groups // 2], at(number).row()], time_ms=number)

    body = bytes(size)
    for start in range(0, groups, 50):
        await first.write([group(n, body) for n in range(start, start + 50)], time_ms=0)
    await write(1)
    found = (await table.read_all(part))[part]
    assert found.pages > 1
    stop = asyncio.Event()

    async def write_often() -> None:
        number = 1
        while not stop.is_set():
            number += 1
            await write(number)
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_often())
        try:
            for _ in range(5):
                found = (await table.read_all(part))[part]
                assert found.position is not None
                stamp = found.position.stamp
                rows = found.panels["panel"]
                heads = {bytes(rows[group(n).group]["body"])[:4] for n in range(groups // 2)}  # type: ignore[arg-type]
                assert heads == {stamp.to_bytes(4, "big")}
        finally:
            stop.set()
