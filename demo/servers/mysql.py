"""A real MySQL on loopback, by MySQL itself: one process on one folder, which can be restarted.

Its program is the one on PATH, or that of Debian's suite sid, the only one that has it. It is
unpack into the cache with all that it needs (`demo/servers/debian.py`): a download of 58 MB. The
binlog is on, row-based, with GTIDs and column names, as the MySQL source requires.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from demo.servers.debian import NotToBeHad, by_own_loader, unpack
from demo.servers.made_once import make_once
from demo.servers.program import Program, find_installed
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
"""Without name resolution, 127.0.0.1 is not localhost."""

INITIAL = (
    # A finished folder is copied: until then nothing needs to be durable.
    *("--innodb-flush-method=nosync", "--innodb-doublewrite=0", "--skip-log-bin"),
    *("--innodb-redo-log-capacity=8M", "--secure-file-priv=NULL"),
)


def find_program(cache_dir: Path) -> Program:
    """Return MySQL's server, with the options for its location. Raises NotToBeHad."""
    found = find_installed("mysqld")
    if found and "mariadb" not in Program((found,)).output("--version").lower():
        return Program((found, "--no-defaults"))
    root = unpack(cache_dir / "mysql", "mysql-server-core", suite=SUITE)
    usr = root / "usr"
    # Otherwise the program searches its error messages in its original folder.
    places_of = (f"--basedir={usr}", f"--lc-messages-dir={usr / 'share' / 'mysql'}")
    server = str(usr / "sbin" / "mysqld")
    return Program((*by_own_loader(root), server, "--no-defaults", *places_of))


class MySQL(SqlServer):
    """MySQL's own server."""

    gtids_query = "SELECT @@global.gtid_executed"

    def start(self) -> None:
        """Start on the previous port; return when it answers. Raises NotToBeHad."""
        program = find_program(self._cache_dir)

        def copy_system_tables(rows: Path) -> None:
            tables = _system_tables(program, self._cache_dir / "mysql")
            # Each server creates its own UUID, which is part of its GTIDs.
            other = shutil.ignore_patterns("auto.cnf")
            shutil.copytree(tables, rows, ignore=other, dirs_exist_ok=True)

        self.serve(program, *BINLOG, *SMALL, system_tables=copy_system_tables)


def _system_tables(program: Program, folder: Path) -> Path:
    """Return a folder of system tables, created once per version, because it takes seconds."""
    version = program.output("--version").split(" Ver ")[-1].split()[0]

    def make(home: Path) -> None:
        # The server requires its own folder to be empty.
        users = home / "users.sql"
        users.write_text("".join(f"{statement}\n" for statement in USERS), encoding="utf-8")
        options = ("--initialize-insecure", f"--datadir={home / 'rows'}", f"--init-file={users}")
        program.output(*options, *as_root(), *INITIAL)

    return make_once(folder / f"system-{version}", make) / "rows"
