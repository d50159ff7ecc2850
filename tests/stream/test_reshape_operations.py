"""What the catalog's owner does for slots and operators rests on the catalog as it is by then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rowtide.core.cluster.catalog import TABLE, Document, reshape_document, table_content, table_id
from rowtide.core.values import key
from rowtide.core.values.errors import StoreError, no_table
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop_frames import NOBODY
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import table


async def test_a_log_is_deleted_only_where_the_catalog_forgets_its_shard_just_then() -> None:
    """A former owner of the catalog, which knows of no later one, does not know that the
    shard ended. Its log would be gone, and the slot's next owner still has to read it.
    """
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    deleted: list[str] = []

    async def delete(shard_ids: Iterable[str]) -> None:
        deleted.extend(shard_ids)

    around: Any = SimpleNamespace(delete=delete)
    operations = ReshapeOperations(around, catalog, around, around, around, around)
    assert await operations.forget_request(NOBODY, json.dumps({"shard": "s5"}).encode()) == b"{}"
    assert deleted == []


async def test_a_split_whose_table_is_deleted_meanwhile_is_not_told_as_done() -> None:
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    known = replace(table(), shards=(ShardRange("s1", 0),))
    await catalog.change(lambda _c, _s: [Document(TABLE, table_id(known), table_content(known))])
    directory: Any = SimpleNamespace(require_space=lambda: None)
    around: Any = SimpleNamespace()
    operations = ReshapeOperations(directory, catalog, around, around, around, around)
    async with asyncio.TaskGroup() as tasks:
        split = tasks.create_task(await_code(operations.split(known, "s1", key.encode([b"\x03m"]))))
        for _ in range(20):
            await asyncio.sleep(0)
        [change] = catalog.catalog.reshapes.values()
        gone = [Document(TABLE, table_id(known), None), reshape_document(change, gone=True)]
        await catalog.change(lambda _c, _s: gone)
        assert await split == no_table().code


async def await_code(answer: Awaitable[bytes]) -> bytes | str:
    """Return an answer, or the code of the failure."""
    try:
        return await answer
    except StoreError as error:
        return error.code
