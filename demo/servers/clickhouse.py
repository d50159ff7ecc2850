"""A real ClickHouse on loopback: one process on one folder, which can be killed and restarted.

The program is the one on PATH, or Debian's (18.16), unpack into the cache. It answers HTTP only,
to this machine only, as the user ``default`` without a password.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from demo.servers.debian import NotToBeHad, library_path, unpack
from demo.servers.program import Program, find_installed
from demo.servers.server import HOST, Answered, Server, fetch, free_port

__all__ = ["HOST", "Clickhouse", "NotToBeHad", "find_program"]

ASK_S_MAX = 30.0

# Every version reads the root element "yandex".
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


def find_program(cache_dir: Path) -> Program:
    """Return this machine's program, or Debian's from the cache. Raises NotToBeHad."""
    server = find_installed("clickhouse-server")
    if server:
        return Program((server,))
    root = unpack(cache_dir / "clickhouse", "clickhouse-server")
    # One of its libraries, pcre, is in /lib.
    libraries = [library_path(root, os.environ), *map(str, (root / "lib").glob("*-linux-gnu"))]
    return Program((str(root / "usr/sbin/clickhouse-server"),), os.pathsep.join(libraries))


class Clickhouse(Server):
    """``profile`` has settings of every query."""

    def __init__(
        self, folder: Path, cache_dir: Path, *, profile: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir
        self._profile = profile or {}

    def start(self) -> None:
        """Start on the previous port; return when it answers. Raises NotToBeHad."""
        program = find_program(self._cache_dir)
        self.port = self.port or free_port()
        self._configure()
        command = [*program.command, f"--config-file={self.folder / 'config.xml'}"]
        self.launch(command, program.environment())

    def is_up(self) -> bool:
        """True if it answers queries."""
        try:
            self.ask("SELECT 1")
        except (OSError, Answered):
            return False
        return True

    def ask(self, query: str) -> str:
        """Return the answer to a query, as text."""
        request = urllib.request.Request(self.url, data=query.encode(), method="POST")
        return fetch(request, timeout_s=ASK_S_MAX).decode()

    def _configure(self) -> None:
        for name in ("store", "tmp", "user_files"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        profile = "".join(f"<{name}>{value}</{name}>" for name, value in self._profile.items())
        config = CONFIG.format(host=HOST, port=self.port, folder=self.folder)
        (self.folder / "config.xml").write_text(config)
        (self.folder / "users.xml").write_text(USERS.format(host=HOST, profile=profile))
