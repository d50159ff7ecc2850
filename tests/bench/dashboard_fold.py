"""CPU of a dashboard's process for each change: ``python -m tests.bench.dashboard_fold``.

It runs without servers: record batches that were made before are decoded and folded, as while a
process catches up. Half of the changes put rows again. Writes of state are encoded, and answered
at once. CPU time is compared best in turns of two checkouts.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from typing import cast

import click

from rowtide.client.changes.api import ApiSource, ChangeStream
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.connectors.runtime.progress import Progress
from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.change import ChangeTable
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.declaring.declaration import parse_dashboards
from rowtide.dashboards.runtime import build_folder
from rowtide.dashboards.runtime.build_folder import BuildFolder
from rowtide.dashboards.runtime.dashboard_run import BATCH_CHANGES_MAX
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.log import decode_entries
from rowtide.stream.log.kafka.record_batch import encode_batch
from rowtide.stream.log.log import Entry
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.dashboards import BATCH_ROWS, TEXT, make_columns
from tests.bench.report import Result, as_markdown

KEPT = ("carrier", "dep_delay", "origin", "time_hour")
RECORDS_A_BATCH = 200
FIRST_MS = 1_795_000_000_000
BEGIN = "rt1:s0:1:0"


def _cells(columns: dict[str, Scalar], version_ms: int) -> list[Cell]:
    pairs = sorted(columns.items())
    return [put_cell(name.encode(), variant.encode(value), version_ms) for name, value in pairs]


def make_records(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield log keys and records of puts: 100 of new rows, 100 of rows that exist, and so on."""
    chance, rows = random.Random(1), list[dict[str, Scalar]]()
    for offset in range(count):
        is_new = offset // BATCH_ROWS % 2 == 0
        number = len(rows) if is_new else chance.randrange(len(rows))
        columns, version_ms = make_columns(number, chance), FIRST_MS + offset
        before: list[Cell] = []
        if is_new:
            rows.append(columns)
        else:
            before = _cells({name: rows[number][name] for name in KEPT}, version_ms - 1)
            rows[number] = columns
        absent = [name.encode() for name in KEPT] if is_new else []
        kept = record.Kept(not is_new, absent, ())
        key = variant.encode(f"f{number:08}")
        body = record.PutBody([key], _cells(columns, version_ms), before, (), kept)
        envelope = record.Envelope(offset, 3, bytes(8), version_ms * 1000, record.SINGLE)
        yield key, record.encode_record(envelope, record.encode_body(body))


class FetchedLog:
    """Batches as a broker answers with them, and what ``KafkaSource`` needs around them."""

    columns, filter = (), b""
    topic_prefix = "bench"

    def __init__(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        self._batches = [
            first.to_bytes(8, "big") + encode_batch(records[first : first + RECORDS_A_BATCH])[8:]
            for first in range(0, len(records), RECORDS_A_BATCH)
        ]
        self.brokers, self.config = None, self

    def log(self, _name: str) -> FetchedLog:
        """Return the log of any shard."""
        return self

    async def stream(self) -> ChangeStream:
        """Return the table's stream."""
        return ChangeStream("s", 1, ChangeTable("flights", (b"id",)))

    async def read(self, offset: int, *, bytes_max: int, wait_s: float) -> list[Entry]:
        """Return entries as ``KafkaLog.read`` does."""
        found, size = list[bytes](), 0
        for batch in self._batches[offset // RECORDS_A_BATCH :]:
            if size < bytes_max:
                found.append(batch)
                size += len(batch)
        return decode_entries(b"".join(found), offset, "bench")


class AnsweringEndpoint:
    """A server that stores nothing."""

    async def call(self, _operation: str, _request: object, answer: type[object]) -> object:
        """Return an answer without rows."""
        consumed = pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=0, write=0))
        return answer(consumed=consumed)  # type: ignore[call-arg]

    async def ask(self, _operation: str, _body: bytes) -> bytes:
        """Return that nothing failed."""
        return bytes(pb.BulkImportResponse(table_name="t").SerializeToString())


async def measure(log: FetchedLog, changes: int) -> list[Result]:
    """Return the CPU time of a change: to read it, to fold and write it."""
    [dashboard] = parse_dashboards(TEXT, "bench")
    endpoint, ending = cast(Endpoint, AnsweringEndpoint()), asyncio.Event()
    folder = BuildFolder(endpoint, DashboardBuild(dashboard, "b"), ending, Progress())
    await folder.resume(ReaderLease("s0", position=BEGIN, counter=1))
    source = KafkaSource(cast(ApiSource, log), cast(KafkaCluster, log))
    position, done, read_s, fold_s = BEGIN, 0, 0.0, 0.0
    while done < changes:
        began_s = time.process_time()
        page = await source.read(position, limit=BATCH_CHANGES_MAX, wait_s=0.0)
        read_s += time.process_time() - began_s
        began_s = time.process_time()
        await folder.fold(Batch("flights", "s0", page.changes))
        fold_s += time.process_time() - began_s
        done += len(page.changes)
        position = page.following or position
    return [
        Result("a change read from a fetched log, CPU", read_s / done * 1e6, "us"),
        Result("a change folded by 3 panels and written, CPU", fold_s / done * 1e6, "us"),
    ]


@click.command(context_settings={"show_default": True})
@click.option("--changes", default=100_000, help="Changes to fold.")
def main(changes: int) -> None:
    """Measure the fold of a dashboard and print a Markdown table."""
    click.echo(format_circumstances(circumstances("dashboard_fold")))
    build_folder.PAUSE_S = 0.0
    log = FetchedLog(list(make_records(changes)))
    click.echo(as_markdown(asyncio.run(measure(log, changes))))


if __name__ == "__main__":
    main()
