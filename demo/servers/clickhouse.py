"""A real ClickHouse on loopback: one process on one folder, which can be killed and started again.

The program is the one on PATH, else Debian's (18.16), unpacked into the cache. It answers HTTP
alone, to this machine alone, as the user ``default`` without a password.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from demo.servers.debian import NotToBeHad, library_path, unpacked
from rowtide.deploy.kafka.probe import is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["HOST", "Clickhouse", "NotToBeHad", "Program", "find_program"]

HOST = "127.0.0.1"
# Below the ephemeral ports, so that no client's own port is in the way of a restart.
PORTS = range(20_000, 32_768)
START_S_MAX = 60.0
STOP_S_MAX = 60.0
ASK_S_MAX = 30.0
POLL_S = 0.02

# "yandex" is the root element that every version reads.
CONFIG = """<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <listen_host>{host}</listen_host>
  <http_port>{port}</http_port>
  <path>{folder}/store/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <user_files_path>{folder}/user_files/</user_files_path>
  <users_config>{folder}/users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>
"""
USERS = """<yandex>
  <profiles><default>{profile}</default></profiles>
  <quotas><default></default></quotas>
  <users>
    <default>
      <password></password>
      <networks><ip>{host}</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
    </default>
  </users>
</yandex>
"""


class Program(NamedTuple):
    """What starts the server, and where its libraries are (empty: where this machine has them)."""

    command: tuple[str, ...]
    library_path: str = ""

    def environment(self) -> Mapping[str, str]:
        libraries = {"LD_LIBRARY_PATH": self.library_path} if self.library_path else {}
        return {**os.environ, **libraries}


def find_program(cache_dir: Path) -> Program:
    """Return the program of this machine, else Debian's from the cache. Raises NotToBeHad."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    server = shutil.which("clickhouse-server", path=places)
    if server:
        return Program((server,))
    root = unpacked(cache_dir / "clickhouse", "clickhouse-server")
    # One of its libraries, pcre, is in /lib.
    libraries = [library_path(root, os.environ), *map(str, (root / "lib").glob("*-linux-gnu"))]
    return Program((str(root / "usr/sbin/clickhouse-server"),), os.pathsep.join(libraries))


class Clickhouse:
    """A server in ``folder``. ``profile`` are settings of every query.

    As a context manager it is started, and killed at the end.
    """

    def __init__(
        self, folder: Path, cache_dir: Path, *, profile: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder.resolve()
        self.port = 0
        self._cache_dir = cache_dir
        self._profile = profile or {}
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
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self) -> None:
        """Start, and return when it answers; on the same port as before. Raises NotToBeHad."""
        assert self._child is None, "already started"
        program = find_program(self._cache_dir)
        self.port = self.port or _free_port()
        self._configure()
        with (self.folder / "output.log").open("ab") as output:
            self._child = TetheredProcess(
                [*program.command, f"--config-file={self.folder / 'config.xml'}"],
                folder=self.folder,
                environment=program.environment(),
                output=output,
            )
        self._wait_until_it_answers(self._child)

    def stop(self) -> None:
        """Shut it down in order."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate(STOP_S_MAX)

    def kill(self) -> None:
        """End it as a power cut would."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def ask(self, query: str) -> str:
        """Return the answer to a query, as text."""
        request = urllib.request.Request(self.url, data=query.encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ASK_S_MAX) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()) from None
        return text

    def last_words(self, count: int = 30) -> str:
        """Return the end of what the server printed."""
        text = (self.folder / "output.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-count:])

    def _configure(self) -> None:
        for name in ("store", "tmp", "user_files"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        profile = "".join(f"<{name}>{value}</{name}>" for name, value in self._profile.items())
        config = CONFIG.format(host=HOST, port=self.port, folder=self.folder)
        (self.folder / "config.xml").write_text(config)
        (self.folder / "users.xml").write_text(USERS.format(host=HOST, profile=profile))

    def _wait_until_it_answers(self, child: TetheredProcess) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                self.ask("SELECT 1")
            except (OSError, RuntimeError) as error:
                if child.returncode() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise NotToBeHad(f"ClickHouse does not start: {self.last_words()}") from error
                time.sleep(POLL_S)
            else:
                return


def _free_port() -> int:
    while True:
        port = random.choice(PORTS)
        if is_free(HOST, port):
            return port
