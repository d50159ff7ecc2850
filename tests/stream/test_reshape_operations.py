"""What the catalog's owner does for slots rests on a catalog that is the newest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from rowtide.stream.catalog.owner import CatalogOwner
from rowtide.stream.operations.reshape import ReshapeOperations
from rowtide.stream.peers.hop import NOBODY
from tests.contract.memory_log import MemoryLog


async def test_a_log_is_deleted_only_where_the_catalog_forgets_its_shard_just_then() -> None:
    """A former owner of the catalog, which knows of no later one, has never heard that the shard
    ended. Its log would be gone, and whoever opens the slot next still has to read it."""
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
