"""Queries to a server: is it set up for a source, where is its log, and what is in it.

All calls block, and a ``MySqlServer`` is for one thread at a time. Its session shows
times in UTC and reads as of one moment (REPEATABLE READ).
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pymysql

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.mysql.grants import missing_grants
from rowtide.connectors.sources.mysql.log import NOW_MS, ServerLog
from rowtide.connectors.sources.mysql.log_mariadb import MariaLog
from rowtide.connectors.sources.mysql.log_mysql import MySqlLog
from rowtide.connectors.sources.mysql.packets import ConnectionLost
from rowtide.connectors.sources.mysql.position import Place, place_of
from rowtide.connectors.sources.mysql.settings import MySqlSourceSettings
from rowtide.core.values.errors import Unavailable

__all__ = ["End", "MySqlServer", "connect", "cut", "map_errors"]

CONNECT_S = 10
ANSWER_S = 300
"""The longest that a query may take."""

LEAST_VERSIONS = {"MariaDB": (10, 5), "MySQL": (8, 0)}
"""The first versions whose binlog can name its columns."""

_REFUSALS = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
"""Errors of a user without permission."""
_NO_GRANTS = {1141, 1290}
"""Errors of a server or user without grants."""


_SHOWS_MADE_KEYS = "show_gipk_in_create_table_and_information_schema"
"""MySQL's session setting: whether it shows invisible keys that the server created."""


class End(NamedTuple):
    """The binlog's end at a time, and how many bytes of it follow some place."""

    time_ms: int
    place: Place
    bytes: int


@contextmanager
def map_errors(settings: MySqlSourceSettings) -> Iterator[None]:
    """Map errors of the server to errors of a source."""
    where = f"{settings.host}:{settings.port}"
    try:
        yield
    except ConnectionLost as error:
        raise Unavailable(f"The server at {where}: {error}") from error
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
        if error.args and error.args[0] in _REFUSALS:
            refusal = f"The server at {where} refuses {settings.user}: {error}"
            raise SettingsRefused(refusal) from error
        raise Unavailable(f"The server at {where}: {error}") from error


def connect(settings: MySqlSourceSettings, *, silence_s: int = ANSWER_S) -> Any:
    """Return a connection. It fails if the server is silent for ``silence_s``."""
    try:
        return _connection(settings, silence_s)
    except RuntimeError as error:  # PyMySQL needs another package.
        raise SettingsRefused(
            f"{settings.host}:{settings.port} requires `tls: true`, or the package cryptography, "
            f"for the password of {settings.user}: {error}"
        ) from error


def _connection(settings: MySqlSourceSettings, silence_s: int) -> Any:
    return pymysql.connect(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        password=settings.password,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_S,
        read_timeout=silence_s,
        write_timeout=silence_s,
        ssl=ssl.create_default_context(cafile=settings.cafile) if settings.tls else None,
        ssl_disabled=not settings.tls,  # Otherwise PyMySQL loads certificates anyway: 80 ms.
    )


def cut(connection: Any) -> None:
    """Close a connection at once, even while a thread waits for it."""
    with suppress(OSError, AttributeError):  # It may be closed already.
        connection._sock.shutdown(socket.SHUT_RDWR)
    connection._force_close()


class MySqlServer:
    """A session on the server. ``lowers_names``: the server stores table names in lower case."""

    def __init__(self, settings: MySqlSourceSettings) -> None:
        """Connect. Raises SettingsRefused for a server of an unknown kind."""
        self.settings = settings
        self.connection = connect(settings)
        try:
            self.log = self._log()
            self.rows(f"SET time_zone = '+00:00', sql_mode = '', {self.log.session}")
            [(folds,)] = self.rows("SELECT @@lower_case_table_names")
            self.lowers_names = int(folds) == 1
            if self.rows(f"SHOW VARIABLES LIKE '{_SHOWS_MADE_KEYS}'"):
                self.rows(f"SET {_SHOWS_MADE_KEYS} = ON")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the session. A query of another thread fails."""
        cut(self.connection)

    def rows(self, query: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, arguments or None)
            return list(cursor.fetchall())

    def check(self) -> None:
        """Raise SettingsRefused with all faults if the server can't be followed."""
        faults = [*self._grant_faults(), *self.log.faults()]
        if faults:
            raise SettingsRefused("The server can't be followed: " + " ".join(faults))

    def _grant_faults(self) -> list[str]:
        """Return the privileges that the user lacks, with statements to grant them."""
        try:
            lines = [str(line) for line, *_ in self.rows("SHOW GRANTS")]
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] in _NO_GRANTS:
                return []
            raise
        [(user,)] = self.rows("SELECT CURRENT_USER()")
        missing = missing_grants(lines, str(user), self.settings.tables)
        return [f"The user lacks privileges. Run: {' '.join(missing)}"] if missing else []

    def end_moment(self) -> None:
        """End the transaction that ``ServerLog.begin_moment`` began."""
        self.rows("COMMIT")

    def end(self, place: Place) -> End:
        """Return the binlog's end, and how many bytes follow a place."""
        [(time_ms,)] = self.rows(f"SELECT {NOW_MS}")
        _, end = place_of(*self.log.end())
        if end.file == place.file:
            return End(time_ms, end, max(0, end.offset - place.offset))
        left = end.offset - place.offset
        for name, size, *_ in self.rows("SHOW BINARY LOGS"):
            if place.file <= place_of(name, 0)[1].file < end.file:
                left += int(size)
        return End(time_ms, end, max(0, left))

    def charsets(self) -> Mapping[int, str]:
        """Return the charset of each collation, by its number."""
        try:
            found = self.rows(_COLLATIONS)
        except pymysql.err.OperationalError:  # Before 10.10 every collation had one charset.
            found = self.rows("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
        return {int(number): charset for number, charset in found if number is not None}

    def characters(self, charset: str) -> str:
        """Return the 256 characters of a charset's bytes."""
        every = bytes(range(256)).hex()
        [(text,)] = self.rows(f"SELECT CONVERT(_{charset} x'{every}' USING utf8mb4)")
        return str(text)

    def _log(self) -> ServerLog:
        [(version,)] = self.rows("SELECT VERSION()")
        kind = "MariaDB" if "MariaDB" in version else "MySQL"
        found = re.match(r"(\d+)\.(\d+)", version)
        numbers = tuple(map(int, found.groups())) if found else ()
        least = LEAST_VERSIONS[kind]
        if numbers < least or "TiDB" in version:
            wanted = " or ".join(
                f"{name} {number[0]}.{number[1]}" for name, number in LEAST_VERSIONS.items()
            )
            raise SettingsRefused(
                f"The source must be {wanted} or later, but the server is {version}."
            )
        return MariaLog(self.rows) if kind == "MariaDB" else MySqlLog(self.rows, numbers)


_COLLATIONS = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
)
