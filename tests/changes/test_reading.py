"""One reader gets a table's changes: what they say, from where on, and what of them is wanted."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.cli.client import Client
from rowtide.cli.wire_row import Delete, Put
from rowtide.core.change import Change
from rowtide.stream.change_reader import read_changes
from rowtide.stream.change_source import ChangeSource
from tests.api.calls import key
from tests.changes.conftest import MakeSource

pytestmark = pytest.mark.system


def shown(change: Change) -> str:
    told = f"{change.kind} {change.key[0][1]!s} {change.columns}"
    return told + "".join(f" -{name}" for name in change.removed)


async def first(source: ChangeSource, count: int) -> list[str]:
    """Return the first changes as texts."""
    found: list[str] = []
    async with asyncio.timeout(30), read_changes(source) as batches:
        async for batch in batches:
            found += [shown(change) for change in batch]
            if len(found) >= count:
                break
    return found


def write_some(admin: Client, table: str) -> None:
    admin.put_row(table, key("a", 1), [Put("n", 1), Put("s", "x")])
    admin.update_row(table, key("a", 1), [Put("n", 2), Delete("s")])
    admin.put_row(table, key("b", 1), [Put("s", "y")])
    admin.delete_row(table, key("a", 1))


async def test_changes_come_in_order_and_say_what_was_done(
    admin: Client, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    assert await first(source(table), 4) == [
        "put a {'n': 1, 's': 'x'}",
        "update a {'n': 2} -s",
        "put b {'s': 'y'}",
        "delete a {}",
    ]


async def test_only_columns_that_are_wanted_leave_the_server(
    admin: Client, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    wanted = source(table, columns=["s"])
    assert await first(wanted, 4) == [
        "put a {'s': 'x'}",
        "update a {} -s",
        "put b {'s': 'y'}",
        "delete a {}",
    ]
    wanted = source(table, columns=["n"])
    assert await first(wanted, 4) == [
        "put a {'n': 1}",
        "update a {'n': 2}",
        "put b {}",
        "delete a {}",
    ]


async def test_a_snapshot_gives_the_rows_then_what_changes(
    admin: Client, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    wanted = source(table)
    found: list[str] = []
    async with asyncio.timeout(30), read_changes(wanted, begin="rows") as batches:
        async for batch in batches:
            found += [shown(change) for change in batch]
            if len(found) == 1:
                await asyncio.to_thread(admin.put_row, table, key("c", 1), [Put("n", 3)])
            if len(found) == 2:
                break
    assert found == ["row b {'s': 'y'}", "put c {'n': 3}"]
