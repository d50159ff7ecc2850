"""The index of one stream of a table: the file, what feeds it, and answers as of a position.

Of the processes that open the index, one has the lock and feeds it. When it ends, another one goes
on at the stored positions. All of them read the file.

**Every write answered before a search began is found.** The search first asks the server where the
log of each shard ends. It reads the index when its positions have passed these ends. A shard that
has ended in between has children: the search passes their ends, too.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.source import SourceShard
from rowtide.client.row_values import RowDict
from rowtide.client.search.query import SearchPage, SearchRequest
from rowtide.client.search.search_feed import SearchFeed
from rowtide.client.search.search_file import SearchFile
from rowtide.client.search.search_reader import SearchReader
from rowtide.client.search.writer_lock import WriterLock
from rowtide.core.records.position import decode_position
from rowtide.core.values.errors import StoreError, Unavailable

__all__ = ["IndexStatus", "ShardLag", "StreamIndex"]

Result = TypeVar("Result")
Ends = Mapping[str, int]
"""The end of each shard's log, as an offset."""

PRESENT_END = 2**63 - 1
"""A time in microseconds after every change: a log's present end."""

LOCK_LOOK_S = 0.05
"""How often a process that only reads tries to take the lock."""

LOOK_S = 0.002
"""How often a search looks how far another process is."""

LISTING_S = 0.02


class ShardLag(NamedTuple):
    """How far a shard is read. ``records`` are those behind, hidden ones included."""

    shard_id: str
    records: int
    has_all_rows: bool
    """False while the rows of the table are still being read."""


class IndexStatus(NamedTuple):
    """The rows of an index and how far it is."""

    folder: Path
    rows: int
    shards: list[ShardLag]


