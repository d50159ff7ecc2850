"""Queries to a PostgreSQL server: where its log is, and what is in it.

All calls block, and a ``PostgresServer`` is for one thread at a time. Only ``interrupt``
may be called by another. Its session writes values as
``rowtide.connectors.sources.postgres.values`` reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg2
import psycopg2.errors
from psycopg2.extras import LogicalReplicationConnection

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.position import parse_lsn
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
    "connect",
    "decoding",
    "map_errors",
    "quote_name",
    "quote_text",
]

CONNECT_S = 10
CHANGED = (
    psycopg2.errors.UndefinedColumn,
    psycopg2.errors.UndefinedTable,
    psycopg2.errors.InvalidSchemaName,
)
"""Errors of a statement about a table that was changed or dropped."""

REFUSED = (psycopg2.ProgrammingError, psycopg2.InternalError, psycopg2.NotSupportedError)
"""Errors of a statement that would fail again, because of its objects."""

UNPUBLISHABLE = (*REFUSED, psycopg2.DataError, psycopg2.errors.ObjectNotInPrerequisiteState)
"""Errors of ALTER PUBLICATION if a publication can't have a table."""

UNREADABLE = psycopg2.DataError
"""Errors of a statement with a text that is no value of its type."""

FORBIDDEN = psycopg2.errors.InsufficientPrivilege
"""Error of a statement for which the role lacks a privilege."""

IN_USE = psycopg2.errors.ObjectInUse
"""Error of dropping a slot while a process reads it."""

PLUGIN = "pgoutput"
_MARK = "rowtide"

_SESSION = (
    *("search_path=pg_catalog", "DateStyle=ISO", "IntervalStyle=iso_8601", "TimeZone=UTC"),
    *("bytea_output=hex", "extra_float_digits=1", "xmloption=content"),
    # Marks are for readers of the log, so no standby needs to have them.
    *("synchronous_commit=local", "default_transaction_read_only=off"),
    *("statement_timeout=0", "lock_timeout=0", "idle_in_transaction_session_timeout=0"),
    # The server then refuses a query in which a policy would hide rows.
    "row_security=off",
)


class ReplicationSlot(NamedTuple):
    """A slot of the server. Its next reader begins at ``confirmed`` at the earliest."""

    confirmed: int
    lost: bool


class LogUnreadable(Unavailable):
    """The server can't decode a slot's log: it was written before the publication
    existed.

    Up to PostgreSQL 17 each attempt fails.
    """


@contextmanager
def decoding(settings: PostgresSourceSettings) -> Iterator[None]:
    """Raise LogUnreadable if reading the stream fails because the publication is missing."""
    try:
        yield
    except psycopg2.DatabaseError as error:
        # The library has no code for an error that ends a stream.
        if f'publication "{settings.publication}" does not exist' in str(error):
            raise LogUnreadable(f"The log of the slot can't be read: {_text(error)}") from error
        raise


@contextmanager
def map_errors(settings: PostgresSourceSettings) -> Iterator[None]:
    """Map errors of the server to errors of a source."""
    where = f"PostgreSQL at {settings.host}:{settings.port}"
    try:
        yield
    except FORBIDDEN as error:
        raise SettingsRefused(f"{where} refuses {settings.user}: {_text(error)}") from error
    except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
        raise Unavailable(f"{where}: {_text(error)}") from error
    except psycopg2.DatabaseError as error:
        # If the server is killed, the stream ends with a plain DatabaseError.
        if error.pgcode is None:
            raise Unavailable(f"{where}: {_text(error)}") from error
        raise


def connect(settings: PostgresSourceSettings, *, replication: bool = False) -> Any:
    """Return a connection. Each statement is a transaction of its own."""
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
        self._connection = connect(settings)

    def close(self) -> None:
        """Close the session."""
        self._connection.close()

    def interrupt(self) -> None:
        """Cancel the statement that another thread waits for."""
        with suppress(psycopg2.Error):
            self._connection.cancel()

    @property
    def version(self) -> int:
        """The server's version, as 180006."""
        number: int = self._connection.server_version
        return number

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Run the queries of the block as of one moment."""
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg2.InterfaceError):
                self.run("ROLLBACK")

    def rows(self, query: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, tuple(arguments) or None)
            return list(cursor.fetchall())

    def run(self, statement: str) -> None:
        """Run a statement without a result."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def copy_lines(self, query: str, *, bytes_max: int | None = None) -> Lines:
        """Return a query's lines in COPY's text form, the first ones up to a size."""
        lines = Lines(bytes_max)
        with self._connection.cursor() as cursor:
            cursor.copy_expert(f"COPY ({query}) TO STDOUT", lines)
        return lines

    def system(self) -> str:
        """Return the server's identifier and its timeline."""
        connection = connect(self.settings, replication=True)
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
        return parse_lsn(lsn)

    def read_flush(self) -> tuple[int, int]:
        """Return the server's time in ms, and the LSN up to which the log is durable then."""
        [(time_ms, lsn)] = self.rows(_FLUSHED)
        return time_ms, parse_lsn(lsn)

    def visible(self) -> Visible:
        """Return what a transaction that begins now sees, or what the current one sees."""
        [(text,)] = self.rows("SELECT pg_current_snapshot()")
        return Visible.parse(text)

    def mark(self) -> int:
        """Write a transaction for every reader of a slot. Return an LSN below it."""
        [(lsn,)] = self.rows("SELECT pg_logical_emit_message(true, %s, '')", (_MARK,))
        return parse_lsn(lsn)

    def slot(self, name: str) -> ReplicationSlot | None:
        """Return a slot, None if there is none. Raises SettingsRefused if it is not ours."""
        found = self.rows(_SLOT, (name,))
        if not found:
            return None
        [(plugin, own, confirmed, restart, state)] = found
        if plugin != PLUGIN or not own:
            raise SettingsRefused(f"The slot {name} is not one of {PLUGIN} in this database.")
        lost = state == "lost" or restart is None or confirmed is None
        return ReplicationSlot(0 if lost else parse_lsn(confirmed), lost)

    def make_slot(self, name: str) -> None:
        """Create a slot. The server waits for the transactions that run now."""
        self.rows("SELECT pg_create_logical_replication_slot(%s, %s)", (name, PLUGIN))

    def drop_slot(self, name: str) -> None:
        """Drop a slot."""
        self.rows("SELECT pg_drop_replication_slot(%s)", (name,))


class Lines(list[bytes]):
    """A file to which COPY writes, line by line.

    The line that exceeds ``bytes_max`` is the last that is kept. ``cut``: there were
    more.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        super().__init__()
        self.size = 0
        self.cut = False
        self._bytes_max = bytes_max

    def write(self, line: bytes) -> None:
        """Add a line."""
        if self._bytes_max is not None and self.size > self._bytes_max:
            self.cut = True
            return
        self.size += len(line)
        self.append(line)


def quote_text(text: str) -> str:
    """Return a text as a literal, valid with any settings of the session."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def quote_name(*parts: str) -> str:
    """Return a name quoted for a statement."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _text(error: psycopg2.Error) -> str:
    return " ".join(str(error).split())


_FLUSHED = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8, pg_current_wal_flush_lsn()"
_SLOT = """
SELECT plugin, slot_type = 'logical' AND database = current_database(),
       confirmed_flush_lsn, restart_lsn, wal_status
  FROM pg_replication_slots WHERE slot_name = %s
"""
