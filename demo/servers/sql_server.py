"""A server that speaks MySQL's protocol: MariaDB's or MySQL's own. ``root`` has no password."""

from __future__ import annotations

import os
from typing import Any

import pymysql

from demo.servers.server import HOST, Server

__all__ = ["HOST", "QUICK", "SqlServer", "as_root", "numbers"]

QUICK = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2")
"""Options of a server that need not outlive a power cut. A killed process loses nothing of what it
gave to the system."""


class SqlServer(Server):
    """Statements to a server on loopback."""

    gtids_query = ""

    def gtids(self) -> str:
        """Return the transactions that it has made."""
        [(gtids,)] = self.rows(self.gtids_query)
        return str(gtids)

    def answers(self) -> bool:
        """Say whether it takes connections."""
        try:
            self.connect().close()
        except pymysql.err.MySQLError:
            return False
        return True

    def connect(self, **settings: Any) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
        """Return a new connection as root; it commits by itself unless told otherwise."""
        given: dict[str, Any] = {"host": HOST, "port": self.port, "user": "root"}
        given["charset"] = "utf8mb4"
        # Else PyMySQL loads certificates for each connection, 80 ms.
        given |= {"autocommit": True, "ssl_disabled": True}
        return pymysql.connect(**{**given, **settings})

    def execute(self, *statements: str) -> None:
        """Run statements on a connection of their own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query gives."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())


def numbers(most: int) -> str:
    """Return what stands behind FROM for a table ``seq`` of the numbers 1 to ``most``."""
    digit = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
    places = [f"p{place}.d * {10**place}" for place in range(len(str(most)))]
    tables = ", ".join(f"({digit}) AS p{place}" for place in range(len(places)))
    every = f"SELECT {' + '.join(places)} AS seq FROM {tables}"
    return f"({every} HAVING seq BETWEEN 1 AND {most} ORDER BY seq) AS seqs"


def as_root() -> list[str]:
    """Return the option without which such a server does not run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []
