"""All tables that are followed: one hub for each, as long as there are viewers, and a while longer.

A hub keeps its records for viewers who come back, so it outlives its last viewer by ``LINGER_S``.
All hubs together keep 64 MiB.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import ChangeSource
from rowtide.client.endpoint import Endpoint
from rowtide.console.feed.stream_reading import RETRIED, TableStream
from rowtide.console.feed.table_hub import RING_BYTES_MAX, FeedEnd, TableHub
from rowtide.console.workers.shared_calls import SharedCalls
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import KeyColumn

__all__ = ["LINGER_S", "TableHubs", "find_stream"]

logger = logging.getLogger(__name__)

LINGER_S = 60.0
KNOWN_S = 1.0
"""A stream that was found so long ago is taken for the present one."""
CHECK_S = 5.0
RETRY_S = 0.5
HOUR_US = 3600 * 1_000_000


class TableMissing(Rejected):
    """There is no such table."""

    def __init__(self, instance: str, table: str) -> None:
        super().__init__("OTSObjectNotExist", f"Instance '{instance}' has no table '{table}'.")


class StreamMissing(Rejected):
    """The table has no stream."""

    def __init__(self, table: str) -> None:
        super().__init__(
            "OTSObjectNotExist",
            f"Table '{table}' has no stream. Enable it: rowtide table update {table} --stream 24 "
            f"(keeps changes for 24 hours).",
        )


async def find_stream(
    endpoint: Endpoint, instance: str, table: str, hidden: frozenset[str]
) -> TableStream:
    """Return a table's present stream. Raises ``TableMissing`` and ``StreamMissing``."""
    request = pb.DescribeTableRequest(table_name=table)
    try:
        answer = await endpoint.call("DescribeTable", request, pb.DescribeTableResponse)
    except Rejected as error:
        if error.code != "OTSObjectNotExist":
            raise
        raise TableMissing(instance, table) from error
    details = answer.stream_details
    if not details.enable_stream:
        raise StreamMissing(table)
    key = [KeyColumn(column.name, column.type) for column in answer.table_meta.primary_key]
    return TableStream(
        instance,
        table,
        details.stream_id,
        details.last_enable_time,
        details.expiration_time * HOUR_US,
        tuple(key),
        hidden,
    )


class TableHubs:
    """Hubs by instance and table. ``endpoint_of`` returns an instance's endpoint of our own key.

    ``hidden`` are pairs of table and column whose values never leave the console.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        endpoint_of: Callable[[str], Endpoint],
        hidden: frozenset[tuple[str, str]] = frozenset(),
        *,
        linger_s: float = LINGER_S,
    ) -> None:
        self._tasks = tasks
        self._endpoint_of = endpoint_of
        self._hidden = hidden
        self._linger_s = linger_s
        self._hubs: dict[tuple[str, str], TableHub] = {}
        self._running: dict[TableHub, asyncio.Task[None]] = {}
        self._left_s: dict[TableHub, float] = {}
        """Since when a hub has no viewer."""
        self._found: dict[tuple[str, str], tuple[float, TableStream]] = {}
        self._finding = SharedCalls[TableStream]()
        self._opening: dict[TableHub, int] = {}
        """Requests that wait for a hub, or are about to use it."""

    @property
    def hubs(self) -> list[TableHub]:
        """Return the hubs."""
        return list(self._running)

    async def open(self, instance: str, table: str) -> TableHub:
        """Return the hub of a table's present stream; it reads. Raises ``StoreError``."""
        name = instance.lower(), table
        stream = await self._find_stream(*name)
        hub = self._hubs.get(name)
        if hub is None or hub.end is not None or hub.stream != stream:
            hub = self._start(name, stream)
        self._left_s.pop(hub, None)
        self._opening[hub] = self._opening.get(hub, 0) + 1
        try:
            await hub.wait_ready()
        finally:
            self._opening[hub] -= 1
            if not self._opening[hub]:
                del self._opening[hub]
        return hub

    def _start(self, name: tuple[str, str], stream: TableStream) -> TableHub:
        instance, table = name
        source: ChangeSource = ApiSource(self._endpoint_of(instance), table)

        async def find_end(error: Rejected) -> FeedEnd:
            return await self._find_end(stream, error)

        hub = TableHub(stream, source, find_end)
        self._hubs[name] = hub
        self._running[hub] = self._tasks.create_task(self._run(name, hub), name=f"feed of {table}")
        return hub

    async def _run(self, name: tuple[str, str], hub: TableHub) -> None:
        try:
            await hub.run()
        finally:
            del self._running[hub]
            self._left_s.pop(hub, None)
            if self._hubs.get(name) is hub:
                del self._hubs[name]

    async def _find_stream(self, instance: str, table: str) -> TableStream:
        now_s = asyncio.get_running_loop().time()
        found = self._found.get((instance, table))
        if found is not None and now_s - found[0] < KNOWN_S:
            return found[1]
        hidden = frozenset(column for name, column in self._hidden if name == table)
        return await self._finding.ask(
            (instance, table), lambda: self._find_present(instance, table, hidden)
        )

    async def _find_present(self, instance: str, table: str, hidden: frozenset[str]) -> TableStream:
        asked_s = asyncio.get_running_loop().time()
        stream = await find_stream(self._endpoint_of(instance), instance, table, hidden)
        self._found[instance, table] = asked_s, stream
        return stream

    async def _find_end(self, stream: TableStream, error: Rejected) -> FeedEnd:
        """Return why the stream of a table refuses to be read."""
        self._found.pop((stream.instance, stream.table), None)
        while True:
            try:
                present = await find_stream(
                    self._endpoint_of(stream.instance), stream.instance, stream.table, stream.hidden
                )
            except RETRIED:
                await asyncio.sleep(RETRY_S)
                continue
            except TableMissing as failure:
                return FeedEnd("end", "table_deleted", failure.message)
            except StreamMissing as failure:
                return FeedEnd("end", "stream_disabled", failure.message)
            except Rejected as failure:
                return FeedEnd("end", "refused", failure.message)
            if present.stream_id != stream.stream_id:
                reason = (
                    f"Table '{stream.table}' was created again, or its stream was enabled again. "
                    f"Positions of the former stream are no longer valid."
                )
                return FeedEnd("end", "stream_replaced", reason)
            return FeedEnd("expired", "expired", error.message)

    async def run(self) -> None:
        """End hubs without viewers after a while, and share the memory among the others."""
        while True:
            await asyncio.sleep(CHECK_S)
            self._close_idle()
            for hub in self._running:
                hub.ring.bytes_max = RING_BYTES_MAX // len(self._running)
                hub.ring.shrink(hub.ring.bytes_max)

    def _close_idle(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for hub, task in list(self._running.items()):
            if hub.viewer_count or hub in self._opening:
                self._left_s.pop(hub, None)
            elif now_s - self._left_s.setdefault(hub, now_s) > self._linger_s:
                task.cancel()
        for name, (found_s, _) in list(self._found.items()):
            if now_s - found_s > KNOWN_S:
                del self._found[name]
