"""A table's rows in a DuckDB file, for queries in SQL.

DuckDB's calls block, so they are made in one thread. While changes arrive, the file is
kept open and no other process can open it. It is closed when none has arrived for a
moment. Every ``copy_every_s`` seconds with a change, the living rows are written to a
second file, for people.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.columnar.blocking_sink import BlockingSink
from rowtide.connectors.sinks.columnar.gathering import Pace
from rowtide.connectors.sinks.duckdb.database import Database
from rowtide.connectors.sinks.duckdb.view_types import view_types
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.errors import Unavailable

__all__ = ["DuckdbSettings", "DuckdbSink", "make_sink"]


_T = TypeVar("_T")
COPY_SHARE = 10
"""Copies use at most this fraction of the time (1/N): a slow copy is made less often."""

RELEASE_S = 1.0
"""Pause after the last change before the file is closed. Opening it takes tens of milliseconds."""
READ_S_MAX = 20.0
"""How long a reader tries to open the file between two changes of the writer."""
READ_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class DuckdbSettings:
    """Where the rows go. An empty ``view`` takes the table's name."""

    file: Path
    copy_file: Path
    view: str = ""
    copy_every_s: int = 60
    """0 makes no copies."""
    columns_max: int = 2000
    """Rows that need more are refused: every query of a very wide table is slow."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Types in which the view shows attributes. For others see ``presentation``."""


def make_sink(fields: Fields, surroundings: ConnectorContext) -> DuckdbSink:
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
            types=view_types(fields.inner("columns")),
        )
    )


class DuckdbSink(BlockingSink):
    """One table in one file. Other sinks of this process may use the same file."""

    alone = True

    def __init__(self, settings: DuckdbSettings) -> None:
        super().__init__(self._new_rows, Pace())
        self._settings = settings
        self._read_only = False
        self._database: Database | None = None
        self._copy_timer: asyncio.TimerHandle | None = None
        self._release_timer: asyncio.TimerHandle | None = None
        self._copy_took_s = 0.0
        self._copy_failure: Exception | None = None

    async def open_to_read(self, table: TableShape) -> None:
        """Read what another process writes. The file is opened for each read and then closed."""
        self._read_only = True
        await self.open(table)

    async def open(self, table: TableShape) -> None:
        """Open the file and create what is missing. Raises Unavailable if another process
        has it.
        """
        await self._patient(lambda: super(DuckdbSink, self).open(table))
        self._release_soon()

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return living rows in key order."""
        found = await self._patient(
            lambda: super(DuckdbSink, self).read_rows(begin, end, limit=limit)
        )
        self._release_soon()
        return found

    async def close(self) -> None:
        """Make a copy that is due, and close the file."""
        copy, self._copy_timer = self._copy_timer, None
        release, self._release_timer = self._release_timer, None
        if release is not None:
            release.cancel()
        try:
            if copy is not None:
                copy.cancel()
                await self._in_thread(self._copy)
        finally:
            await super().close()

    async def _commit(self, batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        failed, self._copy_failure = self._copy_failure, None
        if failed is not None:
            raise failed
        refused = await super()._commit(batches)
        every_s = self._settings.copy_every_s
        if every_s and self._copy_timer is None:
            pause_s = max(every_s, COPY_SHARE * self._copy_took_s)
            loop = asyncio.get_running_loop()
            self._copy_timer = loop.call_later(pause_s, self._begin_copy)
        self._release_soon()
        return refused

    async def _patient(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Wait for the file if it is only read. A writer is retried by the runtime."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + (READ_S_MAX if self._read_only else 0)
        while True:
            try:
                return await call()
            except Unavailable:
                if loop.time() >= deadline_s:
                    raise
            await asyncio.sleep(READ_POLL_S)

    def _release_soon(self) -> None:
        if self._release_timer is not None:
            self._release_timer.cancel()
        pause_s = 0.0 if self._read_only else RELEASE_S
        loop = asyncio.get_running_loop()
        self._release_timer = loop.call_later(pause_s, self._release)

    def _release(self) -> None:
        self._release_timer = None
        if self._database is not None:
            self._submit(self._database.close)

    def _new_rows(self, table: TableShape) -> Database:
        settings = self._settings
        self._database = Database(
            settings.file,
            table,
            settings.view or table.name,
            columns_max=settings.columns_max,
            types=settings.types,
            read_only=self._read_only,
        )
        return self._database

    def _begin_copy(self) -> None:
        self._copy_timer = None
        self._submit(self._copy_or_tell)

    def _copy_or_tell(self) -> None:
        assert self._database is not None, "a commit comes first"
        try:
            self._copy()
            # The file may have been closed before. No later change would close it again.
            self._database.close()
        except Exception as error:  # noqa: BLE001  Raised by the next batch.
            self._copy_failure = error

    def _copy(self) -> None:
        assert self._database is not None, "a commit comes first"
        began_s = time.monotonic()
        self._database.copy(self._settings.copy_file)
        self._copy_took_s = time.monotonic() - began_s
