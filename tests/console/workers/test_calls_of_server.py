"""Calls of a real worker with the keys of several people, also while our clock is wrong."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowtide.client.server_clock import ServerClock
from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.console.workers.sampler import Sampler
from rowtide.console.workers.tokens import FRESH_S, ShareTokens
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.deploy.up import Ready
from tests.support.servers import serving
from tests.support.waiting import until

pytestmark = pytest.mark.system


def admin_of(ready: Ready) -> KeyPair:
    return KeyPair(ready.access_key_id, ready.access_key_secret)


def create_request(table: str) -> pb.CreateTableRequest:
    request = pb.CreateTableRequest(table_options=pb.TableOptions())
    request.table_meta.table_name = table
    request.table_meta.primary_key.add(name="k", type=pb.INTEGER)
    request.reserved_throughput.capacity_unit.SetInParent()
    return request


async def test_each_key_may_do_what_it_may(tmp_path: Path) -> None:
    with serving(tmp_path) as ready:
        admin, place = admin_of(ready), ready.instance
        async with WorkerCalls(ready.endpoint) as calls:
            await calls.call(admin, place, "CreateTable", create_request("orders"))
            made = await calls.call(admin, place, "RowtideCreateKey", {"read_only": True})
            reader = KeyPair(made["access_key_id"], made["access_key_secret"])
            listed = await calls.call(reader, place, "ListTable", pb.ListTableRequest())
            assert list(listed.table_names) == ["orders"]
            gone = pb.DeleteTableRequest(table_name="orders")
            with pytest.raises(Rejected, match="is read-only"):
                await calls.call(reader, place, "DeleteTable", gone)


@pytest.mark.parametrize("wrong_h", [-1, 1])
async def test_a_clock_that_is_an_hour_wrong_does_not_matter(tmp_path: Path, wrong_h: int) -> None:
    with serving(tmp_path) as ready:
        async with WorkerCalls(ready.endpoint) as calls:
            calls._pool.clock = ServerClock(
                follows=True, machine=lambda: datetime.now(UTC) + timedelta(hours=wrong_h)
            )
            found = await calls.call(admin_of(ready), ready.instance, "RowtideDescribeKey")
            assert found["admin"]
            other = KeyPair(ready.access_key_id, "wrong")
            with pytest.raises(Rejected, match="Signature mismatch"):
                await calls.call(other, ready.instance, "RowtideDescribeKey")


async def test_a_token_that_is_revoked_is_known_in_time(tmp_path: Path) -> None:
    with serving(tmp_path) as ready:
        admin, place = admin_of(ready), ready.instance
        async with WorkerCalls(ready.endpoint) as calls:
            await calls.call(admin, place, "CreateTable", create_request("orders"))
            fields = {"table": "orders", "key": "7"}
            made = await calls.call(admin, place, "RowtideCreateToken", fields)
            tokens = ShareTokens(calls, admin, place)
            shared = await tokens.check(made["token"])
            assert (shared.table, shared.key) == ("orders", "7")
            await tokens.confirm(shared)
            await calls.call(admin, place, "RowtideRevokeToken", {"token_id": shared.token_id})
            # What a feed does; a list may be 2 s old.
            await asyncio.sleep(FRESH_S)
            with pytest.raises(Rejected, match="revoked"):
                await tokens.confirm(shared)


async def test_the_sampler_collects_what_a_worker_counted(tmp_path: Path) -> None:
    with serving(tmp_path) as ready:
        admin, place = admin_of(ready), ready.instance
        async with WorkerCalls(ready.endpoint) as calls, asyncio.TaskGroup() as tasks:
            await calls.call(admin, place, "CreateTable", create_request("orders"))
            sampler = Sampler(calls, admin, place)
            running = tasks.create_task(sampler.run(), name="sampler")
            wanted = pb.BatchGetRowRequest()
            wanted.tables.add(table_name="orders", max_versions=1)
            for _ in range(3):
                await calls.call(admin, place, "BatchGetRow", wanted)

            def count() -> int:
                return sum(second.requests for second in sampler.hour(place, "orders").seconds())

            await asyncio.to_thread(until, lambda: count() == 3)
            assert not sampler.failure
            running.cancel()
