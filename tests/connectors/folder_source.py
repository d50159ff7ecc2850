"""A source of several tables: a folder with a file of JSON lines for each, ``NAME.jsonl``.

The table is ``folder.NAME`` here and ``NAME`` in rowtide. Lines before ``---`` are rows of the
copy, all others are changes; a first line ``# COUNT`` says how many rows the copy has. A table
fails at a line that is no JSON, and the others flow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import SourceRow, TableShape
from rowtide.connectors.sources.progress import SourceProgress, TableProgress
from rowtide.connectors.sources.source import SourceTarget, TableState
from rowtide.core.values.schema import STRING, KeyColumn

__all__ = ["KIND", "FolderSource", "make_source"]

KIND = "tests.connectors.folder_source"
LOOK_S = 0.05


def make_source(fields: Fields, surroundings: ConnectorContext) -> FolderSource:
    """Return a source of the folder that ``path`` names."""
    return FolderSource(Path(fields.text("path")))


@dataclass(slots=True)
class Checkpoint(SourceProgress[TableProgress]):
    """Each table's cursor is the number of lines that are written."""

    kind: ClassVar[str] = "folder"

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        tables = {name: TableProgress(**kept) for name, kept in found.pop("tables").items()}
        return cls(**found, tables=tables)

    def parts(self) -> Mapping[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Table:
    """One file. ``state`` is what the source reports of it."""

    path: Path
    lines: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def name(self) -> str:
        return f"folder.{self.path.stem}"

    def row(self, at: int, run: int) -> SourceRow | None:
        """Return the row of a line; None for one that has no row. Raises ``ValueError``."""
        line = self.lines[at]
        if line == "---" or line.startswith("#"):
            return None
        columns = json.loads(line)
        key = (("id", columns.pop("id")),)
        position = run.to_bytes(4, "big") + at.to_bytes(8, "big")
        return SourceRow(self.path.stem, key, columns, whole=True, time_ms=0, position=position)

    def state(self, done: int) -> TableState:
        """Return the state after that many lines."""
        name, target = self.name, self.path.stem
        if self.failure:
            remedy = f"write JSON into {self.path.name}"
            return TableState(name, target, "failed", reason=self.failure, remedy=remedy)
        if "---" in self.lines[:done]:
            return TableState(name, target, "following")
        first = self.lines[0] if self.lines else ""
        estimate = int(first.removeprefix("# ")) if first.startswith("# ") else None
        copied = sum(not line.startswith("#") for line in self.lines[:done])
        return TableState(name, target, "copying", copied, estimate)


class FolderSource:
    """See ``Source``, ``Repeatable`` and ``TableReporting``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopped = asyncio.Event()
        self._states: list[TableState] = []

    def stop(self) -> None:
        self._stopped.set()

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        def target(name: str) -> str:
            return name.removeprefix("folder.")

        return Checkpoint.begin_again(checkpoint, tables, target=target)

    def table_states(self) -> Sequence[TableState]:
        return self._states

    async def run(self, target: SourceTarget) -> None:
        checkpoint = Checkpoint.parse(await target.checkpoint())
        checkpoint.run += 1
        while not self._stopped.is_set():
            self._states = [
                await self._follow(target, checkpoint, Table(file, file.read_text().splitlines()))
                for file in sorted(self._path.glob("*.jsonl"))
            ]
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._stopped.wait()
            except TimeoutError:
                pass

    async def _follow(
        self, target: SourceTarget, checkpoint: Checkpoint, table: Table
    ) -> TableState:
        """Write what a file has more; return the table's state."""
        progress = checkpoint.tables.setdefault(table.name, TableProgress())
        done = int(progress.cursor[0]) if progress.cursor else 0
        await target.ensure_table(TableShape(table.path.stem, (KeyColumn("id", STRING),)))
        try:
            found = [table.row(at, checkpoint.run) for at in range(done, len(table.lines))]
        except ValueError as error:
            table.failure = f"a line is no JSON: {error}"
            return table.state(done)
        if rows := [row for row in found if row is not None]:
            await target.write(target.prepare(rows))
        if found:
            done += len(found)
            progress.cursor = [str(done)]
            await target.keep(checkpoint.encode())
        return table.state(done)
