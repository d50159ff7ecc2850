"""PostgreSQL as a source by logical replication: it copies the tables, then follows their
changes.

DESIGN.md beside this file has the reasons for the design.
docs/guides/connectors/postgres-source.md has the guarantees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import NamedTuple

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.sources.copying.backlog import Backlog
from rowtide.connectors.sources.copying.engine import CopyEngine
from rowtide.connectors.sources.copying.seam import Seam
from rowtide.connectors.sources.life import ServerSource
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.postgres.chunks import Chunks
from rowtide.connectors.sources.postgres.follower import ConfirmingKeeper, Parts, StreamFollower
from rowtide.connectors.sources.postgres.look import Look, look, make_targets, note_tables
from rowtide.connectors.sources.postgres.position import PostgresCheckpoint, lsn_text
from rowtide.connectors.sources.postgres.reader import StreamReader, StreamRows, WrittenTransactions
from rowtide.connectors.sources.postgres.report import TableReport
from rowtide.connectors.sources.postgres.requirements import check
from rowtide.connectors.sources.postgres.server import LogUnreadable, PostgresServer, map_errors
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings, parse_settings
from rowtide.connectors.sources.postgres.side import PostgresSide
from rowtide.connectors.sources.postgres.stream import (
    ReplicationStream,
    Shared,
    StreamPiece,
    weight,
)
from rowtide.connectors.sources.postgres.traces import erase, publication_trace, slot_trace
from rowtide.connectors.sources.postgres.waiting import Waiting
from rowtide.connectors.sources.source import SourceTarget, TableState
from rowtide.connectors.sources.tables import Followed, warn_of_patterns
from rowtide.core.values.errors import Unavailable, first_failure

__all__ = ["PostgresSource", "make_source"]

logger = logging.getLogger(__name__)

UNREADABLE_LOG = -1
"""As the publication's number: the slot's log is older than the publication."""

AHEAD_BYTES = 16 * 1024 * 1024
"""Bytes of the stream that may wait for rowtide."""


def make_source(fields: Fields, surroundings: ConnectorContext) -> PostgresSource:
    """Return the source that settings describe, without connecting. Raises SettingsRefused."""
    return PostgresSource(parse_settings(fields, surroundings.connector))


class _Sessions(NamedTuple):
    """Open sessions, each for one thread: for chunks, the stream, the lag, and all else."""

    chunks: PostgresServer
    stream: PostgresServer
    gauge: PostgresServer
    server: PostgresServer

    def interrupt(self) -> None:
        for session in self:
            session.interrupt()

    def close(self) -> None:
        self.interrupt()
        for session in self:
            session.close()


class PostgresSource(ServerSource[PostgresServer]):
    """See ``Source``."""

    def __init__(self, settings: PostgresSourceSettings) -> None:
        super().__init__()
        self._settings = settings
        self._report: TableReport | None = None

    def map_errors(self) -> AbstractContextManager[None]:
        """See ``ServerSource``."""
        return map_errors(self._settings)

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        """See ``Repeatable``. Tables are copied again, and rows that are gone are deleted."""
        return PostgresCheckpoint.begin_again(checkpoint, tables, target=self._target)

    def target_of(self, table: str) -> str | None:
        """See ``NamesTables``."""
        return self._target(table) if self._settings.wants(table) else None

    def _target(self, full_name: str) -> str:
        return self._settings.target(*full_name.split(".", 1))

    def table_states(self) -> Sequence[TableState]:
        """See ``TableReporting``."""
        return self._report.states() if self._report is not None else ()

    def traces(self) -> Sequence[str]:
        """See ``LeavesTraces``."""
        return slot_trace(self._settings), publication_trace(self._settings)

    async def erase(self) -> Sequence[str]:
        """See ``LeavesTraces``. Drops the slot, and the publication if the source made it."""
        with self.map_errors():
            return await asyncio.to_thread(erase, self._settings)

    async def side(self, table: str) -> PostgresSide:
        """See ``ComparableSource``."""
        with self.map_errors():
            return await asyncio.to_thread(PostgresSide, self._settings, table)

    async def run(self, target: SourceTarget) -> None:
        """See ``Source.run``. Raises ``SettingsRefused`` if the server can't be followed."""
        checkpoint = PostgresCheckpoint.parse(await target.checkpoint())
        with self.map_errors():
            sessions = await asyncio.to_thread(self._open_sessions)
            report = self._report = TableReport(checkpoint)
            try:
                await self._one_life(target, checkpoint, sessions, report)
            except LogUnreadable:
                checkpoint.publication = UNREADABLE_LOG
                await target.keep(checkpoint.encode())
                raise
            finally:
                self._report = None
                await asyncio.shield(asyncio.to_thread(sessions.close))

    async def _one_life(
        self,
        target: SourceTarget,
        checkpoint: PostgresCheckpoint,
        sessions: _Sessions,
        report: TableReport,
    ) -> None:
        try:
            shared = Shared(set(), _owners(self._settings, checkpoint))
            found = await self._prepare(target, checkpoint, sessions, shared, report)
            await self._live(target, checkpoint, sessions, found, shared, report)
        except BaseExceptionGroup as group:
            raise first_failure(group) from group

    def _open_sessions(self) -> _Sessions:
        with ExitStack() as opened:
            sessions = []
            for _ in _Sessions._fields:
                sessions.append(PostgresServer(self._settings))
                opened.callback(sessions[-1].close)
            opened.pop_all()
            return _Sessions(*sessions)

    async def _prepare(
        self,
        target: SourceTarget,
        checkpoint: PostgresCheckpoint,
        sessions: _Sessions,
        shared: Shared,
        report: TableReport,
    ) -> Look:
        """Adapt publication, slot, tables and checkpoint to the server."""
        server = sessions.server
        await asyncio.to_thread(check, server)
        found = await asyncio.to_thread(look, server, shared.owners, checkpoint.partitions)
        known: list[Followed] = [*found.tables.values(), *found.unfit.values()]
        warn_of_patterns(self._settings.tables, known)
        # Before waiting for the slot, to report early which tables the instance has no
        # room for.
        await make_targets(target, found)
        report.note(found.tables, found.unfit)
        system = await asyncio.to_thread(server.system)
        missed = await asyncio.to_thread(_find_gap, server, checkpoint, system)
        unreadable = checkpoint.publication not in (0, found.publication.oid)
        if unreadable and not missed:
            missed = f"the publication {self._settings.publication} did not exist for a while"
        if missed:
            logger.warning("changes may be missing, all tables are copied again: %s", missed)
        if missed or checkpoint.lsn == 0:
            checkpoint.begin_epoch(system, self._settings.slot)
            await target.keep(checkpoint.encode())
            checkpoint.lsn = await Waiting(sessions.gauge, report).during(
                partial(_fresh_slot, server, unreadable=unreadable)
            )
        checkpoint.publication = found.publication.oid
        note_tables(checkpoint, found, ())
        checkpoint.run += 1
        for name, table in found.tables.items():
            progress = checkpoint.tables[name]
            if progress.begun and not await target.keys(table.target, None, limit=1):
                progress.restart(sweep=False)  # Rowtide's table was dropped and created again.
        await target.keep(checkpoint.encode())
        return found

    async def _live(
        self,
        target: SourceTarget,
        checkpoint: PostgresCheckpoint,
        sessions: _Sessions,
        found: Look,
        shared: Shared,
        report: TableReport,
    ) -> None:
        """Copy and follow until stopped, or until something fails."""
        shared.copied |= {name for name, progress in checkpoint.tables.items() if progress.copied}
        begin = await asyncio.to_thread(sessions.server.mark)
        # The stream has sockets, so there is no await between here and the `try` that closes it.
        pipe: Pipe[StreamPiece] = Pipe(weight, weight_max=AHEAD_BYTES)
        stream = ReplicationStream(
            sessions.stream,
            pipe,
            list(found.tables.values()),
            shared,
            epoch=checkpoint.epoch,
            lsn=checkpoint.lsn,
            generated=found.publication.generated,
        )
        keeper = ConfirmingKeeper(target, checkpoint, stream)
        written, rows, backlog = WrittenTransactions(), StreamRows(checkpoint), Backlog(pipe)
        parts = Parts(
            sessions.server, stream, shared, report, backlog, keeper, written=written, rows=rows
        )
        log = StreamFollower(target, checkpoint, found, parts, begin=begin)
        reader = StreamReader(
            Chunks(sessions.chunks),
            sessions.server,
            written=written,
            checkpoint=checkpoint,
            copied=shared.copied,
            waiting=Waiting(sessions.server, report),
        )
        seam = Seam(log, reader, rows)
        engine = CopyEngine(target, found.tables, seam, backlog=backlog, keeper=keeper)
        self.begin_life(engine, sessions.gauge)
        try:
            await asyncio.to_thread(stream.open)
            pipe.start(stream.run, "postgres stream")
            await engine.run()
        finally:
            self.end_life()
            pipe.close()
            stream.close()
            await asyncio.shield(asyncio.to_thread(_end_sessions, sessions, pipe, stream))