class StreamIndex:
    """The index of ``source``'s present stream in ``folder``. ``run`` feeds it, and closes it."""

    def __init__(self, source: ApiSource, folder: Path, *, ttl_s: int | None) -> None:
        self.folder = folder
        self._source = source
        self._ttl_s = ttl_s
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="search index writer")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="search index reader")
        self._reader: SearchReader | None = None
        self._feed: SearchFeed | None = None
        self._moved = asyncio.Event()
        self._leaves: list[str] = []
        """Shards without children, as last listed. One that has ended since is noticed."""
        self._task: asyncio.Task[None] | None = None
        self._failure: StoreError | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Feed the index in a task from now on."""
        self._task = tasks.create_task(self._run(), name=f"search index {self.folder.name}")

    def leave(self) -> None:
        """Stop feeding, without waiting. A batch in progress comes again."""
        if self._feed is not None:
            self._feed.stop()
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Stop feeding, and return when the files are closed."""
        self.leave()
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def has_ended(self) -> bool:
        """True if the index can answer no more searches."""
        return self._failure is not None

    # ---- Feeding ----

    async def _run(self) -> None:
        """Take the lock when it is free, and feed the index. Searches get the failure."""
        lock: WriterLock | None = None
        file: SearchFile | None = None
        try:
            file = await self._write(lambda: SearchFile(self.folder))
            lock = await self._write(lambda: WriterLock(self.folder))
            is_ours = await self._write(lock.take)
            while not is_ours:  # Another process feeds the index.
                await asyncio.sleep(LOCK_LOOK_S)
                is_ours = await self._write(lock.take)
            self._feed = SearchFeed(self._source, file, self._write, self._wake)
            await self._feed.run()
            self._failure = _client_is_closed()
        except asyncio.CancelledError:
            self._failure = _client_is_closed()
            raise
        except StoreError as failure:
            self._failure = failure
        except sqlite3.Error as error:
            self._failure = Unavailable(
                f"The search index in {self.folder} cannot be written: {error}. The folder can "
                f"be deleted: the next search makes it again."
            )
        except Exception as error:
            self._failure = Unavailable(f"The search index stopped: {error!r}.")
            raise
        finally:
            self._wake()
            await self._close(lock, file)

    async def _close(self, lock: WriterLock | None, file: SearchFile | None) -> None:
        for opened in (lock, file):
            if opened is not None:
                await self._write(opened.close)
        if self._reader is not None:
            # Its thread finishes the search in progress first.
            self._reading.submit(self._reader.close)
        self._writing.shutdown(wait=False)
        self._reading.shutdown(wait=False)

    def _wake(self) -> None:
        """Wake the searches that wait for the index to move."""
        self._moved.set()
        self._moved = asyncio.Event()

    # ---- Searching ----

    async def answer(self, request: SearchRequest) -> SearchPage[RowDict]:
        """Return the rows that match, as of a moment after the call. Raises ``StoreError``."""
        reader = await self._open_reader()
        ends = await self._wait_for_present()
        expired_ms = None
        if self._ttl_s is not None:
            # A cell is visible while it is ``ttl_s`` old in whole seconds.
            now_s = self._source.endpoint.answered_us // 1_000_000
            expired_ms = (now_s - self._ttl_s) * 1000 - 1
        while True:
            found = await self._read(
                lambda: reader.answer(
                    request,
                    expired_ms=expired_ms,
                    is_ready=lambda positions: not _behind(ends, positions),
                )
            )
            if found is not None:
                return found
            # The index began again in between, and its feeder may not have noticed yet.
            await asyncio.sleep(LOOK_S)
            await self._wait_for(ends)

    async def status(self) -> IndexStatus:
        """Return how many rows the index has, and how far each shard is."""
        reader = await self._open_reader()
        ends = {name: (await self._end(name))[0] for name in leaves(await self._source.shards())}
        positions = await self._read(reader.positions)
        shards = [_lag(name, end, positions.get(name)) for name, end in ends.items()]
        return IndexStatus(self.folder, await self._read(reader.count_rows), shards)

    async def rebuild(self) -> None:
        """Remove everything, and read the table again. Searches wait until it is read."""
        file = await self._write(lambda: SearchFile(self.folder))
        try:
            await self._write(lambda: file.begin_again(empty=True))
        finally:
            await self._write(file.close)

    async def wait_for_present(self) -> None:
        """Return when the index has everything that was answered before the call."""
        await self._open_reader()
        await self._wait_for_present()

    async def wait_until_failed(self) -> None:
        """Wait while the index is fed, and raise the failure."""
        while True:
            moved = self._moved
            self._require_open()
            await moved.wait()

    def describe_lag(self) -> str:
        """Return in words how far the index is."""
        positions = {} if self._feed is None else self._feed.positions
        building = sum(1 for lease in positions.values() if lease.pending)
        if self._feed is None:
            return "another process of this machine feeds it"
        if building or not positions:
            return "rows of the table are still being read"
        return "changes are written faster than they are read"

    async def _wait_for_present(self) -> Ends:
        """Wait until the index has passed the present end of each shard; return the ends."""
        ends: dict[str, int] = {}
        ended: set[str] = set()
        wanted = self._leaves or leaves(await self._source.shards())
        while True:
            for name in wanted:
                ends[name], has_ended = await self._end(name)
                if has_ended:
                    ended.add(name)
            await self._wait_for(ends)
            if not ended:
                # Every later write is in one of these shards, or in a descendant.
                self._leaves = wanted
                return ends
            shards = await self._source.shards()
            family = _descendants(shards, ends)
            wanted = [name for name in leaves(shards) if name in family]
            ended -= {parent for shard in shards for parent in shard.parents}
            if ended:
                await asyncio.sleep(LISTING_S)  # A child may be listed a moment later.

    async def _end(self, name: str) -> tuple[int, bool]:
        """Return the present end of a shard's log, and True if the shard has ended there.

        Mostly the index has passed the end. Then one request finds nothing after its position.
        """
        lease = (await self._positions()).get(name)
        if lease is not None and lease.position:
            page = await self._source.read(lease.position, limit=1, wait_s=0.0)
            if page.at_end and page.following is not None:
                return decode_position(lease.position).offset, False
        position = await self._source.position(name, PRESENT_END)
        page = await self._source.read(position, limit=1, wait_s=0.0)
        return decode_position(position).offset, page.following is None and not page.changes

    async def _wait_for(self, ends: Ends) -> None:
        """Return when the index has passed these ends."""
        while True:
            moved = self._moved
            if _behind(ends, await self._positions()) is None:
                return
            if self._feed is None:
                await asyncio.sleep(LOOK_S)
            else:
                await moved.wait()

    async def _positions(self) -> Mapping[str, ReaderLease]:
        self._require_open()
        if self._feed is not None:
            return self._feed.positions
        reader = await self._open_reader()
        return await self._read(reader.positions)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _open_reader(self) -> SearchReader:
        self._require_open()
        if self._reader is None:
            self._reader = await self._read(lambda: SearchReader(self.folder))
        return self._reader

    # ---- Threads ----

    async def _write(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._writing, work)

    async def _read(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns in the reader's thread. Raises the index's failure."""
        self._require_open()
        return await asyncio.get_running_loop().run_in_executor(self._reading, work)


def _client_is_closed() -> Unavailable:
    return Unavailable("The client of this search is closed.")


def leaves(shards: Iterable[SourceShard]) -> list[str]:
    """Return the shards that have no children."""
    listed = list(shards)
    parents = {parent for shard in listed for parent in shard.parents}
    return [shard.shard_id for shard in listed if shard.shard_id not in parents]


def _descendants(shards: Iterable[SourceShard], names: Iterable[str]) -> set[str]:
    """Return these shards and those that came from them. Parents are listed before children."""
    found = set(names)
    for shard in shards:
        if found & set(shard.parents):
            found.add(shard.shard_id)
    return found


def _behind(ends: Ends, positions: Mapping[str, ReaderLease]) -> str | None:
    """Return a shard that is not read up to its end, None if there is none."""
    for name, end in ends.items():
        lease = positions.get(name)
        if lease is None or lease.pending:
            return name
        if not lease.ended and decode_position(lease.position).offset < end:
            return name
    return None


def _lag(name: str, end: int, lease: ReaderLease | None) -> ShardLag:
    if lease is None:
        return ShardLag(name, end, has_all_rows=False)
    at = decode_position(lease.position).offset
    return ShardLag(name, 0 if lease.ended else max(end - at, 0), not lease.pending)
