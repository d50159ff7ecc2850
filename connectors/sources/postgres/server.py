"""Questions to a PostgreSQL server: where is its log, what is in it.

Everything blocks, and a ``PostgresServer`` is for one thread at a time; only ``interrupt`` may come
from another. Its session writes values as ``rowtide.connectors.sources.postgres.values`` reads
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg2
import psycopg2.errors
from psycopg2.extras import LogicalReplicationConnection

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.position import parsed_lsn
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings
from rowtide.connectors.sources.postgres.visibility import Visible
from rowtide.core.values.errors import Unavailable

__all__ = [
    "CHANGED",
    "FORBIDDEN",
    "IN_USE",
    "REFUSED",
    "UNPUBLISHABLE",
    "UNREADABLE",
    "Lines",
    "LogUnreadable",
    "PostgresServer",
    "ReplicationSlot",
    "connected",
    "decoding",
    "quoted",
    "quoted_name",
    "translated",
]

CONNECT_S = 10
CHANGED = (
    psycopg2.errors.UndefinedColumn,
    psycopg2.errors.UndefinedTable,
    psycopg2.errors.InvalidSchemaName,
)
"""What a statement about a table fails with that is another by now, or is gone."""

REFUSED = (psycopg2.ProgrammingError, psycopg2.InternalError, psycopg2.NotSupportedError)
"""What a statement fails with that will fail again, because of what it is about."""

UNPUBLISHABLE = (*REFUSED, psycopg2.DataError, psycopg2.errors.ObjectNotInPrerequisiteState)
"""What ALTER PUBLICATION fails with where a publication and a table do not fit together."""

UNREADABLE = psycopg2.DataError
"""What a statement fails with that gives a text for a value that its type can't have."""

FORBIDDEN = psycopg2.errors.InsufficientPrivilege
"""What a statement fails with that somebody else may run."""

IN_USE = psycopg2.errors.ObjectInUse
"""What dropping a slot fails with that somebody reads."""

PLUGIN = "pgoutput"
_MARK = "rowtide"

_SESSION = (
    *("search_path=pg_catalog", "DateStyle=ISO", "IntervalStyle=iso_8601", "TimeZone=UTC"),
    *("bytea_output=hex", "extra_float_digits=1", "xmloption=content"),
    # Marks are for readers of the log; no standby needs to have them.
    *("synchronous_commit=local", "default_transaction_read_only=off"),
    *("statement_timeout=0", "lock_timeout=0", "idle_in_transaction_session_timeout=0"),
    # Where a policy would hide rows, the server then refuses the query.
    "row_security=off",
)


class ReplicationSlot(NamedTuple):
    """A slot as the server has it. ``confirmed``: where its next reader begins at the earliest."""

    confirmed: int
    lost: bool


class LogUnreadable(Unavailable):
    """The server can't decode what a slot has: the publication was not there when it was written.

    Up to PostgreSQL 17 it fails then, each time.
    """


@contextmanager
def decoding(settings: PostgresSourceSettings) -> Iterator[None]:
    """Raise LogUnreadable where reading the stream fails for want of the publication."""
    try:
        yield
    except psycopg2.DatabaseError as error:
        # The library gives no code for what ends a stream.
        if f'publication "{settings.publication}" does not exist' in str(error):
            raise LogUnreadable(f"The log of the slot can't be read: {_text(error)}") from error
        raise


@contextmanager
def translated(settings: PostgresSourceSettings) -> Iterator[None]:
    """Raise what a failure of the server means for a source."""
    where = f"PostgreSQL at {settings.host}:{settings.port}"
    try:
        yield
    except FORBIDDEN as error:
        raise SettingsRefused(f"{where} refuses {settings.user}: {_text(error)}") from error
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        raise Unavailable(f"{where}: {_text(error)}") from error
    except psycopg2.DatabaseError as error:
        # The stream's connection ends with a bare DatabaseError where the server is killed.
        if error.pgcode is None:
            raise Unavailable(f"{where}: {_text(error)}") from error
        raise


def connected(settings: PostgresSourceSettings, *, replication: bool = False) -> Any:
    """Return a connection; each statement is a transaction of its own."""
    connection = psycopg2.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password or None,
        dbname=settings.database,
        sslmode=settings.tls,
        connect_timeout=CONNECT_S,
        client_encoding="UTF8",
        application_name=settings.slot,
        keepalives_idle=10,
        options=" ".join(f"-c {setting}" for setting in _SESSION),
        **({"connection_factory": LogicalReplicationConnection} if replication else {}),
    )
    if not replication:
        connection.autocommit = True
    return connection


