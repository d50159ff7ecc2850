"""Questions to a MariaDB server: is it as a source must be, where is its log, what is in it.

Everything blocks, and a ``Server`` is for one thread at a time. Its session shows times in UTC and
reads as of one moment (REPEATABLE READ).
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
from rowtide.connectors.mysql.source_packets import ConnectionLost
from rowtide.connectors.mysql.source_position import Place, parsed_gtids
from rowtide.connectors.mysql.source_settings import SourceSettings
from rowtide.core.errors import Unavailable

__all__ = ["End", "Moment", "Server", "connected", "cut", "place_of", "translated"]

CONNECT_S = 10
ANSWER_S = 300
"""The longest that a query may take."""

LEAST_VERSION = (10, 5)
"""Since then the binlog can name its columns."""

MUST_BE = {
    "log_bin": "1",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
}
_REFUSALS = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
"""Errors that say: this user may not."""

_SESSION = (
    "SET time_zone = '+00:00', sql_mode = '', tx_isolation = 'REPEATABLE-READ', "
    "max_statement_time = 0"
)


class Moment(NamedTuple):
    """What a transaction sees: all that the binlog has up to ``place``, and nothing after it."""

    log: str
    place: Place
    time_ms: int


class End(NamedTuple):
    """Where the binlog ended at a time, and how many bytes of it lie behind some place."""

    time_ms: int
    place: Place
    bytes: int


@contextmanager
def translated(settings: SourceSettings) -> Iterator[None]:
    """Raise what a failure of the server means for a source."""
    where = f"{settings.host}:{settings.port}"
    try:
        yield
    except ConnectionLost as error:
        raise Unavailable(f"MariaDB at {where}: {error}") from error
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError) as error:
        if error.args and error.args[0] in _REFUSALS:
            raise SettingsRefused(f"MariaDB at {where} refuses {settings.user}: {error}") from error
        raise Unavailable(f"MariaDB at {where}: {error}") from error


def connected(settings: SourceSettings, *, silence_s: int = ANSWER_S) -> Any:
    """Return a connection; a server that is silent for so long is given up."""
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
        ssl=ssl.create_default_context() if settings.tls else None,
        ssl_disabled=not settings.tls,  # Else PyMySQL loads certificates all the same: 80 ms.
    )


def cut(connection: Any) -> None:
    """End a connection at once, also under a thread that waits for it."""
    with suppress(OSError, AttributeError):  # It may be closed already.
        connection._sock.shutdown(socket.SHUT_RDWR)
    connection._force_close()


def place_of(file: str, offset: int) -> tuple[str, Place]:
    """Return what the binlog's files are named like, and the place."""
    name, _, number = file.rpartition(".")
    if not number.isdigit():
        raise ValueError(f"{file!r} is no file of a binlog.")
    return name, Place(int(number), offset)


class Server:
    """A session on the server."""

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings
        self.connection = connected(settings)
        self.rows(_SESSION)

    def close(self) -> None:
        """End the session; a query that another thread waits for fails."""
        cut(self.connection)

    def rows(self, query: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return what a query gives."""
        with self.connection.cursor() as cursor:
            cursor.execute(query, arguments or None)
            return list(cursor.fetchall())

    def check(self) -> None:
        """Raise SettingsRefused where the server can't be followed, with all that is in the way."""
        [(version,)] = self.rows("SELECT VERSION()")
        found = re.match(r"(\d+)\.(\d+)", version)
        if "MariaDB" not in version or not found or tuple(map(int, found.groups())) < LEAST_VERSION:
            least = ".".join(map(str, LEAST_VERSION))
            raise SettingsRefused(
                f"The source must be MariaDB {least} or later, but the server is {version}."
            )
        faults = [
            f"{name} is {value}; it must be {'ON' if name == 'log_bin' else wanted}."
            for name, wanted in MUST_BE.items()
            if (value := str(self._variable(name))) != wanted
        ]
        if any(status[2] or status[3] for status in self.rows("SHOW MASTER STATUS")):
            faults.append(
                "binlog_do_db or binlog_ignore_db leaves changes out; both must be empty."
            )
        if faults:
            raise SettingsRefused("The server can't be followed: " + " ".join(faults))

    def begin_moment(self) -> Moment:
        """Begin a transaction that sees one moment, and return its place in the binlog."""
        self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        found = {name.lower(): value for name, value in self.rows(_SNAPSHOT_PLACE)}
        file, offset = found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
        [(time_ms,)] = self.rows(_NOW_MS)
        return Moment(*place_of(file, offset), time_ms)

    def end_moment(self) -> None:
        """End the transaction that ``begin_moment`` began."""
        self.rows("COMMIT")

    def end(self, place: Place) -> End:
        """Return where the binlog ends, and how much of it lies behind a place."""
        [(time_ms,)] = self.rows(_NOW_MS)
        [(file, offset, *_)] = self.rows("SHOW MASTER STATUS")
        _, end = place_of(file, int(offset))
        if end.file == place.file:
            return End(time_ms, end, max(0, end.offset - place.offset))
        left = end.offset - place.offset
        for name, size, *_ in self.rows("SHOW BINARY LOGS"):
            if place.file <= place_of(name, 0)[1].file < end.file:
                left += int(size)
        return End(time_ms, end, max(0, left))

    def gtids_at(self, log: str, place: Place) -> Mapping[int, str] | None:
        """Return the GTIDs at a place; None where the binlog has no such place (any more)."""
        [(gtids,)] = self.rows(
            "SELECT BINLOG_GTID_POS(%s, %s)", (f"{log}.{place.file:06d}", place.offset)
        )
        return None if gtids is None else parsed_gtids(gtids)

    def charsets(self) -> Mapping[int, str]:
        """Return the charset of each collation, by its number."""
        try:
            found = self.rows(_COLLATIONS)
        except pymysql.err.OperationalError:  # Before 10.10 every collation had one charset.
            found = self.rows("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS")
        return {int(number): charset for number, charset in found if number is not None}

    def characters(self, charset: str) -> str:
        """Return the 256 characters that the bytes of a charset stand for."""
        every = bytes(range(256)).hex()
        [(text,)] = self.rows(f"SELECT CONVERT(_{charset} x'{every}' USING utf8mb4)")
        return str(text)

    def _variable(self, name: str) -> object:
        [(value,)] = self.rows(f"SELECT @@global.{name}")
        return value


_COLLATIONS = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
)
_NOW_MS = "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INTEGER)"
_SNAPSHOT_PLACE = "SHOW STATUS LIKE 'binlog_snapshot_%'"
