"""A real MariaDB on loopback: one process on one folder, which can be killed and restarted.

Its programs are those on PATH, or Debian's, unpack into the cache (`demo/servers/debian.py`). The
binlog is on, row-based, with whole rows and column names, as the MySQL source requires.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from demo.servers.debian import NotToBeHad, library_path, unpack
from demo.servers.made_once import make_once
from demo.servers.program import Program, find_installed
from demo.servers.server import HOST, NotStarted
from demo.servers.sql_server import QUICK, SqlServer, as_root

__all__ = ["HOST", "QUICK", "MariaDB", "NotStarted", "NotToBeHad", "Programs", "find_programs"]

BINLOG = (
    *("--server-id=1", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL"),
    *("--binlog-row-metadata=FULL", "--gtid-strict-mode=1", "--sync-binlog=1"),
)
SMALL = (
    *("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--performance-schema=0"),
    *("--skip-name-resolve", "--character-set-server=utf8mb4"),
)

INSTALL = (
    *("--auth-root-authentication-method=normal", "--skip-test-db"),
    "--innodb-log-file-size=16M",
)


class Programs(NamedTuple):
    """The server, and the script that creates its system tables."""

    server: Program
    install: Program


def find_programs(cache_dir: Path) -> Programs:
    """Return this machine's programs, or Debian's from the cache. Raises NotToBeHad."""
    server, install = find_installed("mariadbd"), find_installed("mariadb-install-db")
    if server and install:
        return Programs(Program((server, "--no-defaults")), Program((install, "--no-defaults")))
    root = unpack(cache_dir / "mariadb", "mariadb-server-core", "mariadb-client-core")
    usr, libraries = root / "usr", library_path(root, os.environ)
    # The script only knows this option.
    start = ("--no-defaults", f"--basedir={usr}")
    messages = f"--lc-messages-dir={usr / 'share' / 'mysql'}"
    return Programs(
        Program((str(usr / "sbin" / "mariadbd"), *start, messages), libraries),
        Program((str(usr / "bin" / "mariadb-install-db"), *start), libraries),
    )


class MariaDB(SqlServer):
    """MariaDB's server."""

    gtids_query = "SELECT @@gtid_binlog_pos"

    def start(self) -> None:
        """Start on the previous port; return when it answers. Raises NotToBeHad."""
        programs = find_programs(self._cache_dir)

        def copy_system_tables(rows: Path) -> None:
            tables = _system_tables(programs, self._cache_dir / "mariadb")
            shutil.copytree(tables, rows, dirs_exist_ok=True)

        self.serve(programs.server, *BINLOG, *SMALL, system_tables=copy_system_tables)


def _system_tables(programs: Programs, folder: Path) -> Path:
    """Return a folder of system tables, created once per version, because it takes seconds."""
    version = programs.server.output("--version").split(" Ver ")[-1].split()[0]

    def make(home: Path) -> None:
        programs.install.output(f"--datadir={home / 'rows'}", *as_root(), *INSTALL)

    return make_once(folder / f"system-{version}", make) / "rows"
