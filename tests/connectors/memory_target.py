"""A target in memory that keeps the promises of ``SourceTarget``, and fails on request.

Rows of a table are in shards by key. A shard stores the position of the last row that it
took, and skips what is not above it. So a source may repeat itself, but a new row at an
old position is lost, which tests see.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence

from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["Crash", "MemoryTarget"]

SHARDS = 3

Columns = dict[str, Scalar]


class Crash(Exception):
    """The process of the source ends here."""


class MemoryTarget:
    """Tables, their shards and the checkpoint. ``fate`` is called before each step and
    may raise.

    Steps are rows, by their shard, and "keep".
    """

    def __init__(self) -> None:
        self.shapes: dict[str, TableShape] = {}
        self.rows: dict[str, dict[Key, Columns]] = {}
        self.made: list[SourceRow] = []
        """In its order: what was skipped is not there."""
        self.skipped = 0
        self.kept = b""
        self.open = asyncio.Event()
        """Writes wait while it is not set."""
        self.open.set()
        self.fate: Callable[[SourceRow | str], None] = lambda step: None
        self._held: dict[tuple[str, int], bytes] = {}

    async def ensure_table(self, table: TableShape) -> None:
        if self.shapes.setdefault(table.name, table).key != table.key:
            raise Rejected("OTSParameterInvalid", f"{table.name} has another key.")
        self.rows.setdefault(table.name, {})

    def remove(self, table: str) -> None:
        """Remove a table, like an operator who wants it to be created again."""
        del self.shapes[table], self.rows[table]
        self._held = {held: at for held, at in self._held.items() if held[0] != table}

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        return rows

    async def write(self, rows: Sequence[SourceRow]) -> None:
        positions = [row.position for row in rows]
        assert positions == sorted(set(positions)), "positions must rise"
        await self.open.wait()
        # One shard after the other: a crash leaves some far ahead of others.
        for shard in range(SHARDS):
            for row in rows:
                if _shard_of(row.key) == shard:
                    self.fate(row)
                    self._make(row, shard)

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        behind = [key for key in self.rows[table] if after is None or _order(key) > _order(after)]
        return sorted(behind, key=_order)[:limit]

    async def checkpoint(self) -> bytes:
        return self.kept

    async def keep(self, checkpoint: bytes) -> None:
        self.fate("keep")
        self.kept = checkpoint

    def _make(self, row: SourceRow, shard: int) -> None:
        held = self._held.get((row.table, shard), b"")
        if row.position <= held:
            self.skipped += 1
            return
        self._held[row.table, shard] = row.position
        self.made.append(row)
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
