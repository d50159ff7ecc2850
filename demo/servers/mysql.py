"""A real MySQL on loopback, MySQL's own: one process on one folder, to be killed and started again.

Its program is the one on PATH, else Debian's of the suite sid, which alone has one, unpacked into
the cache with all that it needs (`demo/servers/debian.py`): 58 MB to fetch. The binlog is on, by
rows, with GTIDs and the columns' names, as the MySQL source asks for.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from demo.servers.debian import NotToBeHad, by_own_loader, unpacked
from demo.servers.made_once import made_once
from demo.servers.program import Program, installed
from demo.servers.server import HOST, NotStarted
from demo.servers.sql_server import QUICK, SqlServer, as_root

__all__ = ["HOST", "QUICK", "MySQL", "NotStarted", "NotToBeHad", "find_program"]

SUITE = "sid"
BINLOG = (
    *("--server-id=1", "--log-bin=binlog", "--binlog-row-metadata=FULL", "--sync-binlog=1"),
    *("--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
)
SMALL = (
    *("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=16M", "--performance-schema=0"),
    *("--skip-name-resolve", "--mysqlx=0", "--secure-file-priv=NULL"),
    "--max-allowed-packet=16M",
)
USERS = (
    "CREATE USER root@'127.0.0.1';",
    "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;",
)
"""Without looking names up, an address is no localhost."""

INITIAL = (
    # What is made here is copied when it is whole: until then nothing needs to be durable.
    *("--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--skip-log-bin"),
    *("--innodb-redo-log-capacity=8M", "--secure-file-priv=NULL"),
)


def find_program(cache_dir: Path) -> Program:
    """Return MySQL's server, with what it must be told of its place. Raises NotToBeHad."""
    found = installed("mysqld")
    if found and "mariadb" not in Program((found,)).output("--version").lower():
        return Program((found, "--no-defaults"))
    root = unpacked(cache_dir / "mysql", "mysql-server-core", suite=SUITE)
    usr = root / "usr"
    # Errors in words come from a folder that the program would look for where it was packed for.
    places_of = (f"--basedir={usr}", f"--lc-messages-dir={usr / 'share' / 'mysql'}")
    server = str(usr / "sbin" / "mysqld")
    return Program((*by_own_loader(root), server, "--no-defaults", *places_of))


class MySQL(SqlServer):
    """MySQL's own server."""

    gtids_query = "SELECT @@global.gtid_executed"

    def start(self) -> None:
        """Start, on the same port as before; return when it answers. Raises NotToBeHad."""
        program = find_program(self._cache_dir)

        def copy_system_tables(rows: Path) -> None:
            tables = _system_tables(program, self._cache_dir / "mysql")
            # Each server makes its own number, which is in its GTIDs.
            other = shutil.ignore_patterns("auto.cnf")
            shutil.copytree(tables, rows, ignore=other, dirs_exist_ok=True)

        self.serve(program, *BINLOG, *SMALL, system_tables=copy_system_tables)


def _system_tables(program: Program, folder: Path) -> Path:
    """Return a folder of system tables, made once for each version: it takes seconds."""
    version = program.output("--version").split(" Ver ")[-1].split()[0]

    def make(home: Path) -> None:
        # The server wants its own folder to be empty.
        users = home / "users.sql"
        users.write_text("".join(f"{statement}\n" for statement in USERS), encoding="utf-8")
        options = ("--initialize-insecure", f"--datadir={home / 'rows'}", f"--init-file={users}")
        program.output(*options, *as_root(), *INITIAL)

    return made_once(folder / f"system-{version}", make) / "rows"
