"""What of a server's binlog MariaDB and MySQL tell each in their own way.

One ``ServerLog`` per kind of server; all else that a source asks is the same for both.
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
"""Runs a query, with arguments if it has some."""


class BinlogPlace(NamedTuple):
    """What a transaction sees: nothing after ``place``.

    Of what the binlog has up to there, it sees all where ``settled`` is None; else what is in
    ``settled``, and of the rest some, or nothing.
    """

    log: str
    place: Place
    time_ms: int
    settled: Gtids | None = None


class Beginning(NamedTuple):
    """Where a source may begin to read: behind these transactions, all before the place."""

    log: str
    place: Place
    gtids: Gtids
    server: str


class Standing(Enum):
    """How a checkpoint stands to a server's binlog."""

    SAME = "same"
    ELSEWHERE = "elsewhere"
    """Its transactions are known, its places are not."""
    LOST = "lost"
    """What was read is not what the server has."""


class ServerLog(Protocol):
    """The binlog of one server, asked for over one session."""

    session: str
    """Settings of a session that are named differently."""

    no_default: Sequence[str | None]
    """What the schema says of a column without a default."""

    geometries_have_charsets: bool
    """Whether the binlog tells one for them too."""

    def faults(self) -> list[str]:
        """Return what keeps the server from being followed, in words for people."""

    def gtids(self, text: str) -> Gtids | None:
        """Return a set of this kind of server; None where the text is another kind's."""

    def beginning(self) -> Beginning:
        """Return where to begin."""

    def standing(self, kept: MySqlCheckpoint) -> Standing:
        """Return how a kept place relates to this server's binlog."""

    def settle(self, gtid: str) -> None:
        """Wait until what a transaction did can be seen: it may be read before it is committed."""

    def begin_moment(self, made: Gtids) -> BinlogPlace:
        """Begin a transaction that sees one moment, with all of ``made`` that was read already."""

    def end(self) -> tuple[str, int]:
        """Return the file where the binlog ends, and the offset."""

    def request(self, connection: Any, packets: Packets, gtids: Gtids, server_id: int) -> None:
        """Ask for the binlog behind some transactions; its events are the next packets."""


class LogEnd:
    """What every server's log tells of where it ends; ``status`` is the statement that asks."""

    def __init__(self, ask: Ask, status: str) -> None:
        self._ask = ask
        self._status = status

    def end(self) -> tuple[str, int]:
        """See ``ServerLog``."""
        [(file, offset, *_)] = self._ask(self._status)
        return file, int(offset)

    def filter_faults(self) -> list[str]:
        """Return what is wrong where the server does not log every database.

        A user who may not ask is told of that beside.
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
