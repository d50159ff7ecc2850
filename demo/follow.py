"""Copies of tables rebuilt from their streams alone, read while others write.

A shard is read only after its parents, so that every change of a key is applied in commit order.
Within a shard the sequence must increase strictly: a record that came twice, or too late, is an
error here and not a wrong copy. Rows are kept as JSON text, a quarter of the size of dictionaries.
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
"""The pause after a round that found nothing, so that an idle follower costs little."""

PASSING = frozenset({"OTSPartitionUnavailable", "OTSServerBusy"})
"""Nothing was done, and the same request may succeed soon: SDKs ask again."""

AGAIN_S = 0.2
"""The pause before that: each refusal is a line in the server's log."""

AWAY_S_MAX = 60.0
"""So long a shard may not be available."""


class Copy:
    """One table, as its stream tells it."""

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
        """Read every open shard once and return how many records came."""
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
        """Return the next records; a machine with much else to do loses its leases for moments."""
        until_s = time.monotonic() + AWAY_S_MAX
        while True:
            try:
                return self._client.get_stream_record(iterator)
            except ServerError as error:
                if error.code not in PASSING or time.monotonic() > until_s:
                    raise
            time.sleep(AGAIN_S)

    def _open_shards(self) -> None:
        """Begin every shard whose parents are read; a parent no longer listed has expired."""
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
    """The process that follows the streams ended, and says why."""


class Follower:
    """A process of its own that reads all streams round and round, and knows only the endpoint.

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
        pipe.close()  # The child's end is the child's alone, so that its death ends our wait.
        self._answer()  # Every stream is open.

    @property
    def seen(self) -> int:
        """How many records have been read so far."""
        return int(self._seen.value)

    @property
    def alive(self) -> bool:
        """False after a failure, which ``finish`` raises."""
        return self._process.is_alive()

    def finish(self) -> dict[str, Total]:
        """End the process and return each table's total; raise what it failed with."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send("finish")
        return self._answer()

    def stop(self) -> None:
        """End the process without asking for anything."""
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
    """Run the follower's process: answer once when ready, and once with the totals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on.
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
    """Return a client of the server that is ready."""
    return ProtocolClient(**ready._asdict())