def _end_sessions(sessions: _Sessions, pipe: Pipe[StreamPiece], stream: ReplicationStream) -> None:
    sessions.interrupt()
    pipe.join()
    stream.release()


def _find_gap(server: PostgresServer, checkpoint: PostgresCheckpoint, system: str) -> str:
    """Return why the stream can't continue at the checkpoint, an empty text if it can."""
    if checkpoint.epoch and not checkpoint.system:
        return "the source of this name was of another kind"
    if checkpoint.lsn == 0:
        return ""
    name = server.settings.slot
    slot = server.slot(name)
    if checkpoint.system != system:
        return f"the server is {system} and was {checkpoint.system}"
    if checkpoint.slot != name:
        return f"the slot is {name} and was {checkpoint.slot}"
    if slot is None:
        return f"the slot {name} is gone"
    if slot.lost:
        return f"the server has removed log that the slot {name} had not read"
    if slot.confirmed > checkpoint.lsn:
        return (
            f"the slot {name} is at {lsn_text(slot.confirmed)}, where another program moved it, "
            f"and the checkpoint is at {lsn_text(checkpoint.lsn)}"
        )
    if server.end() < checkpoint.lsn:
        return f"the log ends before the checkpoint, {lsn_text(checkpoint.lsn)}"
    return ""


def _owners(settings: PostgresSourceSettings, checkpoint: PostgresCheckpoint) -> dict[str, str]:
    """Return the followed table of each of rowtide's names."""
    return {settings.target(*name.split(".", 1)): name for name in checkpoint.tables}


def _fresh_slot(server: PostgresServer, *, unreadable: bool) -> int:
    """Return where a slot begins from which an epoch can be read. Create it if it is
    missing.

    ``unreadable``: the existing slot's log can't be read with the publication.
    """
    name = server.settings.slot
    slot = server.slot(name)
    if slot is not None and (slot.lost or unreadable):
        server.drop_slot(name)
        slot = None
    if slot is None:
        server.make_slot(name)
        slot = server.slot(name)
    if slot is None:
        raise Unavailable(f"The slot {name} was dropped just after it was created.")
    return slot.confirmed
