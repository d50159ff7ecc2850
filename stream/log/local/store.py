"""The database that holds the logs: RocksDB with its write-ahead log, synced at every write.

It is the only module of the local log that knows rocksdict. What ``write`` has returned from is on
the disk. Of a write that failed nothing is known before the database was opened again: RocksDB may
have put it into its write-ahead log. A write that a crash has torn is dropped, whole, by RocksDB.

Calls block. ``write``, ``open`` and ``close`` belong to the writer's thread; reads may come from
another one.
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
    WriteOptions,
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
"""What is read again after kill -9 is a few times as much; so is the memory."""
CACHE_BYTES = 4 << 20


class AtomicWrite(Protocol):
    """What is written at once, or not at all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""
        ...

    def delete(self, key: bytes) -> None:
        """Delete what stands at a key, if anything."""
        ...

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete what stands at begin <= key < end."""
        ...


class Store(Protocol):
    """An ordered map on a disk, as the local log uses it. ``LogStore`` is the one on RocksDB."""

    def open(self) -> None:
        """Open it, see ``LogStore.open``."""
        ...

    def close(self) -> None:
        """Release it. What was written stays."""
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
        """Yield what is stored at start <= key < end, in order. Raises ``Unavailable``."""
        ...

    def topics(self) -> dict[str, Topic]:
        """Return the topics that are stored. Raises ``Unavailable``."""
        found = self.scan(TOPICS, bytes((TOPICS[0] + 1,)))
        return {key[1:].decode(): Topic.decoded(value) for key, value in found}

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds of each partition, by its number. Raises ``Unavailable``."""
        found = self.scan(BOUNDS, bytes((BOUNDS[0] + 1,)))
        return {number_of(key): Bounds.decoded(value) for key, value in found}


class WriteFailed(Exception):
    """A write failed, and may be on the disk all the same."""


class StoreBusy(Exception):
    """Another process has the database open."""


class OtherFormat(Exception):
    """The database was written by another version of rowtide."""


class LogStore(Store):
    """One directory. It is closed until ``open``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: Rdict | None = None
        self._synced = WriteOptions()
        self._synced.sync = True

    def open(self) -> None:
        """Open the database; make it where it is missing.

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
                raise Unavailable(f"the log in {self.path} cannot be made: {error}") from error

    @property
    def sequence(self) -> int:
        """Return a number that rises with every write, and only then."""
        return int(self._opened().latest_sequence_number())

    def close(self) -> None:
        """Release the directory. What was written stays, whether or not this succeeds."""
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except Exception:  # noqa: BLE001 - It flushes; all of it is in the write-ahead log.
                return

    def new_batch(self) -> AtomicWrite:
        """Return an empty batch."""
        return cast(AtomicWrite, WriteBatch(raw_mode=True))

    def write(self, batch: AtomicWrite) -> None:
        """Write a batch and sync it. Raises ``WriteFailed``: whether it was written is unknown."""
        try:
            self._opened().write(cast(Any, batch), self._synced)
        except Exception as error:  # rocksdict raises no narrower type.
            raise WriteFailed(str(error)) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value at each key. Raises ``Unavailable``."""
        try:
            return list(self._opened().get(list(keys)))
        except Exception as error:  # rocksdict raises no narrower type.
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> Unavailable:
        return Unavailable(f"the log in {self.path} cannot be read: {error}")

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what stands at start <= key < end, in order. Raises ``Unavailable``.

        RocksDB's iterators end at what they cannot read, without a word; so ``LAST_KEY`` must be
        met, or a key behind ``end``. Bounds of ReadOptions are not used, see ``RowStore.scan``.
        """
        for key, value in self._opened().items(from_key=start):
            if key >= end:
                return
            yield key, value
        raise Unavailable(f"the log in {self.path} cannot be read: an entry is damaged")

    def _opened(self) -> Rdict:
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
    options.set_compression_type(DBCompressionType.lz4())
    # A crash may tear the last write at any byte, also in its middle: disks reorder. Every write
    # before it was synced, so nothing acknowledged stands behind what can't be read.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    table = BlockBasedOptions()
    table.set_block_cache(Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options
