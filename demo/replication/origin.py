"""The origin: nycflights13 in a real MariaDB, and changes of it.

The changes are many small transactions over several tables, as an application makes them. The seed
decides what is changed; the caller decides how fast.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pymysql

from demo.servers.mariadb import MariaDB
from demo.source import TABLES, Columns, Key, Row, Source, Table

__all__ = ["COUNTER", "DATABASE", "Changes", "count_in", "load", "total_rows"]

DATABASE = "nycflights"
LOAD_ROWS = 1000
COUNTER = "--"
"""Key of the airline that counts transactions."""

OPERATIONS_MAX = 60
"""Operations of the largest transaction; most have far fewer."""

TYPES = {int: "INT", float: "DOUBLE", str: "VARCHAR(80)", bool: "BOOLEAN"}
KEY_TYPES = {"STRING": "VARCHAR(40)", "INTEGER": "INT"}
DATES = {"date": "DATE", "time_hour": "DATETIME"}

Cursor = pymysql.cursors.Cursor


def load(server: MariaDB, source: Source) -> Iterator[tuple[Table, int]]:
    """Create and fill the database; yield (table, rows) after each part."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for table in TABLES:
            rows = list(source.rows(table))
            names = _columns(table, rows)
            cursor.execute(_create(table, names))
            insert = _insert(table, tuple(names))
            for at in range(0, len(rows), LOAD_ROWS):
                part = rows[at : at + LOAD_ROWS]
                cursor.executemany(insert, [_values(row, tuple(names)) for row in part])
                yield table, len(part)


def total_rows(source: Source) -> int:
    """Return the number of rows that ``load`` loads."""
    return sum(1 for table in TABLES for _ in source.rows(table))


class Changes:
    """Changes of the loaded flights, one transaction at a time.

    Flights get other delays, planes get other seats, some flights are cancelled (deleted), some are
    restored, and some get another number, so their key changes.
    """

    def __init__(self, server: MariaDB, source: Source, *, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._flights = [row.key for row in source.rows(TABLES[-1])]
        self._planes = [row.key for row in source.rows(TABLES[2])]
        self._cancelled: list[Key] = []
        self._connection: pymysql.connections.Connection[Cursor] | None = None
        self.transactions = 0
        """The number of committed transactions. The last row that each changes has its number."""

    def transaction(self) -> int:
        """Make one transaction; return how many rows it changed.

        Raises ``pymysql.MySQLError``; then it is rolled back.
        """
        if self._connection is None:
            self._connection = self._server.connect(database=DATABASE, autocommit=False)
        operations = min(OPERATIONS_MAX, 1 + int(self._chance.expovariate(1 / 12)))
        try:
            with self._connection.cursor() as cursor:
                changed = sum(self._change(cursor) for _ in range(operations))
                number = self.transactions + 1
                changed += min(1, cursor.execute(_COUNT, [COUNTER, f"transaction {number}"]))
            self._connection.commit()
            self.transactions = number
        except pymysql.MySQLError:
            self._connection.close()
            self._connection = None
            raise
        return changed

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _change(self, cursor: Cursor) -> int:
        what = self._chance.random()
        if what < 0.80:
            delay = self._chance.randrange(-30, 240)
            return self._update(cursor, "arr_delay = %s, dep_delay = NULL", [delay])
        if what < 0.88:
            seats = self._chance.randrange(2, 400)
            (tailnum,) = self._chance.choice(self._planes)
            return cursor.execute(
                "UPDATE planes SET seats = %s, engine = %s WHERE tailnum = %s",
                [seats, self._chance.choice(["Turbo-fan", "Räder ✈", None]), tailnum],
            )
        if what < 0.94:
            return self._cancel(cursor)
        if what < 0.97 and self._cancelled:
            return self._return(cursor)
        number = self._chance.randrange(10_000, 1_000_000)
        return self._update(cursor, "flight = flight + %s", [number])

    def _update(self, cursor: Cursor, what: str, values: list[Any]) -> int:
        key = self._chance.choice(self._flights)
        return cursor.execute(f"UPDATE flights SET {what} WHERE {_WHERE}", [*values, *key])

    def _cancel(self, cursor: Cursor) -> int:
        key = self._chance.choice(self._flights)
        self._cancelled.append(key)
        return cursor.execute(f"DELETE FROM flights WHERE {_WHERE}", key)

    def _return(self, cursor: Cursor) -> int:
        key = self._cancelled.pop(self._chance.randrange(len(self._cancelled)))
        names = ", ".join(TABLES[-1].key_names)
        return cursor.execute(
            f"INSERT IGNORE INTO flights ({names}, tailnum) VALUES (%s, %s, %s, %s, %s)",
            [*key, "back again"],
        )


_COUNT = (
    "INSERT INTO airlines (carrier, name) VALUES (%s, %s) "
    "ON DUPLICATE KEY UPDATE name = VALUE(name)"
)
_WHERE = " AND ".join(f"{name} = %s" for name in TABLES[-1].key_names)


def count_in(name: str) -> int:
    """Return the number of transactions in the counting row."""
    return int(name.rpartition(" ")[2] or 0)


def _columns(table: Table, rows: Iterable[Row]) -> dict[str, str]:
    """Return each column's type in MariaDB."""
    kinds: dict[str, str] = {name: KEY_TYPES[kind] for name, kind in table.key}
    for row in rows:
        for name, value in row.columns.items():
            if kinds.get(name) != "DOUBLE":
                kinds[name] = TYPES[type(value)]
    return {name: DATES.get(name, kind) for name, kind in kinds.items()}


def _create(table: Table, columns: dict[str, str]) -> str:
    lines = [f"`{name}` {kind}" for name, kind in columns.items()]
    lines.append(f"PRIMARY KEY ({', '.join(table.key_names)})")
    return f"CREATE TABLE {table.name} ({', '.join(lines)}) CHARACTER SET utf8mb4"


def _insert(table: Table, names: Sequence[str]) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    places = ", ".join(["%s"] * len(names))
    return f"INSERT INTO {table.name} ({columns}) VALUES ({places})"


def _values(row: Row, names: Sequence[str]) -> list[Any]:
    present: Columns = row.columns
    values = [*row.key, *(present.get(name) for name in names[len(row.key) :])]
    return [_value(name, value) for name, value in zip(names, values, strict=True)]


def _value(name: str, value: Any) -> Any:
    # MariaDB does not accept 2013-01-01T05:00:00Z as a DATETIME.
    return value.replace("T", " ").rstrip("Z") if name in DATES and value else value
