"""The measurements, one function each, on a server that is ready.

Every function makes what it needs, warms nothing it does not say, and returns what a client saw
together with what the server's processes used meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.bench.processes import cpu_s
from tests.bench.report import Result, percentile
from tests.bench.traffic import KEY, Channel, Refused, Requests, run_closed_loop

__all__ = ["Bench", "all_written", "has_row", "scan"]

BATCH_ROWS = 200
BATCH_CONNECTIONS = 8
SCANS = 4
PROBES = 500
STREAM_HOURS = 24
ROW_BYTES_MIN = 300
"""A row's values alone; an answer that is shorter holds none."""


class Bench:
    """Measures one server. ``pid`` is the process whose tree is the server."""

    def __init__(self, ready: Ready, pid: int, *, connections: int) -> None:
        self._ready = ready
        self._pid = pid
        self._connections = connections
        self.client = ProtocolClient(**ready._asdict())

    def create(self, table: str) -> Requests:
        """Create a table with a stream."""
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=STREAM_HOURS)
        self.client.create_table(table, KEY, stream=stream)
        return Requests(self._ready, table)

    async def _run(
        self,
        name: str,
        requests: Iterable[bytes],
        *,
        connections: int,
        units: int = 1,
        check: Callable[[bytes], None] = lambda body: None,
    ) -> Result:
        """Run a closed loop of calls that do ``units`` each, and count units per second."""
        prepared = list(requests)
        cpu_before, own_before = cpu_s(self._pid), time.process_time()
        timings = await run_closed_loop(
            self._ready.endpoint, prepared, connections=connections, check=check
        )
        count = len(prepared) * units
        cpu_us = (cpu_s(self._pid) - cpu_before) / count * 1e6
        own_us = (time.process_time() - own_before) / len(prepared) * 1e6
        remark = f"{len(prepared):,} calls on {connections} connections, {own_us:.0f} us ours each"
        return Result(name, count / timings.elapsed_s, "/s", timings.calls, cpu_us, remark)

    async def put_rows(self, table: Requests, rows: int) -> Result:
        """Put single rows, all of them new."""
        return await self._run("PutRow", map(table.put, range(rows)), connections=self._connections)

    async def get_rows(self, table: Requests, rows: int) -> Result:
        """Get single rows that exist, each once, in no order."""
        return await self._run(
            "GetRow", map(table.get, range(rows)), connections=self._connections, check=has_row
        )

    async def batch_write(self, table: Requests, rows: int) -> Result:
        """Put new rows by 200."""
        batches = [range(first, first + BATCH_ROWS) for first in range(0, rows, BATCH_ROWS)]
        return await self._run(
            "BatchWriteRow(200), rows",
            map(table.batch, batches),
            connections=BATCH_CONNECTIONS,
            units=BATCH_ROWS,
            check=all_written,
        )

    async def get_range(self, table: Requests, rows: int) -> Result:
        """Read the whole table by pages, several times."""
        calls: list[float] = []
        channel = await Channel.open(self._ready.endpoint)
        cpu_before, began = cpu_s(self._pid), time.perf_counter()
        for _ in range(SCANS):
            await scan(channel, table, calls)
        elapsed = time.perf_counter() - began
        channel.close()
        cpu_us = (cpu_s(self._pid) - cpu_before) / (rows * SCANS) * 1e6
        remark = f"{SCANS} scans of {rows:,} rows, one reader, {len(calls):,} calls"
        return Result("GetRange, rows", rows * SCANS / elapsed, "/s", calls, cpu_us, remark)

    async def delivery(self, table: Requests) -> list[Result]:
        """Put a row and read the stream at once, over and over, on an idle server."""
        iterator = self._iterator(table)
        writer, reader = [await Channel.open(self._ready.endpoint) for _ in range(2)]
        delays = []
        for number in range(PROBES):
            await writer.ask(table.put(number))
            answered = time.perf_counter()
            iterator = await _await_record(reader, table, iterator)
            delays.append(time.perf_counter() - answered)
        writer.close()
        reader.close()
        name = "answered -> in the stream, p"
        remark = f"{PROBES} rows one by one; the reader's round trip is included"
        return [
            Result(f"{name}{percent}", percentile(delays, percent) * 1000, "ms", remark=remark)
            for percent in (50, 99)
        ]

    async def drain(self, table: Requests, records: int) -> Result:
        """Read a whole shard from its oldest record on, with the service's own page size."""
        iterator: str | None = self._iterator(table)
        channel = await Channel.open(self._ready.endpoint)
        calls, count = [], 0
        cpu_before, began = cpu_s(self._pid), time.perf_counter()
        while iterator and count < records:
            asked = time.perf_counter()
            page = pb.GetStreamRecordResponse.FromString(await channel.ask(table.stream(iterator)))
            calls.append(time.perf_counter() - asked)
            count += len(page.stream_records)
            iterator = page.next_shard_iterator
        elapsed = time.perf_counter() - began
        channel.close()
        cpu_us = (cpu_s(self._pid) - cpu_before) / count * 1e6
        remark = f"{count:,} records, one reader, {len(calls):,} calls"
        return Result("stream drained, records", count / elapsed, "/s", calls, cpu_us, remark)

    def _iterator(self, table: Requests) -> str:
        stream = self.client.list_stream(table.table)[0].stream_id
        shard = self.client.describe_stream(stream).shards[0].shard_id
        return self.client.get_shard_iterator(stream, shard)


async def scan(channel: Channel, table: Requests, calls: list[float]) -> None:
    """Read a whole table page by page; add the seconds of each call to ``calls``."""
    start: bytes | None = None
    while True:
        request = table.scan(start)
        asked = time.perf_counter()
        page = pb.GetRangeResponse.FromString(await channel.ask(request))
        calls.append(time.perf_counter() - asked)
        start = page.next_start_primary_key
        if not start:
            return


async def _await_record(reader: Channel, table: Requests, iterator: str) -> str:
    """Read the stream until a record comes and return the position behind it."""
    while True:
        page = pb.GetStreamRecordResponse.FromString(await reader.ask(table.stream(iterator)))
        if page.stream_records:
            return page.next_shard_iterator


def has_row(body: bytes) -> None:
    """Raise ``Refused`` unless a GetRow's answer has a row."""
    if len(body) < ROW_BYTES_MIN:
        raise Refused("GetRow found no row")


def all_written(body: bytes) -> None:
    """Raise ``Refused`` unless every row of a BatchWriteRow was written."""
    for part in pb.BatchWriteRowResponse.FromString(body).tables:
        for row in part.rows:
            if not row.is_ok:
                raise Refused(f"{row.error.code}: {row.error.message}")
