"""A program that changes two tables at random, in transactions, from a seed.

Every change writes a number that rises over all changes. So the order of commits is known
per key and column. Keys change too.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pymysql

from demo.servers.sql_server import SqlServer

__all__ = ["ShopWriter", "make_shop"]

NAMES = ("ant", "Bee", "cat", "dög", "emu")


def make_shop(server: SqlServer, rows: int) -> None:
    """Make the tables, with rows in both."""
    numbers = ",".join(f"({number * 2},0,NULL)" for number in range(rows))
    names = ",".join(f"('{NAMES[n % len(NAMES)]}',{n},0)" for n in range(rows // 2))
    server.execute(
        "CREATE TABLE shop.numbers (id INT PRIMARY KEY, v BIGINT, note VARCHAR(20))",
        "CREATE TABLE shop.names (name VARCHAR(9), part INT, v BIGINT, PRIMARY KEY (name, part))",
        f"INSERT INTO shop.numbers VALUES {numbers}",
        f"INSERT INTO shop.names VALUES {names}",
    )


class ShopWriter:
    """Runs in a thread until so many changes were tried; connects again when the server went.

    Where no number is given it runs until ``finish``.
    """

    def __init__(
        self, server: SqlServer, *, seed: int, rows: int, changes: int | None = None
    ) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self._rows = rows
        self._changes = changes
        self._number = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop writer", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def tried(self) -> int:
        """How many changes were tried."""
        return self._number

    def wait(self) -> None:
        """Wait until all is done."""
        self._thread.join()

    def finish(self) -> None:
        """End now, whatever is left to do."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        connection: Any = None
        while not self._is_enough():
            try:
                connection = connection or self._server.connect(autocommit=False)
                try:
                    self._transaction(connection)
                except pymysql.err.IntegrityError:
                    connection.rollback()  # A key was changed to one that is there.
            except pymysql.MySQLError:
                connection = None  # The server went, perhaps before it rolled back.

    def _is_enough(self) -> bool:
        tried_all = self._changes is not None and self._number >= self._changes
        return tried_all or self._ending.is_set()

    def _transaction(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            for _ in range(self._chance.randint(1, 6)):
                self._change(cursor)
        connection.commit()

    def _change(self, cursor: Any) -> None:
        self._number += 1
        number, key = self._number, self._chance.randrange(self._rows * 2)
        kind = self._chance.random()
        part, name = key // 4, self._chance.choice(NAMES)
        if kind < 0.15:
            cursor.execute("DELETE FROM shop.numbers WHERE id = %s", (key,))
        elif kind < 0.6:
            cursor.execute(
                "INSERT INTO shop.numbers VALUES (%s, %s, 'new') ON DUPLICATE KEY UPDATE"
                " v = VALUES(v), note = IF(v %% 3, 'changed', NULL)",
                (key, number),
            )
        elif kind < 0.65:
            other = self._chance.randrange(self._rows * 2)
            cursor.execute(
                "UPDATE shop.numbers SET id = %s, v = %s WHERE id = %s", (other, number, key)
            )
        elif kind < 0.75:
            cursor.execute("DELETE FROM shop.names WHERE name = %s AND part = %s", (name, part))
        elif kind < 0.95:
            cursor.execute("REPLACE INTO shop.names VALUES (%s, %s, %s)", (name, part, number))
        else:
            cursor.execute(
                "UPDATE shop.names SET v = %s WHERE part BETWEEN %s AND %s",
                (number, part, part + 3),
            )
