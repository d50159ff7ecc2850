"""The smallest honest source: a file of JSON lines that grows, each a row of one table."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import SourceRow, TableShape
from rowtide.connectors.sources.source import Source, SourceTarget
from rowtide.core.values.schema import STRING, KeyColumn

__all__ = ["KIND", "make_source"]

KIND = "tests.connectors.lines_source"
LOOK_S = 0.05


def make_source(fields: Fields, surroundings: ConnectorContext) -> Source:
    """Return a source of the file that ``path`` names, into the table that ``table`` does."""
    return LinesSource(Path(fields.text("path")), fields.text("table"))


class LinesSource:
    """The checkpoint is the number of lines that are written; a line's position is its number."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._table = table
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Let ``run`` end."""
        self._stopped.set()

    async def run(self, target: SourceTarget) -> None:
        """Follow the file."""
        await target.ensure_table(TableShape(self._table, (KeyColumn("id", STRING),)))
        done = int(await target.checkpoint() or b"0")
        while not self._stopped.is_set():
            lines = self._path.read_text().splitlines()[done : done + 10]
            rows = [self._row(done + at, line) for at, line in enumerate(lines, 1)]
            if rows:
                await target.write(rows)
                done += len(rows)
                await target.keep(str(done).encode())
                continue
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._stopped.wait()
            except TimeoutError:
                pass

    def _row(self, number: int, line: str) -> SourceRow:
        columns = json.loads(line)
        key = (("id", columns.pop("id")),)
        position = number.to_bytes(8, "big")
        return SourceRow(self._table, key, columns, whole=True, time_ms=0, position=position)
