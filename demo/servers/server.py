"""One process of a real server on loopback, which can be stopped, killed and restarted.

It works in its own folder, which also has its output, and does not outlive this process.
"""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rowtide.deploy.kafka.tether import TetheredProcess
from rowtide.deploy.ports import free_ports

__all__ = [
    "HOST",
    "Answered",
    "NotStarted",
    "Server",
    "children",
    "fetch",
    "free_port",
    "has_ended",
    "not_root",
]

HOST = "127.0.0.1"
STOP_S_MAX = 60.0


class NotStarted(Exception):
    """The server did not start; the text has its last output."""


class Answered(Exception):
    """A server's error answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Server:
    """A server in ``folder``. As a context manager it is started, and killed at the end.

    A subclass defines how to start it (``start``, which calls ``launch``) and when it is up.
    """

    start_s_max = 60.0
    poll_s = 0.02

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.port = 0
        self._child: TetheredProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self) -> None:
        """Start on the previous port; return when it answers. Raises NotStarted."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """True if it is up."""
        raise NotImplementedError

    def stop(self) -> None:
        """Shut down."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate(STOP_S_MAX)

    def kill(self) -> None:
        """Kill the server, like a power cut, except that the disk's cache survives."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def last_words(self, count: int = 30) -> str:
        """Return the end of the server's output."""
        text = (self.folder / "output.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-count:])

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command in the folder until it answers. Kill it if it does not."""
        assert self._child is None, "already started"
        with (self.folder / "output.log").open("ab") as output:
            child = self._child = TetheredProcess(
                command, folder=self.folder, environment=environment, output=output
            )
        deadline = time.monotonic() + self.start_s_max
        try:
            while not self.is_up():
                if child.returncode() is not None or time.monotonic() > deadline:
                    kind = type(self).__name__
                    raise NotStarted(f"{kind} failed to start: {self.last_words()}")
                time.sleep(self.poll_s)
        except BaseException:
            self.kill()
            raise


def fetch(request: str | urllib.request.Request, *, timeout_s: float = 60.0) -> bytes:
    """Return the answer to a request. Raises Answered for an error, OSError without answer."""
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            raise Answered(error.code, error.read().decode(errors="replace")) from None
    return content


def free_port(*, other: int = 0) -> int:
    """Return a port on which no program listens."""
    return next(port for port in free_ports(HOST) if port != other)


def children(pid: int) -> list[int]:
    """Return the child processes of a process, if the system has /proc."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        pass  # It ended meanwhile, or there is no /proc.
    return found


def has_ended(pid: int) -> bool:
    """True if a process has ended, even if no process has waited for it.

    That happens if pid 1 of a container does not reap.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return Path("/proc").is_dir()  # It ended meanwhile, if there is a /proc.
    return status.rpartition(")")[2].split()[0] == "Z"


def not_root(user: int) -> Sequence[str]:
    """Return the words that run a command as another user, if this is root.

    Some servers refuse to run as root. The command keeps root's right to every file, because its
    files may be in a private folder. Without the bit, access(2) would ignore that right.
    """
    if os.geteuid() != 0:
        return ()
    return (
        *("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
        *("--securebits=+no_setuid_fixup", "--inh-caps=+dac_override"),
        "--ambient-caps=+dac_override",
    )
