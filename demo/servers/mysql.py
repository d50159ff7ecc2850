"""A real MySQL on loopback, MySQL's own: one process on one folder, to be killed and started again.

Its program is the one on PATH, else Debian's of the suite sid, which alone has one, unpacked into
the cache with all that it needs (`demo/servers/debian.py`): 58 MB to fetch. The binlog is on, by
rows, with GTIDs and the columns' names, as the MySQL source asks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from demo.servers.debian import NotToBeHad, by_own_loader, locked, unpacked
from demo.servers.server import HOST, NotStarted, free_port
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


def find_program(cache_dir: Path) -> list[str]:
    """Return how MySQL's server is called, with what it must be told of its place.

    Raises NotToBeHad.
    """
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("mysqld", path=places)
    if found and "mariadb" not in _output([found, "--version"]).lower():
        return [found, "--no-defaults"]
    root = unpacked(cache_dir / "mysql", "mysql-server-core", suite=SUITE)
    usr = root / "usr"
    # Errors in words come from a folder that the program would look for where it was packed for.
    places_of = [f"--basedir={usr}", f"--lc-messages-dir={usr / 'share' / 'mysql'}"]
    return [*by_own_loader(root), str(usr / "sbin" / "mysqld"), "--no-defaults", *places_of]


class MySQL(SqlServer):
    """``options`` go to mysqld, after ours, so that they win."""

    gtids_query = "SELECT @@global.gtid_executed"

    def __init__(self, folder: Path, cache_dir: Path, *, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir
        self._options = options

    def start(self) -> None:
        """Start, on the same port as before; return when it answers. Raises NotToBeHad."""
        program = find_program(self._cache_dir)
        if not (self.folder / "rows").exists():
            self._install(program)
        self.port = self.port or free_port()
        self.launch([*program, *self._arguments()], _environment())

    def _install(self, program: list[str]) -> None:
        """Copy the system tables, in a folder of their own until they are whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = self.folder / "incoming"
        shutil.rmtree(staging, ignore_errors=True)
        # Each server makes its own number, which is in its GTIDs.
        shutil.copytree(
            _initialized(program, self._cache_dir / "mysql"),
            staging,
            ignore=shutil.ignore_patterns("auto.cnf"),
        )
        os.replace(staging, self.folder / "rows")

    def _arguments(self) -> list[str]:
        # A socket's path has 107 bytes at most: it is relative to the server's own folder.
        places = ["--datadir=" + str(self.folder / "rows"), "--socket=socket", "--pid-file=pid"]
        (self.folder / "temporary").mkdir(exist_ok=True)
        places.append("--tmpdir=" + str(self.folder / "temporary"))
        network = [f"--port={self.port}", f"--bind-address={HOST}"]
        return [*places, *network, *as_root(), *BINLOG, *SMALL, *self._options]


def _initialized(program: list[str], folder: Path) -> Path:
    """Return a folder of system tables, made once for each version: it takes seconds."""
    version = _output([*program, "--version"]).split(" Ver ")[-1].split()[0]
    made = folder / f"tables-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "tables.lock"):
        if not made.exists():
            staging = folder / "tables-incoming"
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
            users = folder / "users.sql"
            users.write_text("".join(f"{statement}\n" for statement in USERS), encoding="utf-8")
            options = ["--initialize-insecure", f"--datadir={staging}", f"--init-file={users}"]
            _output([*program, *options, *as_root(), *INITIAL])
            os.replace(staging, made)
    return made


def _output(command: list[str]) -> str:
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotStarted(f"{command[-1]}: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout


def _environment() -> Mapping[str, str]:
    return dict(os.environ)
