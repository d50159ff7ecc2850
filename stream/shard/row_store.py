"""The rows of one slot in RocksDB: chunks, marks, and the position in the changelog.

RocksDB's own write-ahead log is off: the shards' logs are the only logs. Everything is in
one column family, so a crash always keeps a prefix of the writes, mark included. After a
crash a shard replays from the mark that survived.

One ``RowStore`` is one directory, opened by one process. Calls do not wait on a disk,
except ``flush`` and rare stalls when RocksDB's compaction lags.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from struct import Struct
from typing import Any, NoReturn, cast
from weakref import WeakSet

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    Snapshot,
    WriteBatch,
    WriteOptions,
)

from rowtide.core.cluster.split_points import StoredFile
from rowtide.core.rows import chunk as chunks
from rowtide.core.rows.chunk_merge import bury, merge
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.index import PROGRESS, progress_of
from rowtide.core.shard.mark import mark_position
from rowtide.core.shard.source_position import SOURCES, further, table_of
from rowtide.core.shard.transaction_id import COMMITS, commit_bound
from rowtide.core.values.errors import Unavailable

__all__ = [
    "RowStore",
    "StoreDamaged",
    "StoreFailed",
    "destroy",
    "removal_key",
    "remove_leftover",
    "skip_key",
]

_FIRST, _LAST = b"\0", b"\xff"
"""Borders below and above all keys: a scan that meets neither has missed entries."""

_CHANGELOG_KEY = b"c"
_ARRIVING = b"a"
"""Prefix of a note: a copy of a shard is being folded, which may be given up."""
_REMOVED = b"x"
"""Prefix of a note: the changelog may still have a chunk that the rows no longer have."""

_PASSED_OVER = b"o"
"""Prefix of a note: removals were skipped beside a part of a shard's copy."""

_POSITION = Struct("<qd")

BLOCK_CACHE = Cache(32 * 1024 * 1024)
"""Shared by every slot of the process, so memory does not grow with the number of slots."""

_UNCOMPRESSED, _LZ4 = DBCompressionType.none(), DBCompressionType.lz4()
LEVELS = [_UNCOMPRESSED] * 2 + [_LZ4] * 5
"""The compression of each level. The first two have up to 320 MiB, and are written most often.
Compressing them took nearly half of the CPU of RocksDB's threads.
"""
MEMTABLE_BLOOM = 0.005
"""Part of a write buffer: 15 bits for a row of 300 bytes. Most rows that are looked up before a
write are new.
"""


class StoreFailed(Exception):
    """RocksDB failed to write or to open, as on a full disk. Earlier writes are intact."""


class StoreDamaged(StoreFailed):
    """RocksDB cannot open or read the directory, and never will: its bytes have changed."""


