"""A target in memory that keeps the promises of ``SourceTarget``, and can fail in its ways.

Rows of a table are in shards by their key. A shard holds the position of the last row it took and
skips what is not above it; so a source that repeats itself is harmless, and one that gives an old
position to something new loses it, which tests see.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.core.errors import OutcomeUnknown, Rejected
from rowtide.core.variant import Scalar

__all__ = ["Crash", "MemoryTarget"]

SHARDS = 3

Columns = dict[str, Scalar]


class Crash(Exception):
    """The process ends here."""


class MemoryTarget:
    """Tables, their shards and the checkpoint. ``fate`` is asked before each row is made durable.

    It may raise ``Crash`` or ``OutcomeUnknown``: rows before it stay, in their shards.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, TableShape] = {}
        self.rows: dict[str, dict[Key, Columns]] = {}
        self.log: list[SourceRow] = []
        """What was made, in its order: what was skipped is not there."""
        self.skipped = 0
        self.kept = b""
        self.fate: Callable[[SourceRow], None] = lambda row: None
        self.written: Callable[[Sequence[SourceRow]], None] = lambda rows: None
        self._held: dict[tuple[str, int], bytes] = {}

    async def ensure_table(self, table: TableShape) -> None:
        if self.shapes.setdefault(table.name, table).key != table.key:
            raise Rejected("OTSParameterInvalid", f"{table.name} has another key.")
        self.rows.setdefault(table.name, {})

    async def write(self, rows: Sequence[SourceRow]) -> None:
        # One shard after the other, so that a crash leaves some far ahead of others.
        positions = [row.position for row in rows]
        assert positions == sorted(set(positions)), "positions must rise"
        for shard in range(SHARDS):
            for row in rows:
                if _shard_of(row.key) == shard:
                    self.fate(row)
                    self._make(row, shard)
        self.written(rows)

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        behind = [key for key in self.rows[table] if after is None or _order(key) > _order(after)]
        return sorted(behind, key=_order)[:limit]

    async def checkpoint(self) -> bytes:
        return self.kept

    async def keep(self, checkpoint: bytes) -> None:
        self.kept = checkpoint

    def _make(self, row: SourceRow, shard: int) -> None:
        held = self._held.get((row.table, shard), b"")
        if row.position <= held:
            self.skipped += 1
            return
        self._held[row.table, shard] = row.position
        self.log.append(row)
        table = self.rows[row.table]
        if row.columns is None:
            table.pop(row.key, None)
            return
        former = {} if row.whole else table.get(row.key, {})
        table[row.key] = {
            name: value for name, value in {**former, **row.columns}.items() if value is not None
        }


def _shard_of(key: Key) -> int:
    return zlib.crc32(repr(key).encode()) % SHARDS


def _order(key: Key) -> list[tuple[str, Scalar]]:
    return [(type(value).__name__, value) for _, value in key]


def unknown_once(after_rows: int) -> Callable[[SourceRow], None]:
    """Return a fate that fails once, when so many rows were made."""
    left = [after_rows]

    def fate(row: SourceRow) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OutcomeUnknown("The log did not answer.")

    return fate
