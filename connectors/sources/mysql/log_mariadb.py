"""MariaDB's binlog. The server reports the place of a read view, and the GTIDs at a place."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from rowtide.connectors.sources.mysql.gtids import DomainGtids, Gtids
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

__all__ = ["MariaLog"]

_SEND_BINLOG = 0x12
MUST_BE = {
    "log_bin": "1",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
}
_SNAPSHOT_PLACE = "SHOW STATUS LIKE 'binlog_snapshot_%'"


class MariaLog(LogEnd):
    """See ``ServerLog``."""

    session = "tx_isolation = 'REPEATABLE-READ', max_statement_time = 0"
    no_default: Sequence[str | None] = (None, "NULL")
    geometries_have_charsets = True

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask, "SHOW MASTER STATUS")

    def faults(self) -> list[str]:
        """See ``ServerLog``."""
        faults = [
            f"{name} is {value}; it must be {'ON' if name == 'log_bin' else wanted}."
            for name, wanted in MUST_BE.items()
            if (value := str(self._ask(f"SELECT @@global.{name}")[0][0])) != wanted
        ]
        return faults + self.filter_faults()

    def gtids(self, text: str) -> Gtids | None:
        """See ``ServerLog``."""
        return None if ":" in text else DomainGtids(text)

    def beginning(self) -> Beginning:
        """See ``ServerLog``."""
        moment = self.begin_moment(DomainGtids())
        self._ask("COMMIT")
        gtids = self._gtids_at(moment.log, moment.place)
        return Beginning(moment.log, moment.place, gtids or DomainGtids(), "")

    def standing(self, kept: MySqlCheckpoint) -> Standing:
        """See ``ServerLog``."""
        log, _ = place_of(*self.end())
        if log == kept.log and self._gtids_at(log, kept.place) == kept.gtids:
            return Standing.SAME
        return Standing.ELSEWHERE

    def settle(self, gtid: str) -> None:
        """See ``ServerLog``. The lock of a table delays reading its schema until then."""

    def begin_moment(self, made: Gtids) -> BinlogPlace:
        """See ``ServerLog``."""
        del made  # The caller drops a moment, by its place, if more than it was already written.
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        found = {name.lower(): value for name, value in self._ask(_SNAPSHOT_PLACE)}
        file, offset = found["binlog_snapshot_file"], int(found["binlog_snapshot_position"])
        [(time_ms,)] = self._ask(f"SELECT {NOW_MS}")
        return BinlogPlace(*place_of(file, offset), time_ms)

    def request(self, connection: Any, packets: Packets, gtids: Gtids, server_id: int) -> None:
        """See ``ServerLog``."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability"
                " = 4, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0,"
                " @slave_connect_state = %s, @master_heartbeat_period = %s",
                (gtids.text(), HEARTBEAT_S * 10**9),
            )
        packets.command(_SEND_BINLOG, Struct("<IHI").pack(4, 0, server_id))

    def _gtids_at(self, log: str, place: Place) -> Gtids | None:
        """Return the GTIDs at a place, None if the binlog does not have the place."""
        [(gtids,)] = self._ask(
            "SELECT BINLOG_GTID_POS(%s, %s)", (f"{log}.{place.file:06d}", place.offset)
        )
        return None if gtids is None else DomainGtids(gtids)
