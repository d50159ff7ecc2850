"""A real search server on loopback, of either distribution: a process on its own folder.

It can be killed and restarted on the same port. It has no users and no TLS, which a plugin of the
distributions adds. Without replicas and with two cores it is small (300 MB).
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from demo.servers.search_folder import Distribution, lay_out
from demo.servers.server import HOST, Answered, Server, fetch, free_port, not_root
from rowtide.deploy.kafka.java import ENVIRONMENT, Java, Runtime

__all__ = ["SearchServer", "java_of", "runtime_of"]

JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=96m"),
    *("-XX:-UsePerfData", "-Xms384m", "-Xmx384m"),
    *("--enable-native-access=ALL-UNNAMED", "--add-modules=jdk.unsupported"),
    *("-Djava.awt.headless=true", "-Dfile.encoding=UTF-8"),
    *("-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true"),
    *("-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true"),
)

NOBODY = 65534
"""Both servers refuse to run as root."""

LOGGING = """
status = error
appender.f.type = File
appender.f.name = f
appender.f.fileName = server.log
appender.f.layout.type = PatternLayout
appender.f.layout.pattern = %d{ISO8601} %p %c{1.}: %m%n
rootLogger.level = info
rootLogger.appenderRef.f.ref = f
"""


class SearchServer(Server):
    """``settings`` are added to its configuration.

    A subclass defines its distribution, and the Java command with its options.
    """

    start_s_max = 180.0
    poll_s = 0.05
    distribution: ClassVar[Distribution]

    def __init__(
        self, folder: Path, cache_dir: Path, *, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(folder)
        self._transport_port = 0
        self._cache_dir = cache_dir
        self._settings = settings or {}

    def start(self) -> None:
        """Start on the previous port; return when it answers.

        Raises JarsUnavailable, NotStarted.
        """
        self.port = self.port or free_port()
        self._transport_port = self._transport_port or free_port(other=self.port)
        home = lay_out(self._cache_dir, self.distribution)
        self._configure()
        temporary = str(self.folder / "tmp")
        command = [
            *not_root(NOBODY),
            *self.java(home),
            f"-Djava.io.tmpdir={temporary}",
            *(f"-D{name}" for name in self._properties(home)),
            self.distribution.main,
        ]
        # Native calls need executable memory, from a folder that the server can write to.
        self.launch(command, {**ENVIRONMENT, "LIBFFI_TMPDIR": temporary})

    def java(self, home: Path) -> Sequence[str]:
        """Return the command that runs Java on the jars of a folder, without the main class."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """True if its index can be written."""
        try:
            return self.call("GET", "/_cluster/health")["status"] in ("green", "yellow")
        except (OSError, Answered):
            return False

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON answer to a request. Raises Answered."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return json.loads(fetch(request))

    def last_words(self, count: int = 30) -> str:
        """Return the end of the server's output and log."""
        files = [self.folder / name for name in ("output.log", "server.log")]
        text = "".join(file.read_text(errors="replace") for file in files if file.exists())
        return "\n".join(text.splitlines()[-count:])

    def _properties(self, home: Path) -> list[str]:
        given = {
            "networkaddress.cache.ttl": 60,
            "distribution.type": "tar",
            "bundled_jdk": "false",
            "path.home": home,
            "path.conf": self.folder / "config",
        }
        return [f"{self.distribution.prefix}.{name}={value}" for name, value in given.items()]

    def _configure(self) -> None:
        config = self.folder / "config"
        for folder in (config, self.folder / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, str | int] = {
            "cluster.name": "rowtide",
            "node.name": "one",
            "discovery.type": "single-node",
            "network.host": HOST,
            "http.port": self.port,
            "transport.port": self._transport_port,
            "path.data": str(self.folder / "rows"),
            "path.logs": str(self.folder / "logs"),
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "node.processors": 2,
            **self._settings,
        }
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
        (config / f"{self.distribution.name}.yml").write_text("".join(lines), encoding="utf-8")
        (config / "log4j2.properties").write_text(LOGGING)
        (config / "jvm.options").write_text("")


def runtime_of(home: Path, java: Java, *options: str) -> Runtime:
    """Return Java with the jars of a server's folder, the common options and ``options``."""
    return Runtime(java, tuple(sorted((home / "lib").glob("*.jar"))), (*JVM, *options))


def java_of(runtime: Runtime, options: Sequence[str]) -> list[str]:
    """Return the command that runs Java with more options."""
    path = os.pathsep.join(map(str, runtime.jars))
    return [str(runtime.java.path), *runtime.options, *options, "-cp", path]
