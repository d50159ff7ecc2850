"""Copies of tables rebuilt from their streams alone, read while others write.

A shard is read only after its parents, so that every change of a key is applied in commit order.
Within a shard the sequence must increase strictly: a record that came twice, or too late, is an
error here and not a wrong copy. Rows are kept as JSON text, a quarter of the size of dictionaries.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence

from demo.source import Columns, Key, Row, Table
from rowtide.cli.client import Client, StreamRecord
from rowtide.cli.wire_row import Put
from rowtide.core.plainbuffer import SequenceInfo

__all__ = ["Copy", "Follower"]

IDLE_S = 0.005
"""The pause after a round that found nothing, so that an idle follower costs little."""


class Copy:
    """One table, as its stream tells it."""

    def __init__(self, client: Client, table: Table) -> None:
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
            page = self._client.get_stream_record(iterator)
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


class Follower:
    """A thread that reads all streams round and round; ``saw`` is told how many records came."""

    def __init__(self, client: Client, tables: Sequence[Table], saw: Callable[[int], None]) -> None:
        self.copies = {table: Copy(client, table) for table in tables}
        self._saw = saw
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                count = sum(copy.read() for copy in self.copies.values())
                self._saw(count)
                if not count:
                    self._stopping.wait(IDLE_S)
        except Exception as error:  # noqa: BLE001 - the thread's outermost loop; stop() raises it.
            self._failure = error

    @property
    def alive(self) -> bool:
        """False after a failure, which ``stop`` raises."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread; raise what it failed with."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
