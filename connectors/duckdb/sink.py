"""A table's rows in a DuckDB file, for people who ask questions in SQL.

DuckDB's calls block: they are made in one thread. While the connector runs the file is held, so
that nobody else can open it; every ``copy_every_s`` seconds in which something changed, the living
rows are written to a second file, which anybody may open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rowtide.connectors.columnar.blocking_sink import BlockingSink
from rowtide.connectors.columnar.gathering import Pace
from rowtide.connectors.duckdb.database import Database
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import Surroundings
from rowtide.connectors.rows import Refused, SinkBatch, TableShape

__all__ = ["DuckdbSettings", "DuckdbSink", "make_sink"]


COPY_SHARE = 10
"""A copy that takes long is made less often: it may use one part in so many of the time."""


@dataclass(frozen=True, slots=True)
class DuckdbSettings:
    """Where the rows go. An empty ``view`` is called like the table."""

    file: Path
    copy_file: Path
    view: str = ""
    copy_every_s: int = 60
    """0 makes no copies."""
    columns_max: int = 2000
    """Rows that bring more are refused: a table of very many columns is slow in every query."""


def make_sink(fields: Fields, surroundings: Surroundings) -> DuckdbSink:
    """Return the sink that settings describe."""
    file = Path(fields.text("file", str(Path(surroundings.folder) / "rows.duckdb")))
    copy = file.with_name(f"{file.stem}-copy{file.suffix}")
    return DuckdbSink(
        DuckdbSettings(
            file=file,
            copy_file=Path(fields.text("copy_file", str(copy))),
            view=fields.text("view", ""),
            copy_every_s=fields.integer("copy_every_s", 60, least=0, most=86400),
            columns_max=fields.integer("columns_max", 2000, least=1, most=20000),
        )
    )


class DuckdbSink(BlockingSink):
    """One table in one file. The file may have tables of other sinks of this process too."""

    def __init__(self, settings: DuckdbSettings) -> None:
        super().__init__(self._new_rows, Pace())
        self._settings = settings
        self._database: Database | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._copy_took_s = 0.0
        self._copy_failure: Exception | None = None

    async def close(self) -> None:
        """Make the copy that is due, and let go of the file."""
        timer, self._timer = self._timer, None
        try:
            if timer is not None:
                timer.cancel()
                await self._in_thread(self._copy)
        finally:
            await super().close()

    async def _commit(self, batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        failed, self._copy_failure = self._copy_failure, None
        if failed is not None:
            raise failed
        refused = await super()._commit(batches)
        every_s = self._settings.copy_every_s
        if every_s and self._timer is None:
            pause_s = max(every_s, COPY_SHARE * self._copy_took_s)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(pause_s, self._begin_copy)
        return refused

    def _new_rows(self, table: TableShape) -> Database:
        settings = self._settings
        self._database = Database(
            settings.file, table, settings.view or table.name, columns_max=settings.columns_max
        )
        return self._database

    def _begin_copy(self) -> None:
        self._timer = None
        self._submit(self._copy_or_tell)

    def _copy_or_tell(self) -> None:
        try:
            self._copy()
        except Exception as error:  # noqa: BLE001  Raised by the next batch.
            self._copy_failure = error

    def _copy(self) -> None:
        assert self._database is not None, "a commit comes first"
        began_s = time.monotonic()
        self._database.copy(self._settings.copy_file)
        self._copy_took_s = time.monotonic() - began_s
