"""Who keeps something of the catalog is told of a change before anything else may run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowtide.core.catalog import Catalog, Document, Instance
from rowtide.stream.admin_operations import instance_document
from rowtide.stream.catalog_owner import CatalogOwner
from rowtide.stream.memory_log import MemoryLog

CLAIM = 1


async def test_a_change_is_told_before_any_other_task_sees_it() -> None:
    told: list[int] = []
    owner = CatalogOwner(
        MemoryLog(),
        owner=b"ownerid8",
        clock_us=lambda: 1,
        changed=lambda: told.append(len(owner.catalog.instances)),
    )
    await owner.open(CLAIM)
    assert told == [0], "its log begins with a no-op"

    def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
        name = f"instance{len(catalog.instances)}"
        return [instance_document(Instance(name, "capacity", stamp))]

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(owner.change(decide), name=f"change {number}")
        while len(told) < 4:
            assert told[-1] == len(owner.catalog.instances)
            await asyncio.sleep(0)
    assert told == [0, 1, 2, 3]
