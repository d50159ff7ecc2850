"""A real OpenSearch on loopback: one process on one folder, which can be killed and started again.

Java is the wheel's, the jars are fetched once. It has no users and no TLS: what guards a server
is a plugin of the distribution. Without replicas and with two cores it is small (300 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.servers.opensearch_folder import VERSION, laid_out
from demo.servers.server import HOST, Answered, Server, fetched, free_port, not_root
from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.java import ENVIRONMENT, Runtime, find_java

__all__ = ["HOST", "VERSION", "OpenSearch"]

CREATE_S_MAX = 120.0

JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=96m"),
    *("-XX:-UsePerfData", "-Xms384m", "-Xmx384m"),
    *("--enable-native-access=ALL-UNNAMED", "--add-modules=jdk.unsupported"),
    # The wheel's Java has no word breaks for Thai, which the analyzers insist on; ICU's jar has.
    "-Djava.locale.providers=CLDR,SPI",
    *("-Djava.awt.headless=true", "-Dfile.encoding=UTF-8"),
    *("-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true"),
    *("-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true"),
    *("-Dopensearch.networkaddress.cache.ttl=60", "-Dopensearch.distribution.type=tar"),
    "-Dopensearch.bundled_jdk=false",
)

NOBODY = 65534
"""OpenSearch refuses to be root."""

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


class OpenSearch(Server):
    """``settings`` go into its configuration, beside ours."""

    start_s_max = 180.0
    poll_s = 0.05

    def __init__(
        self, folder: Path, cache_dir: Path, *, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(folder)
        self._transport_port = 0
        self._cache_dir = cache_dir
        self._settings = settings or {}

    def start(self) -> None:
        """Start, and return when it answers; on the same port as before.

        Raises JarsUnavailable, NotStarted.
        """
        self.port = self.port or free_port()
        self._transport_port = self._transport_port or free_port(other=self.port)
        home, runtime, cache = self._runtime()
        self._configure()
        self.launch(self._command(home, runtime, cache), ENVIRONMENT)

    def answers(self) -> bool:
        """Say whether its index can be written."""
        try:
            return self.call("GET", "/_cluster/health")["status"] in ("green", "yellow")
        except (OSError, Answered):
            return False

    def stop(self) -> None:
        """Shut it down in order; the first time on a machine, make the cache of later starts."""
        started = self._child is not None
        super().stop()
        if started:
            self._create_cache()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return what a request is answered, as JSON. Raises Answered."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return json.loads(fetched(request))

    def last_words(self, count: int = 30) -> str:
        """Return the end of what the server printed and logged."""
        files = [self.folder / name for name in ("output.log", "server.log")]
        text = "".join(file.read_text(errors="replace") for file in files if file.exists())
        return "\n".join(text.splitlines()[-count:])

    def _runtime(self) -> tuple[Path, Runtime, AotCache]:
        home = laid_out(self._cache_dir)
        jars = tuple(sorted((home / "lib").glob("*.jar")))
        runtime = Runtime(find_java(None), jars, JVM)
        return home, runtime, AotCache.of(self._cache_dir / "opensearch", runtime)

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
        (config / "opensearch.yml").write_text("".join(lines), encoding="utf-8")
        (config / "log4j2.properties").write_text(LOGGING)
        (config / "jvm.options").write_text("")

    def _command(self, home: Path, runtime: Runtime, cache: AotCache) -> list[str]:
        aot = [f"-XX:AOTCache={cache.path}"] if cache.made else cache.record(self._record)
        return [
            *not_root(NOBODY),
            *_java(runtime, aot),
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dopensearch.path.home={home}",
            f"-Dopensearch.path.conf={self.folder / 'config'}",
            "org.opensearch.bootstrap.OpenSearch",
        ]

    @property
    def _record(self) -> Path:
        return self.folder / "record.aotconf"

    def _create_cache(self) -> None:
        """Make the AOT cache of what the run that ended has recorded.

        The server may not start a program, so Java can't do this when it ends. A failure is no more
        than slow starts.
        """
        _, runtime, cache = self._runtime()
        if cache.made or not self._record.exists():
            return
        cache.path.parent.mkdir(parents=True, exist_ok=True)
        draft = cache.path.with_suffix(f".{os.getpid()}")
        try:
            command = _java(runtime, cache.create(self._record, draft))
            subprocess.run(
                command, env=ENVIRONMENT, capture_output=True, check=False, timeout=CREATE_S_MAX
            )
            if draft.exists():
                cache.install(draft)
        except subprocess.TimeoutExpired:
            pass
        finally:
            draft.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)


def _java(runtime: Runtime, options: list[str]) -> list[str]:
    path = os.pathsep.join(map(str, runtime.jars))
    return [str(runtime.java.path), *runtime.options, *options, "-cp", path]
