"""A ``RowStore`` in memory that forgets, in a crash, the last writes: a prefix of them survives.

That is what RocksDB without its write-ahead log does. Several openings share one ``Disk``, as
they share a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rowtide.core.rows.fold import Writes
from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.row_store import RowStore, StoreDamaged, StoreFailed
from tests.simulation.virtual_time import in_process

__all__ = ["Disk", "MemoryRows"]


@dataclass(slots=True)
class Disk:
    """What survives a crash, and the writes since that may not, in order."""

    kept: dict[bytes, bytes] = field(default_factory=dict)
    unsynced: list[Writes] = field(default_factory=list)
    failing: bool = False
    """Whether it takes no write just now, and opens no rows."""
    unreadable: bool = False
    """Whether nothing can be read of it just now, by processes."""
    damaged: bool = False
    """Whether nothing can be read of it ever again, unless it is emptied."""

    def crash(self, survivors: int) -> None:
        """Keep only the first ``survivors`` of the writes that are not synced."""
        for writes in self.unsynced[:survivors]:
            _take(self.kept, writes)
        self.unsynced.clear()

    def copy_after_crash(self, survivors: int) -> Disk:
        """Return what is found after a crash that the first ``survivors`` of the writes survive."""
        found = Disk(dict(self.kept), list(self.unsynced))
        found.crash(survivors)
        found.damaged = self.damaged
        return found

    def sync(self) -> None:
        """Put everything where a crash can't reach it."""
        self.crash(len(self.unsynced))

    def copy(self) -> Disk:
        """Return what a copy of the directory holds."""
        return Disk(dict(self.kept))

    def empty(self) -> None:
        """Forget everything."""
        self.kept, self.unsynced, self.damaged = {}, [], False


class MemoryRows(RowStore):
    """The rows of one opening of a disk."""

    def __init__(self, disk: Disk) -> None:
        if disk.failing:
            raise StoreFailed("memory: IO error: Read-only file system")
        self.path = Path("memory")
        self.disk = disk
        self.closed = False
        self._rows = dict(disk.kept)
        self._db = self  # RowStore's own methods read through it.
        self.get = self._reading(self._rows.get)
        self.get_many = self._reading(self._many)

    def _reading(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def reading(key: object) -> Any:
            self._require_readable()
            return read(key)

        return reading

    def _require_readable(self) -> None:
        if self.disk.damaged and in_process():
            self.damaged = "not every entry can be read"
            raise StoreDamaged(f"memory: {self.damaged}")
        if self.disk.unreadable and in_process():
            raise StoreFailed("memory: IO error: Too many open files")

    def _many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._rows.get(key) for key in keys]

    def items(self, *, from_key: bytes, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs from ``from_key`` on, up or down, as of now."""
        self._require_readable()
        if self.closed:
            raise RuntimeError("the row store is closed")
        if backwards:
            keys = sorted((key for key in self._rows if key <= from_key), reverse=True)
        else:
            keys = sorted(key for key in self._rows if key >= from_key)
        rows = self._rows
        return iter([(key, rows[key]) for key in keys])

    def _broken_off(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(())  # Memory is read whole.

    def write(self, writes: Writes, marks: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Write at once; whether it survives is decided in a crash."""
        if self.closed or self.disk.failing:
            raise StoreFailed("closed" if self.closed else "memory: IO error")
        everything: Writes = [*writes, *marks]
        _take(self._rows, everything)
        self.disk.unsynced.append(everything)

    def snapshot(self) -> Callable[[bytes], bytes | None]:
        """Return a ``get`` that keeps reading the present state."""
        return self._reading(dict(self._rows).get)

    def flush(self) -> None:
        """Put everything on the disk."""
        if self.disk.failing:
            raise StoreFailed("memory: IO error")
        self.disk.sync()

    def close(self, *, flush: bool = True) -> None:
        """End this opening; what can't be put on the disk is lost."""
        try:
            if flush:
                self.flush()
        finally:
            self.disk.unsynced.clear()
            self.closed = True
            self.get = self.get_many = _raise_closed


def _raise_closed(_key: object) -> NoReturn:
    raise Unavailable("The partition is not available.")


def _take(rows: dict[bytes, bytes], writes: Writes) -> None:
    for key, value in writes:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
