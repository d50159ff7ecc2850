"""A dashboard whose state is rejected waits, reports it, and counts nothing twice."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.progress import Progress
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.dashboards.fold.partial import PanelPartial
from rowtide.dashboards.fold.partial_codec import encode_partial
from rowtide.dashboards.runtime.build_folder import BuildFolder
from rowtide.dashboards.runtime.shard_fold import read_partial
from rowtide.dashboards.runtime.state_rows import part_of
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild
from tests.dashboards.virtual_dashboard import (
    FlightTable,
    StateServer,
    change_randomly,
    make_dashboard,
)
from tests.support.waiting import until_async

BUILD = DashboardBuild(make_dashboard(), "b")
PART = part_of("d", "b", "s0")
CHANGES = 50
REASON = "The disk is almost full: 1 bytes free, 2 required."


class CrowdedEndpoint:
    """An endpoint of a server that rejects writes while ``is_full``."""

    def __init__(self) -> None:
        self.server = StateServer()
        self.is_full = False
        self.rejected = 0

    async def ask(self, operation: str, body: bytes) -> bytes:
        """Answer a request."""
        if self.is_full and operation == "BulkImport":
            self.rejected += 1
            raise Unavailable(REASON, "OTSServerUnavailable")
        return self.server.answer(operation, body)

    async def call(self, operation: str, request: object, answer: object) -> object:
        """Answer a message."""
        body = await self.ask(operation, request.SerializeToString())  # type: ignore[attr-defined]
        return answer.FromString(body)  # type: ignore[attr-defined]


async def test_a_rejected_write_is_reported_until_it_succeeds() -> None:
    table, chance = FlightTable(), random.Random(1)
    for _ in range(CHANGES):
        key = key_order.encode([variant.encode(f"k{chance.randrange(9)}")])
        change_randomly(table, chance, key)
    endpoint, progress = CrowdedEndpoint(), Progress()
    folder = BuildFolder(cast(Endpoint, endpoint), BUILD, asyncio.Event(), progress)
    await folder.resume(ReaderLease("s0", position="rt1:s0:1:0", counter=1))
    assert not progress.waiting
    endpoint.is_full = True
    stored = dict(endpoint.server.rows)
    async with asyncio.TaskGroup() as tasks:
        batch = Batch("t", "s0", table.find_shard("s0").changes)
        folding = tasks.create_task(folder.fold(batch), name="fold")
        await until_async(lambda: endpoint.rejected > 2)
        assert progress.waiting == {"s0"}
        assert progress.last_error == f"shard s0: the state is written later: {REASON}"
        assert progress.failures == 1, "a write that is retried is one failure"
        assert endpoint.server.rows == stored
        assert not folding.done()
        endpoint.is_full = False
    assert not progress.waiting
    found = endpoint.server.part(PART)
    for panel in BUILD.dashboard.panels.values():
        expected = PanelPartial(panel.plan, panel.bounds)
        for before, after in table.effects["s0"]:
            if before is not None:
                expected.add(before, -1)
            if after is not None:
                expected.add(after)
        assert encode_partial(read_partial(panel, found)) == encode_partial(expected)
