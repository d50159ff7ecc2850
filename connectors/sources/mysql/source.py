"""MySQL or MariaDB as a source: it copies the tables, then follows their changes.

DESIGN.md beside this file has the reasons for the design.
docs/guides/connectors/mysql-source.md has the guarantees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import NamedTuple

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.sources.copying.backlog import Backlog
from rowtide.connectors.sources.copying.checkpoint_keeper import CheckpointKeeper
from rowtide.connectors.sources.copying.engine import CopyEngine
from rowtide.connectors.sources.copying.seam import Seam
from rowtide.connectors.sources.life import ServerSource
from rowtide.connectors.sources.mysql.binlog import Binlog, BinlogPiece, Purged
from rowtide.connectors.sources.mysql.follower import BinlogFollower
from rowtide.connectors.sources.mysql.log import Beginning, Standing
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint, Place, place_of
from rowtide.connectors.sources.mysql.reader import (
    SnapshotReader,
    SnapshotRows,
    SnapshotSession,
)
from rowtide.connectors.sources.mysql.server import MySqlServer, map_errors
from rowtide.connectors.sources.mysql.settings import MySqlSourceSettings, parse_settings
from rowtide.connectors.sources.mysql.side import MySqlSide
from rowtide.connectors.sources.mysql.snapshot import Snapshots
from rowtide.connectors.sources.mysql.states import TableStates
from rowtide.connectors.sources.mysql.tables import MySqlTables, list_tables
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.progress import TableProgress
from rowtide.connectors.sources.source import SourceTarget, TableState
from rowtide.connectors.sources.tables import warn_of_patterns
from rowtide.core.values.errors import first_failure

__all__ = ["MySqlSource", "make_source"]

logger = logging.getLogger(__name__)

AHEAD_BYTES = 16 * 1024 * 1024
"""Bytes of the binlog that may wait for rowtide."""
PIECE_BYTES = 200
"""Weight of a piece beside its rows, in bytes."""


def make_source(fields: Fields, surroundings: ConnectorContext) -> MySqlSource:
    """Return the source that settings describe, without connecting. Raises SettingsRefused."""
    return MySqlSource(
        parse_settings(fields, surroundings.connector), folder=surroundings.folder or None
    )


class _Sessions(NamedTuple):
    """Open sessions at the server: for chunks, for schemas of the binlog, and for the lag."""

    chunks: MySqlServer
    schemas: MySqlServer
    gauge: MySqlServer
    tables: MySqlTables

    def close(self) -> None:
        self.chunks.close()
        self.schemas.close()
        self.gauge.close()


class MySqlSource(ServerSource[MySqlServer]):
    """See ``Source``. ``folder`` holds transactions that are too large for memory."""

    def __init__(self, settings: MySqlSourceSettings, *, folder: str | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._folder = folder
        self._states = TableStates()
        self._standing: Callable[[], Sequence[TableState]] = tuple

    def table_states(self) -> Sequence[TableState]:
        """See ``TableReporting``."""
        return self._standing()

    def map_errors(self) -> AbstractContextManager[None]:
        """See ``ServerSource``."""
        return map_errors(self._settings)

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        """See ``Repeatable``. Tables are copied again, and rows that are gone are deleted."""
        return MySqlCheckpoint.begin_again(checkpoint, tables, target=self._settings.target)

    def target_of(self, table: str) -> str | None:
        """See ``NamesTables``."""
        return self._settings.target(table) if self._settings.wants_full_name(table) else None

    async def side(self, table: str) -> MySqlSide:
        """See ``ComparableSource``."""
        with self.map_errors():
            return await asyncio.to_thread(MySqlSide, self._settings, table)

    async def run(self, target: SourceTarget) -> None:
        """See ``Source.run``. Raises ``SettingsRefused`` if the server can't be followed."""
        checkpoint = MySqlCheckpoint.parse(await target.checkpoint())
        missed = ""
        while not self.stopping:
            with self.map_errors():
                sessions = await asyncio.to_thread(self._open_sessions, checkpoint, missed)
            try:
                await self._live(target, checkpoint, sessions)
            except Purged as error:
                missed = str(error)
                logger.warning("changes were missed, all tables are copied again: %s", missed)
            finally:
                sessions.close()

    def _open_sessions(self, checkpoint: MySqlCheckpoint, missed: str) -> _Sessions:
        """Open sessions and prepare the checkpoint. Blocks."""
        with ExitStack() as opened:
            servers = []
            for _ in range(3):
                servers.append(MySqlServer(self._settings))
                opened.callback(servers[-1].close)
            tables = self._prepare_checkpoint(servers[0], checkpoint, missed)
            opened.pop_all()
            chunks, schemas, gauge = servers
            return _Sessions(chunks, schemas, gauge, tables)

    def _prepare_checkpoint(
        self, server: MySqlServer, checkpoint: MySqlCheckpoint, missed: str
    ) -> MySqlTables:
        """Adapt the checkpoint to the server. Return the followed tables."""
        server.check()
        if (gtids := server.log.gtids(checkpoint.gtids.text())) is None:
            missed = missed or "the server is of another kind"
        else:
            checkpoint.gtids = gtids
        # Read the tables after it: a table that is created in between is in the binlog.
        now = server.log.beginning()
        tables = list_tables(server)
        warn_of_patterns(self._settings.tables, [*tables.fit.values(), *tables.unfit.values()])
        if checkpoint.epoch and not missed:
            missed = self._continue_checkpoint(server, checkpoint, now)
        checkpoint.leave_out(
            name for name in checkpoint.tables if not self._settings.wants(*name.split(".", 1))
        )
        # Their changes are lost while they can't be followed.
        checkpoint.leave_out(tables.unfit)
        for name, table in tables.fit.items():
            known = checkpoint.tables.setdefault(name, TableProgress())
            known.columns = known.columns or [column.identity for column in table.columns]
        if checkpoint.epoch == 0 or missed:
            checkpoint.begin_epoch(now.log, now.place, now.gtids, now.server)
            checkpoint.leave_out(name for name in checkpoint.tables if name not in tables.fit)
            checkpoint.restart(tables.fit, sweep=bool(missed))
        checkpoint.run += 1
        return tables

    def _continue_checkpoint(
        self, server: MySqlServer, checkpoint: MySqlCheckpoint, now: Beginning
    ) -> str:
        """Continue the checkpoint in the server's binlog. Return why that is not
        possible, if so.
        """
        if not checkpoint.log:
            missed = "the source of this name was of another kind"
            logger.warning("all tables are copied again: %s", missed)
            return missed
        standing = server.log.standing(checkpoint)
        if standing is Standing.LOST:
            missed = "the server does not have what was read of it: it was reset, or lost"
            logger.warning("changes were missed, all tables are copied again: %s", missed)
            return missed
        if standing is Standing.ELSEWHERE:
            # This is another server's binlog, or one that was started again. The source
            # continues after the GTIDs, but the places can't be compared with earlier
            # ones.
            logger.warning("this is another binlog, so the source continues by GTID")
            # Up to this server's end, looks at the other server may not have seen what is
            # read.
            looks = dict.fromkeys(checkpoint.looks, place_of(*server.log.end())[1])
            checkpoint.begin_epoch(now.log, Place(0, 0), checkpoint.gtids, now.server)
            checkpoint.looks = looks
        return ""

    async def _live(
        self, target: SourceTarget, checkpoint: MySqlCheckpoint, sessions: _Sessions
    ) -> None:
        """Copy and follow until stopped, or until something fails."""
        await self._ensure_tables(target, checkpoint, sessions.tables)
        tables = sessions.tables.fit
        for name, table in tables.items():
            progress = checkpoint.tables[name]
            if not await target.keys(table.target, None, limit=1):
                if progress.begun:
                    progress.restart(sweep=False)  # Rowtide's table was dropped and created again.
            elif not progress.copied:
                progress.sweep = True  # Rowtide may have rows that the source lacks.
        await target.keep(checkpoint.encode())
        copied = {
            name
            for name, progress in checkpoint.tables.items()
            if progress.copied and not progress.sweep
        }
        pipe: Pipe[BinlogPiece] = Pipe(_weight, weight_max=AHEAD_BYTES)
        snapshots = Snapshots(sessions.chunks, epoch=checkpoint.epoch, run=checkpoint.run)
        session, keeper = SnapshotSession(snapshots), CheckpointKeeper(target, checkpoint)
        followed = dict(tables)
        log = BinlogFollower(
            target,
            checkpoint,
            followed,
            session=session,
            keeper=keeper,
            copied=copied,
            states=self._states,
        )
        chunks = SnapshotReader(
            session, target, made=log.collect_gtids, copied=copied, states=self._states
        )
        seam = Seam(log, chunks, SnapshotRows(snapshots))
        engine = CopyEngine(target, followed, seam, backlog=Backlog(pipe), keeper=keeper)
        self._standing = partial(self._states.states, checkpoint.tables, followed)
        self.begin_life(engine, sessions.gauge)
        with self.map_errors():
            reader = _Reader(sessions, checkpoint, copied, self._folder)
            try:
                await asyncio.to_thread(reader.open)
                pipe.start(partial(reader.run, pipe.put), "mysql binlog")
                await engine.run()
            except BaseExceptionGroup as group:
                raise first_failure(group) from group
            finally:
                self.end_life()
                self._standing = tuple
                pipe.close()
                reader.close()
                sessions.close()
                with suppress(asyncio.CancelledError):
                    await asyncio.to_thread(pipe.join)

    async def _ensure_tables(
        self, target: SourceTarget, checkpoint: MySqlCheckpoint, tables: MySqlTables
    ) -> None:
        """Create the tables in rowtide. A table that rowtide refuses fails before the
        copy.

        A table whose rows could not be read stays failed until its retry is due.
        """
        for name, table in list(tables.fit.items()):
            unfit = self._states.waiting(name) or await self._states.refusal(table, target)
            if unfit is not None:
                tables.unfit[name] = unfit
                del tables.fit[name]
        checkpoint.leave_out(tables.unfit)
        self._states.fail_all(tables.unfit.values())


class _Reader:
    """The binlog of a life. Threads open and read it, and the event loop closes it."""

    def __init__(
        self, sessions: _Sessions, checkpoint: MySqlCheckpoint, copied: set[str], folder: str | None
    ) -> None:
        self._make: Callable[[], Binlog] = lambda: Binlog(
            sessions.schemas, checkpoint, dict(sessions.tables.fit), copied, folder=folder
        )
        self._binlog: Binlog | None = None

    def open(self) -> None:
        self._binlog = self._make()

    def run(self, emit: Callable[[list[BinlogPiece]], None]) -> None:
        assert self._binlog is not None, "opened before"
        self._binlog.run(emit)

    def close(self) -> None:
        if self._binlog is not None:
            self._binlog.close()


def _weight(pieces: list[BinlogPiece]) -> int:
    return sum([piece.size + PIECE_BYTES for piece in pieces])