class RowStore:
    """Chunks and marks of one slot. Implements the fold's ``ChunkReader``.

    Opening one raises ``StoreFailed``, or its subclass ``StoreDamaged``.
    """

    damaged = ""
    """The error of an unreadable part; empty if there was none."""

    def __init__(self, path: Path, *, write_buffer_bytes: int = 16 * 1024 * 1024) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(path), _options(write_buffer_bytes))
        except Exception as error:  # rocksdict raises no narrower type.
            kind = StoreDamaged if _is_damage(str(error)) else StoreFailed
            raise kind(f"{path}: {error}") from error
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True
        self._unlogged.memtable_insert_hint_per_batch = True  # The rows of a batch are neighbours.
        self._moments: WeakSet[_Moment] = WeakSet()
        self.get: Callable[[bytes], bytes | None] = self._reading(self._db.get)
        """Return a chunk's bytes, or None. Looked up once, because it is the most frequent call.
        """
        self.get_many: Callable[[Sequence[bytes]], list[bytes | None]] = self._reading(self._db.get)
        """Return the result of ``get`` for each key of a list, at half its cost."""
        self.write([(_FIRST, b""), (_LAST, b"")])

    # Reading.

    def _reading(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that calls ``read`` and raises the error of ``_failure``."""

        def reading(key: object) -> Any:
            try:
                return read(key)
            except Exception as error:  # rocksdict raises no narrower type.
                raise self._failure(error) from error

        return reading

    def _failure(self, error: Exception) -> StoreFailed:
        """Return the error for a failure of RocksDB; record permanent damage."""
        if not _is_damage(str(error)):
            return StoreFailed(f"{self.path}: {error}")
        self.damaged = str(error)
        return StoreDamaged(f"{self.path}: {error}")

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries with start <= key < end, in order, as of now.

        Raises ``StoreDamaged`` if one cannot be read.
        """
        # ReadOptions gets no bound: rocksdict 0.3 frees the bound's memory while the
        # iterator still reads it, and rows were missed. Measured: the comparison takes
        # 0.1 us a row.
        found = chain(self._db.items(from_key=start), self._broken_off())
        return takewhile(lambda pair: pair[0] < end, found)

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield entries with low <= key <= high in descending order, like ``scan``."""
        found = chain(self._db.items(backwards=True, from_key=high), self._broken_off())
        return takewhile(lambda pair: pair[0] >= low, found)

    def _broken_off(self) -> Iterator[tuple[bytes, bytes]]:
        """Raise if entries end before the border beyond them all: one cannot be read.

        RocksDB reports this in its iterator's status, which rocksdict does not pass on.
        """
        self.damaged = "not every entry can be read"
        raise StoreDamaged(f"{self.path}: {self.damaged}")
        yield b"", b""

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        """Return the last entry with low <= its key <= key, or None."""
        return next(self.scan_backward(key, low), None)

    def marks(self) -> Iterator[tuple[str, bytes]]:
        """Yield (shard id, mark) of every shard with a mark here."""
        for key, value in self.scan(b"m", b"n"):
            yield key[1:].decode(), value

    def arriving(self) -> list[str]:
        """Return the shards whose copies were folded here, and which have not opened here since."""
        return [key[1:].decode() for key, _ in self.scan(_ARRIVING, b"b")]

    def files(self) -> list[StoredFile]:
        """Return RocksDB's files; the latest writes are in none of them yet."""
        return [
            StoredFile(
                file["start_key"], file["end_key"], file["level"], file["num_entries"], file["size"]
            )
            for file in self._db.live_files()
        ]

    # Writing.

    def write(self, writes: Writes, marks: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Write chunks and marks together, or none of them."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in writes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        for key, value in marks:
            put(key, value)
        try:
            self._db.write(batch, self._unlogged)
        except Exception as error:  # rocksdict raises no narrower type.
            raise self._failure(error) from error

    def take(self, writes: Writes, marks: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Write like ``write``, and note removed chunks for the changelog, all in one batch."""
        notes = [(removal_key(key), b"") for key, value in writes if value is None]
        self.write([*writes, *notes] if notes else writes, marks)

    def make_room(self, found: Iterable[tuple[bytes, int]]) -> None:
        """Remove the chunks of ``rows_within``, and note them for the changelog, in one batch.

        The notes keep the rows' stamps, because a reader of the changelog may have these
        rows.
        """
        writes: Writes = []
        for key, stamp in found:
            writes += (key, None), (removal_key(key), b"%d" % stamp if stamp else b"")
        self.write(writes)

    def note_arriving(self, shard_id: str, *, arrives: bool) -> None:
        """Note that a copy of a shard is folded from now on, or that the shard has opened."""
        self.write([(_ARRIVING + shard_id.encode(), b"" if arrives else None)])

    def find_removed(
        self, left: Sequence[tuple[bytes, bytes]] = (), *, count: int = 20_000
    ) -> dict[bytes, int]:
        """Return removed chunks that may be in the changelog, with their rows' stamps.

        The stamp is 0 if the row still exists without the chunk; of these about ``count``
        are returned. All others are returned, because a reader of the new shard's mark
        takes its rows for complete. None is in one of the ranges ``left``, low <= key <
        high.
        """
        found: dict[bytes, int] = {}
        for note, value in self.scan(_REMOVED, _REMOVED + b"\xff"):
            key, stamp = note[1:], int(value or b"0")
            if (stamp or len(found) < count) and not any(a <= key < b for a, b in left):
                found[key] = stamp
        return found

    def forget_removed(self, keys: Iterable[bytes]) -> None:
        """Drop the notes of chunks that the changelog no longer has."""
        self.write([(_REMOVED + key, None) for key in keys])

    def snapshot(self) -> Callable[[bytes], bytes | None]:
        """Return a ``get`` that keeps reading the present state until the store is closed."""
        moment = _Moment(self._db.snapshot(), self._failure)
        self._moments.add(moment)
        return moment.get

    def scan_changed(self, low: bytes, high: bytes, stamp: int) -> Iterator[bytes]:
        """Yield the keys of chunks with low <= key < high that are not older than ``stamp``."""
        for key, value in self.scan(low, high):
            if chunks.header(value)[4] >= stamp:
                yield key

    def table_slice(self, known: Callable[[int], bool], *, count: int = 2000) -> list[bytes]:
        """Return up to ``count`` chunk keys of one table that is no longer ``known``."""
        unknown = next((number for number in self.table_numbers() if not known(number)), None)
        if unknown is None:
            return []
        found = self.scan(chunks.table_prefix(unknown), chunks.table_prefix(unknown + 1))
        return [key for key, _ in islice(found, count)]

    def table_numbers(self) -> Iterator[int]:
        """Yield the number of every table and index with rows here."""
        at = b"r"
        while (found := next(self.scan(at, b"s"), None)) is not None:
            number = int.from_bytes(found[0][1:5], "big")
            yield number
            at = chunks.table_prefix(number + 1)

    def rows_within(
        self, ranges: Iterable[tuple[bytes, bytes]], *, count: int = 2000
    ) -> list[tuple[bytes, int]]:
        """Return about ``count`` chunk keys of whole rows within one of ``ranges``, if any.

        A row's first chunk comes with a stamp above all of the row, the others with 0.
        """
        for low, high in ranges:
            found: list[tuple[bytes, int]] = []
            first = 0
            for chunk_key, value in self.scan(low, high):
                head = chunks.header(value)
                if head[8] and found:
                    row, stamp = found[first]
                    found[first] = row, max(stamp, head[4] + 1)
                elif len(found) >= count:
                    break
                else:
                    first = len(found)
                found.append((chunk_key, 0 if head[8] else head[4] + 1))
            if found:
                return found
        return []

    def find_left_over(self, known: Callable[[int], bool]) -> list[bytes]:
        """Return keys of tables and indexes that are no longer ``known``; empty if there
        are none.

        The result may be a part: call it again after these were removed.
        """
        notes = self.scan(PROGRESS, bytes((PROGRESS[0] + 1,)))
        sources = self.scan(SOURCES, bytes((SOURCES[0] + 1,)))
        return (
            self.table_slice(known)
            or [key for key, _ in notes if not known(progress_of(key))]
            or [key for key, _ in sources if not known(table_of(key))]
        )

    def old_commits(self, started_before_us: int, *, count: int = 2000) -> list[bytes]:
        """Return up to ``count`` keys of committed transactions that started before that time."""
        found = self.scan(COMMITS, commit_bound(started_before_us))
        return [key for key, _ in islice(found, count)]

    def flush(self) -> None:
        """Write everything to the disk. Blocks for the time of the disk."""
        try:
            self._db.flush()
        except Exception as error:  # rocksdict raises no narrower type.
            raise self._failure(error) from error

    def close(self, *, flush: bool = True) -> None:
        """Release the directory. Raises ``StoreFailed`` if a flush failed; the store is
        closed anyway.
        """
        try:
            if flush:
                self.flush()
        finally:
            self.get = self.get_many = _raise_closed
            for moment in list(self._moments):
                moment.end()
            closing, self._db = self._db, cast(Rdict, _Closed())
            try:
                closing.close()  # It flushes too, and releases the directory even if that fails.
            except Exception as error:  # rocksdict raises no narrower type.
                raise self._failure(error) from error

    # The changelog.

    def changelog_position(self) -> int | None:
        """Return the next changelog offset to read, or None if nothing was read yet."""
        stored = self._db.get(_CHANGELOG_KEY)
        return None if stored is None else int(_POSITION.unpack(stored)[0])

    def changelog_time(self) -> float | None:
        """Return when the position was last set, in Unix seconds."""
        stored = self._db.get(_CHANGELOG_KEY)
        return None if stored is None else float(_POSITION.unpack(stored)[1])

    def set_changelog_position(
        self, position: int, now_s: float, *, flushed: Mapping[str, int] | None = None
    ) -> None:
        """Store that the changelog is folded in up to ``position``, exclusive.

        ``flushed`` has, per shard, the log offset up to which the changelog is complete.
        """
        writes: Writes = [(_CHANGELOG_KEY, _POSITION.pack(position, now_s))]
        writes += [(_flush_key(s), b"%d" % offset) for s, offset in (flushed or {}).items()]
        self.write(writes)

    def find_flushed(self, shard_id: str) -> int:
        """Return the last log offset that the changelog covers for a shard; -1 for none."""
        return int(self._db.get(_flush_key(shard_id)) or -1)

    def apply_changelog(
        self,
        entries: Iterable[tuple[int, bytes, bytes | None]],
        *,
        read: tuple[int, float] | None = None,
    ) -> None:
        """Apply changelog entries (offset, key, value) that are newer than the rows here.

        ``read`` is the position after them and its time, which are stored with them. An
        entry never lowers a stamp in its row, nor a mark's offset. A tombstone (None)
        removes a row that is deleted here too, and no other.
        """
        view = Overlay(self)
        writes: Writes = []
        for _, key, value in entries:
            if key[:1] == b"r":
                taken = _fold_chunk(view, key, value)
            elif key[:1] == PROGRESS:
                taken = _further(key, value, view.get(key))
            elif value is not None and key[:1] == SOURCES:
                taken = further(view, key, value)
            elif value is not None and key[:1] == b"m":
                taken = _merge_mark(key, value, view.get(key))
            else:
                taken = [(key, value)]
            view.add(taken)
            writes += taken
        if read is not None:
            writes.append((_CHANGELOG_KEY, _POSITION.pack(*read)))
        self.write(writes)


class _Moment:
    """The state of a store at one moment.

    RocksDB keeps the directory locked while a snapshot exists, even after the store is
    closed. So it ends with its store, even if a flush that waits for Kafka still holds
    it.
    """

    # Its iterators do not keep to the snapshot (rocksdict 0.3); reads of single keys do.

    def __init__(self, frozen: Snapshot, failure: Callable[[Exception], StoreFailed]) -> None:
        self._frozen: Snapshot | None = frozen
        self._failure = failure

    def get(self, key: bytes) -> bytes | None:
        """Return a chunk's bytes, or None. Raises ``Unavailable`` once the store is closed."""
        if self._frozen is None:
            return _raise_closed(key)
        try:
            found: bytes = self._frozen[key]
        except Exception as error:  # rocksdict raises no narrower type.
            if str(error) != "key not found":
                raise self._failure(error) from error
            return None
        return found

    def end(self) -> None:
        """Release the store."""
        self._frozen = None


def _fold_chunk(view: Overlay, key: bytes, value: bytes | None) -> Writes:
    """Return the changes of a chunk's entry, with notes of keys that only the changelog has."""
    if value is None:
        writes = bury(view, key)
        gone = {removed for removed, _ in writes} - {key}
        return [*writes, (_REMOVED + key, None), *((_REMOVED + other, b"") for other in gone)]
    writes = merge(view, key, value)
    if len(writes) == 1 and writes[0][0] == key and writes[0][1] is not None:
        return writes
    after = {key: view.get(key), **dict(writes)}
    return [*writes, *((_REMOVED + other, b"") for other, left in after.items() if left is None)]


def _further(key: bytes, value: bytes | None, stored: bytes | None) -> Writes:
    """Return the change of an index's progress: it never goes back, except for its end."""
    return [(key, value)] if value is None or value > (stored or b"") else []


def _merge_mark(key: bytes, value: bytes, stored: bytes | None) -> Writes:
    """Return the change of a shard's mark, and always how far the changelog is complete.

    Of two marks at one offset the changelog's wins: a repair may have put another entry
    there.
    """
    writes: Writes = [(b"f" + key[1:], b"%d" % mark_position(value)[0])]
    if stored is None or mark_position(value) >= mark_position(stored):
        writes.append((key, value))
    return writes


def removal_key(key: bytes) -> bytes:
    """Return the key of the note that the changelog may have ``key``, and the rows have not."""
    return _REMOVED + key


def skip_key(shard_id: str) -> bytes:
    """Return the key of the note that removals were skipped beside a part of a copy."""
    return _PASSED_OVER + shard_id.encode()


def _flush_key(shard_id: str) -> bytes:
    return b"f" + shard_id.encode()


def _raise_closed(_key: object) -> NoReturn:
    # The slot closed while a task was reading.
    raise Unavailable("The partition is not available.")


class _Closed:
    """Takes RocksDB's place in a closed store."""

    def __getattr__(self, name: str) -> NoReturn:
        _raise_closed(name)


def _is_damage(message: str) -> bool:
    """True if RocksDB's message reports a directory that no later opening can repair.

    A full disk, unreadable files and a held lock are reported as "IO error" alone. A
    missing file is reported as one within "Corruption", or alone if it is the list of all
    others.
    """
    if "IO error" in message:
        return "No such file or directory" in message
    return message.startswith("Corruption")


def destroy(path: Path) -> None:
    """Remove a store's directory: its rows are rebuilt from Kafka. Raises ``StoreFailed``.

    It is renamed before its first file is removed, so a killed process leaves nothing
    that looks like a store. The next call, or ``remove_leftover``, removes the rest.
    """
    remove_leftover(path)
    try:
        path.rename(_removal_path(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreFailed(f"{path}: {error}") from error
    remove_leftover(path)


def remove_leftover(path: Path) -> None:
    """Remove the rest of a directory whose removal was interrupted, as far as possible."""
    shutil.rmtree(_removal_path(path), ignore_errors=True)


def _removal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.removed")


def _options(write_buffer_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(3)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(3)
    options.set_max_background_jobs(2)
    options.set_compression_per_level(LEVELS)
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM)
    options.set_memtable_whole_key_filtering(True)
    options.set_db_log_dir("")
    table = BlockBasedOptions()
    table.set_bloom_filter(10.0, False)
    table.set_block_cache(BLOCK_CACHE)
    # Index and filter blocks stay out of the block cache (10 bits a key, on the heap).
    # Sharing 32 MiB with the rows made look-ups of absent keys twice as slow from 600,000
    # rows on.
    options.set_block_based_table_factory(table)
    return options
