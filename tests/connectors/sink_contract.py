"""What a sink of rows must do whose target runs in this process, such as a file.

Sinks with a server are tested by ``histories.py:check_history``, through real processes.

``check_any_order`` gives a sink the batches of a history: pieces of the stream and pages of
snapshots, some of them repeated, in any order. The target must end as the table. It must also keep
its rows when it is opened again, and a batch that is repeated then must change nothing. At last a
new target gets a page of all rows first, and then every earlier put. The log has no deletes any
more, so only the page's floor keeps deleted rows out.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.sink import Comparable, Sink
from rowtide.connectors.verify.comparison import row_bytes
from tests.connectors.sink_histories import TABLE, Columns, History, page_of

__all__ = ["RowSink", "check_any_order"]

LIMIT = 1000


class RowSink(Sink, Comparable, Protocol):
    """A sink that can be read back."""


def check_any_order(make: Callable[[Path], RowSink], history: History) -> None:
    """Apply a history's batches to sinks that ``make`` returns for an empty folder."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        asyncio.run(_check(lambda: make(Path(folder)), history))
        asyncio.run(_check_floor(make(Path(other)), history))


async def _check(make: Callable[[], RowSink], history: History) -> None:
    async with _open_sink(make()) as sink:
        for batch in history.batches:
            assert list(await sink.apply(batch)) == []
        expected = _comparable({k: sink.convert_columns(v) for k, v in history.end.items()})
        assert await _rows(sink) == expected
    async with _open_sink(make()) as sink:
        assert await _rows(sink) == expected, "the rows are durable"
        for batch in history.batches[:2]:
            await sink.apply(batch)
        assert await _rows(sink) == expected, "a repeated batch changes nothing"


async def _check_floor(new: RowSink, history: History) -> None:
    async with _open_sink(new) as sink:
        await sink.apply(page_of(history, len(history.changes), (b"", b"")))
        for batch in history.batches:
            puts = [row for row in batch.rows if row.columns is not None]
            await sink.apply(replace(batch, rows=puts))
        expected = _comparable({k: sink.convert_columns(v) for k, v in history.end.items()})
        assert await _rows(sink) == expected, "a page's floor keeps older rows out"
        end = len(history.changes) + 1
        await sink.apply(SinkBatch(TABLE.name, "shard", [], (b"", b""), end))
        assert await _rows(sink) == {}, "a page without rows empties its range"


@asynccontextmanager
async def _open_sink(sink: RowSink) -> AsyncIterator[RowSink]:
    await sink.open(TABLE)
    try:
        yield sink
    finally:
        await sink.close()


async def _rows(sink: RowSink) -> dict[bytes, bytes]:
    rows = await sink.read_rows(b"", b"", limit=LIMIT)
    keys = [row.key_bytes for row in rows]
    assert keys == sorted(set(keys)), "rows are in key order, each once"
    return _comparable({row.key_bytes: row.columns for row in rows})


def _comparable(rows: Mapping[bytes, Columns]) -> dict[bytes, bytes]:
    """Return rows as bytes: a NaN is equal to itself there, and 1 is not equal to 1.0."""
    return {key: row_bytes(columns) for key, columns in rows.items()}
