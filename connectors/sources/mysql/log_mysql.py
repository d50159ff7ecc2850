"""MySQL's binlog. The server does not report the place of a read view, so a moment has
two bounds.

A transaction is written to the binlog, then committed, then added to ``gtid_executed``.
So what a read view sees lies between ``gtid_executed`` before it was opened and the
binlog's end after. The binlog shows what is in between. The reader of a chunk follows the
binlog up to its end and leaves out rows whose keys changed in between
(``rowtide.connectors.sources.mysql.window``).

Three things identify a binlog as the one that was read: the server's UUID, the GTIDs at
the start of a file, and the event at the place that was reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any

import pymysql

from rowtide.connectors.sources.mysql.gtids import Gtids, IntervalGtids
from rowtide.connectors.sources.mysql.log import (
    HEARTBEAT_S,
    NOW_MS,
    Ask,
    Beginning,
    BinlogPlace,
    LogEnd,
    Standing,
)
from rowtide.connectors.sources.mysql.packets import Packets
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint, Place, place_of
from rowtide.core.values.errors import Unavailable

__all__ = ["MySqlLog"]

_SEND_BINLOG_GTID = 0x1E
_BY_GTID = 4
SETTLE_S = 10
"""How long the server may take to commit a transaction that the binlog has."""

MUST_BE = {
    "log_bin": "ON",
    "gtid_mode": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "",
    "binlog_transaction_compression": "OFF",
    "log_replica_updates": "ON",
    "log_slave_updates": "ON",
}
"""A setting that the server does not have is not checked."""


class MySqlLog(LogEnd):
    """See ``ServerLog``."""

    session = "transaction_isolation = 'REPEATABLE-READ', max_execution_time = 0"
    no_default: Sequence[str | None] = (None,)
    geometries_have_charsets = False

    def __init__(self, ask: Ask, version: tuple[int, ...]) -> None:
        super().__init__(
            ask, "SHOW BINARY LOG STATUS" if version >= (8, 2) else "SHOW MASTER STATUS"
        )

    def faults(self) -> list[str]:
        """See ``ServerLog``."""
        names = ", ".join(f"'{name}'" for name in MUST_BE)
        found = self._ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        faults = [
            f"{name} is {value}; it must be {MUST_BE[name] or 'empty'}."
            for name, value in found
            if value != MUST_BE[name]
        ]
        return faults + self.filter_faults()

    def gtids(self, text: str) -> Gtids | None:
        """See ``ServerLog``."""
        return IntervalGtids(text) if ":" in text or not text else None

    def beginning(self) -> Beginning:
        """See ``ServerLog``."""
        # A file starts when all before it is committed, so nothing of an earlier file is
        # missed.
        log, place = place_of(*self.end())
        return Beginning(log, Place(place.file, 0), self._read_gtids(), self._server())

    def standing(self, kept: MySqlCheckpoint) -> Standing:
        """See ``ServerLog``."""
        assert isinstance(kept.gtids, IntervalGtids), "the kind of the server's GTIDs was checked"
        if not self._read_gtids().includes(kept.gtids):
            return Standing.LOST
        if kept.server != self._server():
            return Standing.ELSEWHERE
        files = {place_of(name, 0): int(size) for name, size, *_ in self._ask("SHOW BINARY LOGS")}
        here = kept.log, Place(kept.place.file, 0)
        if here in files:
            return Standing.SAME if self._is_there(kept, files) else Standing.LOST
        # The file was purged. A binlog that was reset has only files of lower numbers.
        return Standing.ELSEWHERE if max(files) > here else Standing.LOST

    def settle(self, gtid: str) -> None:
        """See ``ServerLog``."""
        self._wait(IntervalGtids(gtid))

    def begin_moment(self, made: Gtids) -> BinlogPlace:
        """See ``ServerLog``."""
        assert isinstance(made, IntervalGtids), "they are this server's"
        while not (settled := self._read_gtids()).includes(made):
            # The binlog was read faster than the server commits.
            self._wait(made)
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        log, place = place_of(*self.end())
        [(time_ms,)] = self._ask(f"SELECT {NOW_MS}")
        return BinlogPlace(log, place, time_ms, settled)

    def request(self, connection: Any, packets: Packets, gtids: Gtids, server_id: int) -> None:
        """See ``ServerLog``."""
        assert isinstance(gtids, IntervalGtids), "they are this server's"
        period = HEARTBEAT_S * 10**9
        with connection.cursor() as cursor:
            for name in ("master", "source"):
                cursor.execute(
                    f"SET @{name}_binlog_checksum = @@global.binlog_checksum,"
                    f" @{name}_heartbeat_period = {period}"
                )
        known = gtids.encode()
        head = Struct("<HIIQI").pack(_BY_GTID, server_id, 0, 4, len(known))
        packets.command(_SEND_BINLOG_GTID, head + known)

    def _is_there(self, kept: MySqlCheckpoint, files: Mapping[tuple[str, Place], int]) -> bool:
        """True if the server still has the checkpoint's file unchanged."""
        file, offset = kept.place
        assert isinstance(kept.gtids, IntervalGtids), "they are this server's"
        if offset > files[kept.log, Place(file, 0)]:
            return False
        before, after = self._before(kept.log, file), self._before(kept.log, file + 1)
        if not kept.gtids.includes(before or IntervalGtids()):
            return False
        if (kept.log, Place(file + 1, 0)) in files and not (after or kept.gtids).includes(
            kept.gtids
        ):
            return False
        return not offset or self._goes_on(kept)

    def _goes_on(self, kept: MySqlCheckpoint) -> bool:
        """True if the next event at the stored place begins a new transaction."""
        name = f"{kept.log}.{kept.place.file:06d}"
        try:
            found = self._ask("SHOW BINLOG EVENTS IN %s FROM %s LIMIT 1", (name, kept.place.offset))
        except pymysql.err.Error:
            return False  # No event begins there.
        for _, offset, kind, _, _, text in found:
            known = kind.startswith("Gtid") and text.split("'")[1].lower() in kept.gtids
            if known or int(offset) != kept.place.offset:
                return False
        return True

    def _before(self, log: str, file: int) -> IntervalGtids | None:
        """Return the transactions before a file, None if the file does not have them."""
        try:
            found = self._ask("SHOW BINLOG EVENTS IN %s LIMIT 2", (f"{log}.{file:06d}",))
        except pymysql.err.Error:
            return None
        for _, _, kind, _, _, text in found:
            if kind == "Previous_gtids":
                return IntervalGtids(text)
        return None

    def _read_gtids(self) -> IntervalGtids:
        [(gtids,)] = self._ask("SELECT @@global.gtid_executed")
        return IntervalGtids(gtids)

    def _server(self) -> str:
        [(number,)] = self._ask("SELECT @@global.server_uuid")
        return str(number)

    def _wait(self, made: IntervalGtids) -> None:
        query = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
        if self._ask(query, (made.text(), SETTLE_S))[0][0]:
            raise Unavailable(
                f"MySQL did not commit a transaction of its binlog within {SETTLE_S} s."
            )
