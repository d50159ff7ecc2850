"""Queries on a server's binlog that differ between MariaDB and MySQL.

There is one ``ServerLog`` per kind of server. All other queries of a source are the same
for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import pymysql

from rowtide.connectors.sources.mysql.gtids import Gtids
from rowtide.connectors.sources.mysql.packets import Packets
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint, Place

__all__ = [
    "HEARTBEAT_S",
    "NOW_MS",
    "Ask",
    "Beginning",
    "BinlogPlace",
    "LogEnd",
    "ServerLog",
    "Standing",
]

HEARTBEAT_S = 1
MAY_NOT = 1227
"""The error of a user without the privilege for a statement."""
NOW_MS = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"

Ask = Callable[..., list[tuple[Any, ...]]]
"""Runs a query, with arguments if it has any."""


class BinlogPlace(NamedTuple):
    """What a transaction sees: nothing after ``place``.

    If ``settled`` is None, it sees all of the binlog up to there. Otherwise it sees what
    is in ``settled``, and an unknown part of the rest.
    """

    log: str
    place: Place
    time_ms: int
    settled: Gtids | None = None


class Beginning(NamedTuple):
    """Where a source may begin to read: after these transactions, which are all before
    the place.
    """

    log: str
    place: Place
    gtids: Gtids
    server: str


class Standing(Enum):
    """How a checkpoint relates to a server's binlog."""

    SAME = "same"
    ELSEWHERE = "elsewhere"
    """The server has its transactions, but other places."""
    LOST = "lost"
    """The server's binlog is not the one that was read."""


class ServerLog(Protocol):
    """The binlog of one server, queried over one session."""

    session: str
    """Session settings whose names differ."""

    no_default: Sequence[str | None]
    """What the schema has for a column without a default."""

    geometries_have_charsets: bool
    """Whether the binlog has a charset for geometries too."""

    def faults(self) -> list[str]:
        """Return what prevents the server from being followed, as texts for people."""

    def gtids(self, text: str) -> Gtids | None:
        """Return a set of this kind of server, None if the text is of another kind."""

    def beginning(self) -> Beginning:
        """Return where to begin."""

    def standing(self, kept: MySqlCheckpoint) -> Standing:
        """Return how a stored place relates to this server's binlog."""

    def settle(self, gtid: str) -> None:
        """Wait until a transaction is visible: it may be in the binlog before it is committed."""

    def begin_moment(self, made: Gtids) -> BinlogPlace:
        """Begin a transaction that sees one moment, including all of ``made`` already read."""

    def end(self) -> tuple[str, int]:
        """Return the file and offset of the binlog's end."""

    def request(self, connection: Any, packets: Packets, gtids: Gtids, server_id: int) -> None:
        """Request the binlog after some transactions. Its events are the next packets."""


class LogEnd:
    """Queries on the log's end that both kinds share. ``status`` is the statement for it."""

    def __init__(self, ask: Ask, status: str) -> None:
        self._ask = ask
        self._status = status

    def end(self) -> tuple[str, int]:
        """See ``ServerLog``."""
        [(file, offset, *_)] = self._ask(self._status)
        return file, int(offset)

    def filter_faults(self) -> list[str]:
        """Return faults if the server does not log every database.

        A missing privilege for the query is reported elsewhere.
        """
        try:
            found = self._ask(self._status)
        except pymysql.err.OperationalError as error:
            if error.args[0] != MAY_NOT:
                raise
            return []
        if any(status[2] or status[3] for status in found):
            return ["binlog_do_db or binlog_ignore_db leaves changes out; both must be empty."]
        return []