class PostgresServer:
    """A session on the server."""

    def __init__(self, settings: PostgresSourceSettings) -> None:
        self.settings = settings
        self._connection = connected(settings)

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def interrupt(self) -> None:
        """Let the statement fail that another thread waits for."""
        with suppress(psycopg2.Error):
            self._connection.cancel()

    @property
    def version(self) -> int:
        """Return the server's version, as 180006."""
        number: int = self._connection.server_version
        return number

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let the questions within see the catalog as of one moment."""
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg2.InterfaceError):
                self.run("ROLLBACK")

    def rows(self, query: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a query gives."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, tuple(arguments) or None)
            return list(cursor.fetchall())

    def run(self, statement: str) -> None:
        """Run a statement that gives nothing."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def copied(self, query: str, *, bytes_max: int | None = None) -> Lines:
        """Return the lines of COPY's text form that a query gives; the first ones up to a size."""
        lines = Lines(bytes_max)
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY ({query}) TO STDOUT", lines)
        return lines

    def system(self) -> str:
        """Return what names the server and its history: its own number and its timeline."""
        connection = connected(self.settings, replication=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute("IDENTIFY_SYSTEM")
                number, timeline, *_ = cursor.fetchone()
                return f"{number}/{timeline}"
        finally:
            connection.close()

    def end(self) -> int:
        """Return the LSN up to which the log is written."""
        [(lsn,)] = self.rows("SELECT pg_current_wal_insert_lsn()")
        return parsed_lsn(lsn)

    def flushed(self) -> tuple[int, int]:
        """Return the server's time in ms, and the LSN up to which the log is durable by then."""
        [(time_ms, lsn)] = self.rows(_FLUSHED)
        return time_ms, parsed_lsn(lsn)

    def visible(self) -> Visible:
        """Return what a transaction sees that begins now, or what the present one sees."""
        [(text,)] = self.rows("SELECT pg_current_snapshot()")
        return Visible.parsed(text)

    def mark(self) -> int:
        """Write a transaction that every reader of a slot gets; return an LSN that it is above."""
        [(lsn,)] = self.rows("SELECT pg_logical_emit_message(true, %s, '')", (_MARK,))
        return parsed_lsn(lsn)

    def slot(self, name: str) -> ReplicationSlot | None:
        """Return a slot; None where there is none. Raises SettingsRefused for another's."""
        found = self.rows(_SLOT, (name,))
        if not found:
            return None
        [(plugin, own, confirmed, restart, state)] = found
        if plugin != PLUGIN or not own:
            raise SettingsRefused(f"The slot {name} is not of {PLUGIN} and of this database.")
        lost = state == "lost" or restart is None or confirmed is None
        return ReplicationSlot(0 if lost else parsed_lsn(confirmed), lost)

    def make_slot(self, name: str) -> None:
        """Make a slot. It waits for the transactions that run now."""
        self.rows("SELECT pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN))

    def drop_slot(self, name: str) -> None:
        """Drop a slot."""
        self.rows("SELECT pg_drop_replication_slot(%s)", (name,))


class Lines(list[bytes]):
    """A file as COPY writes to it, line by line.

    The one that goes beyond ``bytes_max`` is the last that is kept; ``cut`` if there were more.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        super().__init__()
        self.size = 0
        self.cut = False
        self._bytes_max = bytes_max

    def write(self, line: bytes) -> None:
        """Take a line."""
        if self._bytes_max is not None and self.size > self._bytes_max:
            self.cut = True
            return
        self.size += len(line)
        self.append(line)


def quoted(text: str) -> str:
    """Return a text for a statement, whatever the session's settings are."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def quoted_name(*parts: str) -> str:
    """Return a name for a statement."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _text(error: psycopg2.Error) -> str:
    return " ".join(str(error).split())


_FLUSHED = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, pg_current_wal_flush_lsn()"
_SLOT = """
SELECT plugin, slot_type = 'logical' AND database = current_database(),
       confirmed_flush_lsn, restart_lsn, wal_status
  FROM pg_replication_slots WHERE slot_name = %s
"""
