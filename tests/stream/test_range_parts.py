"""A part of a range at the worker that was asked for it: all of the shards it names, or nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.stream.api.row import RowOperations
from tests.stream.test_source_writes import ANN, Worker, running

Asked = Callable[[Worker, frozenset[str]], bytes | Awaitable[bytes]]


def encode_bound(kind: int) -> bytes:
    return HEADER + plainbuffer.encode_row([(b"pk", bytes((kind,)))], [])


FIRST, LAST = encode_bound(variant.INF_MIN), encode_bound(variant.INF_MAX)


def scan(worker: Worker, only: frozenset[str]) -> bytes | Awaitable[bytes]:
    asked = pb.GetRangeRequest(
        table_name="t",
        direction=pb.FORWARD,
        inclusive_start_primary_key=FIRST,
        exclusive_end_primary_key=LAST,
        max_versions=1,
    )
    return RowOperations(worker.directory).get_range(ANN, asked.SerializeToString(), only)


def export(worker: Worker, only: frozenset[str]) -> bytes:
    asked = pb.BulkExportRequest(
        table_name="t",
        inclusive_start_primary_key=FIRST,
        exclusive_end_primary_key=LAST,
        data_block_type_hint=pb.DBT_PLAIN_BUFFER,
    )
    return worker.operations.bulk_export(ANN, asked.SerializeToString(), only)


@pytest.mark.parametrize("read", [scan, export])
async def test_rows_of_a_shard_that_another_catalog_has_are_not_left_out(
    tmp_path: Path, read: Asked
) -> None:
    async with running(tmp_path) as worker:
        await worker.write(("a", 1), ("z", 2))
        assert read(worker, frozenset({"s1", "s2"}))
        # The worker that divided the range knows s9 here. It was split, merged or moved,
        # or comes soon.
        for only in ({"s1", "s9"}, {"s9"}):
            with pytest.raises(Unavailable):
                read(worker, frozenset(only))
