"""A server with MySQL's protocol: MariaDB's or MySQL's own. ``root`` has no password."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql

from demo.servers.made_once import make_once
from demo.servers.program import Program
from demo.servers.server import HOST, Server, free_port

__all__ = ["HOST", "QUICK", "SqlServer", "as_root", "numbers"]

QUICK = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2")
"""Options of a server that need not survive a power cut. A killed process loses nothing that it has
passed to the system.
"""


class SqlServer(Server):
    """A server on loopback that runs statements.

    ``options`` are added to its command and override ours.
    """

    gtids_query = ""

    def __init__(self, folder: Path, cache_dir: Path, *, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir
        self._options = options

    def serve(self, program: Program, *options: str, system_tables: Callable[[Path], None]) -> None:
        """Run its program on its rows; ``system_tables`` creates them at the first start."""
        rows = make_once(self.folder / "rows", system_tables)
        # At its start a server removes temporary tables that it finds, also those of other servers.
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        ours = [
            # A socket's path has 107 bytes at most, which a test's folder may be near: it is
            # relative to the server's own folder.
            *(f"--datadir={rows}", f"--tmpdir={temporary}", "--socket=socket", "--pid-file=pid"),
            *(f"--port={self.port}", f"--bind-address={HOST}", *as_root(), *options),
        ]
        self.launch([*program.command, *ours, *self._options], program.environment())

    def gtids(self) -> str:
        """Return the transactions that it has made."""
        [(gtids,)] = self.rows(self.gtids_query)
        return str(gtids)

    def is_up(self) -> bool:
        """True if it accepts connections."""
        try:
            self.connect().close()
        except pymysql.err.MySQLError:
            return False
        return True

    def connect(self, **settings: Any) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
        """Return a new connection as root, by default with autocommit."""
        given: dict[str, Any] = {"host": HOST, "port": self.port, "user": "root"}
        given["charset"] = "utf8mb4"
        # Otherwise PyMySQL loads certificates for each connection, 80 ms.
        given |= {"autocommit": True, "ssl_disabled": True}
        return pymysql.connect(**{**given, **settings})

    def execute(self, *statements: str) -> None:
        """Run statements on a separate connection."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())


def numbers(most: int) -> str:
    """Return the text after FROM for a table ``seq`` of the numbers 1 to ``most``."""
    digit = " UNION ALL ".join(f"SELECT {n} AS d" for n in range(10))
    places = [f"p{place}.d * {10**place}" for place in range(len(str(most)))]
    tables = ", ".join(f"({digit}) AS p{place}" for place in range(len(places)))
    every = f"SELECT {' + '.join(places)} AS seq FROM {tables}"
    return f"({every} HAVING seq BETWEEN 1 AND {most} ORDER BY seq) AS seqs"


def as_root() -> list[str]:
    """Return the option that such a server needs to run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []
