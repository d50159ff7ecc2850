"""A real MariaDB on loopback: one process on one folder, which can be killed and started again.

Its programs are those on PATH, else Debian's, unpacked into the cache (`demo/servers/debian.py`).
The binlog is on, by rows, whole and with the columns' names, as the MySQL source asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from demo.servers.debian import NotToBeHad, library_path, unpacked
from demo.servers.server import HOST, NotStarted, free_port
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


class Programs:
    """Where the server's programs are, and the environment that they run in."""

    def __init__(self, server: str, install: str, options: tuple[str, ...], path: str = "") -> None:
        self.server = server
        self.install = install
        self.options = options
        self.library_path = path

    def environment(self) -> Mapping[str, str]:
        libraries = {"LD_LIBRARY_PATH": self.library_path} if self.library_path else {}
        return {**os.environ, **libraries}


def find_programs(cache_dir: Path) -> Programs:
    """Return the programs of this machine, else Debian's from the cache. Raises NotToBeHad."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    server = shutil.which("mariadbd", path=places)
    install = shutil.which("mariadb-install-db", path=places)
    if server and install:
        return Programs(server, install, ())
    root = unpacked(cache_dir / "mariadb", "mariadb-server-core", "mariadb-client-core")
    usr = root / "usr"
    return Programs(
        str(usr / "sbin" / "mariadbd"),
        str(usr / "bin" / "mariadb-install-db"),
        (f"--basedir={usr}", f"--lc-messages-dir={usr / 'share' / 'mysql'}"),
        library_path(root, os.environ),
    )


class MariaDB(SqlServer):
    """``options`` go to mariadbd, after ours, so that they win. ``root`` has no password."""

    gtids_query = "SELECT @@gtid_binlog_pos"

    def __init__(self, folder: Path, cache_dir: Path, *, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir
        self._options = options

    def start(self) -> None:
        """Start, on the same port as before; return when it answers. Raises NotToBeHad."""
        programs = find_programs(self._cache_dir)
        if not (self.folder / "rows" / "mysql").exists():
            self._install(programs)
        self.port = self.port or free_port()
        self.launch([programs.server, *self._arguments(programs)], programs.environment())

    def _install(self, programs: Programs) -> None:
        """Make the system tables, in a folder of their own until they are whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = self.folder / "incoming"
        shutil.rmtree(staging, ignore_errors=True)
        # The script knows of our options --basedir alone.
        options = (*programs.options[:1], *as_root())
        done = subprocess.run(
            [programs.install, "--no-defaults", f"--datadir={staging}", *options, *INSTALL],
            env=programs.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotStarted(f"mariadb-install-db failed: {(done.stdout + done.stderr)[-500:]}")
        os.replace(staging, self.folder / "rows")

    def _arguments(self, programs: Programs) -> list[str]:
        # A socket's path has 107 bytes at most, which a test's folder may be near: it is relative
        # to the server's own folder.
        places = ["--datadir=" + str(self.folder / "rows"), "--socket=socket", "--pid-file=pid"]
        # A server that starts removes what it finds of temporary tables, of other servers too.
        (self.folder / "temporary").mkdir(exist_ok=True)
        places.append("--tmpdir=" + str(self.folder / "temporary"))
        network = [f"--port={self.port}", f"--bind-address={HOST}"]
        options = [*programs.options, *as_root(), *BINLOG, *SMALL, *self._options]
        return ["--no-defaults", *places, *network, *options]
