"""The database of the logs: RocksDB with its write-ahead log, synced at every write.

Of the local log only this module knows rocksdict. Once ``write`` returns, the batch is on
the disk. The outcome of a failed write is unknown until the database was opened again:
RocksDB may have put it into its write-ahead log. RocksDB drops a torn write whole.

Calls block. ``write``, ``open`` and ``close`` belong to the writer's thread; reads may
come from another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
)

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.local.layout import (
    BOUNDS,
    FORMAT,
    FORMAT_KEY,
    LAST_KEY,
    TOPICS,
    Bounds,
    Topic,
    number_of,
)

__all__ = ["AtomicWrite", "LogStore", "OtherFormat", "Store", "StoreBusy", "WriteFailed"]

WRITE_BUFFER_BYTES = 16 << 20
"""A restart after kill -9 reads a few times as many bytes; memory is as large."""
CACHE_BYTES = 4 << 20
LEVELS = [DBCompressionType.none()] * 2 + [DBCompressionType.lz4()] * 5
"""The compression of each level, as of rows (``stream/shard/row_store.py``)."""


class AtomicWrite(Protocol):
    """Changes that are written together, or not at all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""
        ...

    def delete(self, key: bytes) -> None:
        """Delete the value at a key, if any."""
        ...

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the values at begin <= key < end."""
        ...


class Store(Protocol):
    """An ordered map on a disk, as the local log uses it. ``LogStore`` is the one on RocksDB."""

    def open(self) -> None:
        """Open the store, see ``LogStore.open``."""
        ...

    def close(self) -> None:
        """Release the store. Written values stay."""
        ...

    def new_batch(self) -> AtomicWrite:
        """Return an empty batch."""
        ...

    def write(self, batch: AtomicWrite) -> None:
        """Write a batch and sync it, see ``LogStore.write``."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value at each key. Raises ``Unavailable``."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the values at start <= key < end, in order. Raises ``Unavailable``."""
        ...

    def topics(self) -> dict[str, Topic]:
        """Return the stored topics. Raises ``Unavailable``."""
        found = self.scan(TOPICS, bytes((TOPICS[0] + 1,)))
        return {key[1:].decode(): Topic.decode(value) for key, value in found}

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds of each partition, by its number. Raises ``Unavailable``."""
        found = self.scan(BOUNDS, bytes((BOUNDS[0] + 1,)))
        return {number_of(key): Bounds.decode(value) for key, value in found}


class WriteFailed(Exception):
    """A write failed, and may still be on the disk."""


class StoreBusy(Exception):
    """Another process has the database open."""


class OtherFormat(Exception):
    """The database was written by another version of rowtide."""


class LogStore(Store):
    """One directory. It is closed until ``open``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: Rdict | None = None

    def open(self) -> None:
        """Open the database; create it if missing.

        Raises ``StoreBusy``, ``OtherFormat`` and ``Unavailable``.
        """
        assert self._db is None, "already open"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            db = Rdict(str(self.path), _options())
        except Exception as error:  # rocksdict raises no narrower type.
            if "lock" in str(error).lower():
                raise StoreBusy(f"{self.path} is in use by another process") from error
            raise self._unreadable(error) from error
        try:
            found = db.get(FORMAT_KEY)
        except Exception as error:  # rocksdict raises no narrower type.
            db.close()
            raise self._unreadable(error) from error
        if found not in (None, FORMAT):
            db.close()
            raise OtherFormat(
                f"{self.path} has log format {found!r}, this version reads {FORMAT!r}"
            )
        self._db = db
        if found is None:
            batch = self.new_batch()
            batch.put(FORMAT_KEY, FORMAT)
            batch.put(LAST_KEY, b"")
            try:
                self.write(batch)
            except WriteFailed as error:
                self.close()
                raise Unavailable(f"the log in {self.path} cannot be created: {error}") from error

    @property
    def sequence(self) -> int:
        """Return a number that rises with every write, and only then."""
        return int(self._require_open().latest_sequence_number())

    def close(self) -> None:
        """Release the directory. Written values stay, even if this fails."""
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except Exception:  # noqa: BLE001 - It flushes; the write-ahead log has everything.
                return

    def new_batch(self) -> AtomicWrite:
        """Return an empty batch."""
        return cast(AtomicWrite, WriteBatch(raw_mode=True))

    def write(self, batch: AtomicWrite) -> None:
        """Write a batch and sync it. Raises ``WriteFailed``: the outcome is unknown."""
        try:
            db = self._require_open()
            # Two steps: a write with ``sync`` keeps all other threads from running until the disk
            # has answered (rocksdict 0.3 holds the interpreter's lock). The second one does not.
            db.write(cast(Any, batch))
            db.flush_wal(True)
        except Exception as error:  # rocksdict raises no narrower type.
            raise WriteFailed(str(error)) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value at each key. Raises ``Unavailable``."""
        try:
            return list(self._require_open().get(list(keys)))
        except Exception as error:  # rocksdict raises no narrower type.
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> Unavailable:
        return Unavailable(f"the log in {self.path} cannot be read: {error}")

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the values at start <= key < end, in order. Raises ``Unavailable``.

        RocksDB's iterators end silently at a value that they cannot read. So the scan
        must meet ``LAST_KEY``, or a key after ``end``. It uses no bounds of ReadOptions,
        see ``RowStore.scan``.
        """
        for key, value in self._require_open().items(from_key=start):
            if key >= end:
                return
            yield key, value
        raise Unavailable(f"the log in {self.path} cannot be read: an entry is damaged")

    def _require_open(self) -> Rdict:
        if self._db is None:
            raise Unavailable(f"the log in {self.path} is not open")
        return self._db


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(3)
    options.set_max_background_jobs(2)
    options.set_compression_per_level(LEVELS)
    # A crash may tear the last write at any byte, even in its middle, because disks
    # reorder. Every earlier write was synced, so no acknowledged one lies after the
    # unreadable bytes.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    table = BlockBasedOptions()
    table.set_block_cache(Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options
