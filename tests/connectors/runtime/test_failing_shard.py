"""A shard whose batch fails for good ends the run, even while another shard waits for the sink."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from rowtide.client.changes.shard_follower import Handle, Unfinished
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.core.values.errors import Unavailable
from tests.simulation.virtual_time import in_virtual_time

ENDED_S_MAX = 60.0


class HalfAway:
    """A sink that fails with one shard's batches, and is away for the other's."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def open(self, table: TableShape) -> None:
        pass

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        if batch.shard_id == "waiting":
            self.asked.set()
            raise Unavailable
        await self.asked.wait()
        raise ValueError("never")

    async def close(self) -> None:
        pass


class Worker:
    """Has a batch of each shard handled at once."""

    shards: Sequence[str] = ()

    def __init__(self, source: object, leases: object, handle: Handle, **more: object) -> None:
        self._handle = handle

    def stop(self) -> None:
        pass

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for shard_id in ("waiting", "failing"):
                tasks.create_task(self._follow(shard_id))

    async def _follow(self, shard_id: str) -> None:
        with suppress(Unfinished):
            await self._handle(Batch("t", shard_id, (), (b"", b""), 1))


def test_a_shard_that_waits_for_the_sink_does_not_keep_one_that_failed_from_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program() -> None:
        where = "http://127.0.0.1:1"
        endpoint = Endpoint(where, instance="i", access_key_id="k", access_key_secret="s")
        declaration = parse_document("c", {"table": "t", "sink": {"kind": "duckdb"}})
        run = SinkRun(declaration, ProcessContext(endpoint, {}, ""))
        run._look.clear()
        async with asyncio.timeout(ENDED_S_MAX):
            with pytest.raises(ValueError, match="never"):
                await run._run_pipeline(HalfAway())

    monkeypatch.setattr("rowtide.connectors.runtime.sink_run.ChangeWorker", Worker)
    in_virtual_time(program())
