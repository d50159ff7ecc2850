"""The hours' sums in one SQLite file of the data directory. An addition is flushed or absent.

Sums are only added to, never replaced, so a start reads nothing. Hours older than
``KEPT_S`` are removed. Calls block; one at a time.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from rowtide.core.cluster.metering import HourOf, Taken, Use

__all__ = ["ConsumptionFile"]

logger = logging.getLogger(__name__)

KEPT_S = 400 * 86400
SCHEMA = """
CREATE TABLE IF NOT EXISTS used (
    hour_s INTEGER, instance TEXT, table_name TEXT,
    read INTEGER, write INTEGER, read_on_demand INTEGER, write_on_demand INTEGER,
    read_reserved_s REAL, write_reserved_s REAL,
    PRIMARY KEY (hour_s, instance, table_name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted (hour_s INTEGER PRIMARY KEY, seconds REAL);
"""
ADD_USED = """
INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    read = read + excluded.read, write = write + excluded.write,
    read_on_demand = read_on_demand + excluded.read_on_demand,
    write_on_demand = write_on_demand + excluded.write_on_demand,
    read_reserved_s = read_reserved_s + excluded.read_reserved_s,
    write_reserved_s = write_reserved_s + excluded.write_reserved_s
"""
ADD_COUNTED = """
INSERT INTO counted VALUES (?, ?) ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds
"""
FIND = """
SELECT * FROM used
WHERE instance = ? AND hour_s >= ? AND hour_s < ? AND (? IS NULL OR table_name = ?)
ORDER BY hour_s, table_name
"""


class ConsumptionFile:
    """The file at ``path``, created if missing. A damaged file is renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, taken: Taken) -> None:
        """Add to the sums, all or nothing. Raises ``sqlite3.Error``, ``OSError``."""
        with closing(self._open()) as connection, connection:
            connection.executemany(
                ADD_USED,
                [
                    (
                        *hour_of,
                        use.read,
                        use.write,
                        use.read_on_demand,
                        use.write_on_demand,
                        use.read_reserved_s,
                        use.write_reserved_s,
                    )
                    for hour_of, use in taken.uses.items()
                ],
            )
            connection.executemany(ADD_COUNTED, list(taken.seconds.items()))
            if taken.seconds:
                oldest_s = max(taken.seconds) - KEPT_S
                connection.execute("DELETE FROM used WHERE hour_s < ?", (oldest_s,))
                connection.execute("DELETE FROM counted WHERE hour_s < ?", (oldest_s,))

    def find(self, instance: str, table: str | None, begin_s: int, end_s: int) -> Taken:
        """Return the sums of hours from ``begin_s`` on and before ``end_s``, of one table or all.

        Raises ``sqlite3.Error``, ``OSError``.
        """
        found = Taken()
        with closing(self._open()) as connection:
            for hour_s, name, table_name, *sums in connection.execute(
                FIND, (instance, begin_s, end_s, table, table)
            ):
                found.uses[HourOf(hour_s, name, table_name)] = Use(*sums)
            found.seconds = dict(connection.execute("SELECT * FROM counted"))
        return found

    def _open(self) -> sqlite3.Connection:
        """Return a connection to a file that has its tables."""
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # The disk is full, or the folder is read-only: the file is not damaged.
            damaged = self._path.with_name(self._path.name + ".damaged")
            logger.warning("%s is damaged; renamed to %s: %s", self._path, damaged.name, error)
            self._path.replace(damaged)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path)
        try:
            connection.executescript(SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection
