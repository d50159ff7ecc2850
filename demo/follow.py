"""Copies of tables that are rebuilt from their streams alone, while others write.

A shard is read only after its parents, so that changes of a key are applied in commit order. Within
a shard the sequence must strictly increase: a repeated or late record is an error here, and does
not lead to a wrong copy. Rows are kept as JSON text, a quarter of the size of dictionaries.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from typing import Any

from demo.proof import Total, total
from demo.source import Columns, Key, Row, Table
from rowtide.cli.client import ProtocolClient, ServerError, StreamPage, StreamRecord
from rowtide.client.wire_row import Put
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.deploy.up import Ready

__all__ = ["Copy", "Follower", "FollowerFailed", "connect"]

IDLE_S = 0.02
"""Pause after a round without records, so that an idle follower costs little."""

PASSING = frozenset({"OTSPartitionUnavailable", "OTSServerBusy"})
"""Errors of requests that were not applied and may succeed soon: SDKs retry them."""

RETRY_S = 0.2
"""Pause before a retry, because each error is a line in the server's log."""

UNAVAILABLE_S_MAX = 60.0
"""Longest time for which a shard may be unavailable."""


class Copy:
    """A copy of one table, built from its stream."""

    def __init__(self, client: ProtocolClient, table: Table) -> None:
        self.table = table
        self._client = client
        self._stream_id = client.list_stream(table.name)[0].stream_id
        self._iterators: dict[str, str] = {}
        self._finished: set[str] = set()
        self._last: dict[str, SequenceInfo] = {}
        self._rows: dict[Key, str] = {}
        self._open_shards()

    def rows(self) -> Iterator[Row]:
        """Yield the copy's rows."""
        for key, columns in self._rows.items():
            yield Row(key, json.loads(columns))

    def read(self) -> int:
        """Read every open shard once; return the number of records."""
        count = 0
        for shard_id, iterator in list(self._iterators.items()):
            page = self._page(iterator)
            for record in page.records:
                self._apply(shard_id, record)
            count += len(page.records)
            if page.next_iterator is not None:
                self._iterators[shard_id] = page.next_iterator
            else:
                del self._iterators[shard_id]
                self._finished.add(shard_id)
                self._open_shards()
        return count

    def _page(self, iterator: str) -> StreamPage:
        """Return the next records. Retries, because a busy machine loses its leases for moments."""
        until_s = time.monotonic() + UNAVAILABLE_S_MAX
        while True:
            try:
                return self._client.get_stream_record(iterator)
            except ServerError as error:
                if error.code not in PASSING or time.monotonic() > until_s:
                    raise
            time.sleep(RETRY_S)

    def _open_shards(self) -> None:
        """Start every shard whose parents are read or have expired, so are no longer listed."""
        shards = self._client.describe_stream(self._stream_id).shards
        unread = {shard.shard_id for shard in shards} - self._finished
        for shard in shards:
            waits = {shard.parent_id, shard.parent_sibling_id} & unread
            if not waits and shard.shard_id in unread - self._iterators.keys():
                self._iterators[shard.shard_id] = self._client.get_shard_iterator(
                    self._stream_id, shard.shard_id
                )

    def _apply(self, shard_id: str, record: StreamRecord) -> None:
        row = record.row
        last = self._last.get(shard_id)
        if row.sequence is None or (last is not None and row.sequence <= last):
            raise RuntimeError(f"shard {shard_id}: {row.sequence} follows {last}")
        self._last[shard_id] = row.sequence
        key = tuple(value for _, value in row.key if isinstance(value, int | str))
        if record.kind == "DELETE":
            self._rows.pop(key, None)
            return
        columns: Columns = json.loads(self._rows.get(key, "{}")) if record.kind == "UPDATE" else {}
        for change in row.changes:
            if not isinstance(change, Put):
                columns.pop(change.name, None)
            elif not isinstance(change.value, bytes):
                columns[change.name] = change.value
        self._rows[key] = json.dumps(columns)


class FollowerFailed(Exception):
    """The process that follows the streams ended; the text has the reason."""


class Follower:
    """A separate process that reads all streams in turn. It only knows the endpoint.

    ``seen`` counts the records it has read; ``finish`` returns what it rebuilt.
    """

    def __init__(self, ready: Ready, tables: Sequence[Table]) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._seen = spawning.Value("q", 0)
        self._pipe, pipe = spawning.Pipe()
        self._process = spawning.Process(
            target=_follow, args=(ready, tables, self._seen, pipe), name="follower", daemon=True
        )
        self._process.start()
        pipe.close()  # Only the child keeps its end, so that its death ends our wait.
        self._answer()  # Every stream is open.

    @property
    def seen(self) -> int:
        """The number of records read so far."""
        return int(self._seen.value)

    @property
    def is_alive(self) -> bool:
        """False after a failure, which ``finish`` raises."""
        return self._process.is_alive()

    def finish(self) -> dict[str, Total]:
        """End the process; return each table's total. Raises the process's failure."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send("finish")
        return self._answer()

    def stop(self) -> None:
        """End the process without a result."""
        self._process.terminate()
        self._process.join()

    def _answer(self) -> dict[str, Total]:
        try:
            answer = self._pipe.recv()
        except EOFError:
            answer = "it ended"
        if isinstance(answer, str):
            raise FollowerFailed(f"the stream's follower failed: {answer}")
        totals: dict[str, Total] = answer
        return totals


def _follow(ready: Ready, tables: Sequence[Table], seen: Any, pipe: Any) -> None:
    """Run the follower's process: send one answer when ready, and one with the totals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    try:
        with connect(ready) as client:
            copies = [Copy(client, table) for table in tables]
            pipe.send({})
            while not pipe.poll():
                count = sum(copy.read() for copy in copies)
                seen.value += count
                if not count:
                    pipe.poll(IDLE_S)
        pipe.send({copy.table.name: total(copy.rows()) for copy in copies})
    except Exception as error:  # noqa: BLE001 - the process's outermost loop; the parent raises it.
        pipe.send(f"{type(error).__name__}: {error}")


def connect(ready: Ready) -> ProtocolClient:
    """Return a client of the server."""
    return ProtocolClient(**ready._asdict())
