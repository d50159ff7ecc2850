"""Connections to the target, lent to one batch at a time, and the meaning of its errors.

A connection is closed after a failure or cancellation and not lent again, because a
transaction may be open on it. Each connection sets its own strict mode, so nothing
depends on the server's settings.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiomysql
import pymysql.err

from rowtide.core.values.errors import Rejected, Unavailable

__all__ = [
    "Deadlock",
    "MySqlConnection",
    "MySqlConnections",
    "ServerSettings",
    "StatementRefused",
    "ValueRefused",
]

LOST = (OSError, EOFError, TimeoutError, pymysql.err.InterfaceError)
"""Errors of a broken connection. asyncio's IncompleteReadError is an EOFError."""

BUSY = frozenset(
    {
        *(1020, 1021, 1040, 1041, 1053, 1077, 1079, 1105, 1114, 1129, 1135, 1152, 1158, 1159),
        *(1160, 1161, 1180, 1184, 1189, 1190, 1203, 1205, 1213, 1226, 1290, 1317, 1412, 1613),
        *(1637, 1792, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2014, 2055, 3024, 3169),
    }
)
"""Codes of a server that is full, locked, stopping, read-only or unreachable."""

REFUSED = frozenset(
    {
        *(1048, 1062, 1118, 1138, 1153, 1216, 1217, 1263, 1264, 1265, 1292, 1364, 1365, 1366),
        *(1367, 1406, 1416, 1425, 1426, 1441, 1442, 1451, 1452, 1525, 1526, 1557, 1644, 1690),
        *(1748, 1761, 1762, 3140, 3156, 3819, 3903, 4025, 4078),
    }
)
"""Codes about a row's values: the same row would be refused again."""

DEADLOCK = 1213
SESSION = (
    # Strict mode: a value that does not fit is an error and is never cut. A backslash is
    # an escape.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_notes = 0,"
    " time_zone = '+00:00', lock_wait_timeout = 60, innodb_lock_wait_timeout = 30,"
    " max_sort_length = 8192",
    # Nothing here needs gap locks, and those of neighbouring keys cause deadlocks.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)


class ValueRefused(Exception):
    """The server refused a value. The text is the server's."""


class StatementRefused(Rejected):
    """The server refused a statement for a reason other than a row's values."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__("OTSParameterInvalid", text)
        self.number = number


class Deadlock(Unavailable):
    """The server broke a deadlock. The same transaction may succeed if it is retried at once."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The target server. ``statement_s`` bounds one batch, ``connections`` the batches at once."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    tls: bool = False
    cafile: str = ""
    connect_s: float = 10.0
    statement_s: float = 120.0
    connections: int = 4


class MySqlConnection:
    """One connection. Every method raises ``Unavailable``, ``ValueRefused`` or ``Rejected``."""

    def __init__(self, connection: Any, packet_bytes_max: int) -> None:
        self._connection = connection
        self.packet_bytes_max = packet_bytes_max
        """Most bytes of one statement. The server drops a connection that sends more."""

    @property
    def usable(self) -> bool:
        return not self._connection.closed

    async def run(self, statement: str | bytes) -> int:
        """Run a statement and return the number of affected rows."""
        with map_errors():
            async with self._connection.cursor(_Cursor) as cursor:
                return int(await cursor.execute(statement))

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with map_errors():
            async with self._connection.cursor(_Cursor) as cursor:
                await cursor.execute(query)
                return list(await cursor.fetchall())

    async def describe(self, query: str) -> tuple[tuple[str, int], ...]:
        """Return the names and type codes of a query's columns."""
        with map_errors():
            async with self._connection.cursor(_Cursor) as cursor:
                await cursor.execute(query)
                return tuple((column[0], column[1]) for column in cursor.description)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit what the block does. A failure leaves nothing of it."""
        await self.run("START TRANSACTION")
        try:
            yield
        except BaseException:
            # The server rolls back when the connection ends.
            self.close()
            raise
        await self.run("COMMIT")

    def close(self) -> None:
        """Close at once."""
        self._connection.close()


class _Cursor(aiomysql.Cursor):  # type: ignore[misc]
    """A cursor that reads no warnings: in strict mode a wrong value is an error.

    MySQL warns of ``VALUES()`` in each statement, but MariaDB has no alternative to it.
    """

    async def _show_warnings(self, conn: object) -> None:
        del conn


class MySqlConnections:
    """A few connections, opened when they are needed."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._idle: list[MySqlConnection] = []
        self._free = asyncio.Semaphore(settings.connections)
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[MySqlConnection]:
        """Lend a connection. After an exception it is closed."""
        async with self._free:
            connection = self._idle.pop() if self._idle else await self._open()
            try:
                with map_errors():
                    async with asyncio.timeout(self._settings.statement_s):
                        yield connection
            except BaseException:
                connection.close()
                raise
            if connection.usable:
                self._idle.append(connection)

    def close(self) -> None:
        """Close every idle connection."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _open(self) -> MySqlConnection:
        settings = self._settings
        if settings.tls and self._tls is None:
            self._tls = ssl.create_default_context(cafile=settings.cafile or None)
        with map_errors():
            async with asyncio.timeout(settings.connect_s):
                connection = await aiomysql.connect(
                    host=settings.host,
                    port=settings.port,
                    user=settings.user,
                    password=settings.password,
                    db=settings.database,
                    charset="utf8mb4",
                    autocommit=True,
                    ssl=self._tls,
                    connect_timeout=settings.connect_s,
                )
        opened = MySqlConnection(connection, 0)
        try:
            for statement in SESSION:
                await opened.run(statement)
            [(packet,)] = await opened.rows("SELECT @@max_allowed_packet")
        except BaseException:
            opened.close()
            raise
        opened.packet_bytes_max = int(packet)
        return opened


@contextmanager
def map_errors() -> Iterator[None]:
    """Map the driver's errors to errors of a sink."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args else 0
        text = f"MySQL error {code}: {error.args[-1] if error.args else error!r}"
        if code == DEADLOCK:
            raise Deadlock(text) from error
        if code in BUSY or isinstance(error, LOST):
            raise Unavailable(text) from error
        if code in REFUSED:
            raise ValueRefused(text) from error
        raise StatementRefused(code, text) from error
    except RuntimeError as error:
        if "cryptography" not in str(error):
            raise
        raise StatementRefused(
            0, f"MySQL requires `tls: true` for this password: {error}"
        ) from error
    except LOST as error:
        raise Unavailable(f"MySQL: {error or type(error).__name__}") from error
