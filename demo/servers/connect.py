"""A real Kafka Connect on loopback with Debezium's JDBC sink: a reader that nobody here wrote.

One standalone process. Java is the wheel's, the jars are fetched once from Maven Central and held
to the digests of ``connect-VERSION.lock.json``, those of the plugin apart from the worker's.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rowtide.deploy.kafka.jars import Jar, resolve_jars
from rowtide.deploy.kafka.java import ENVIRONMENT, find_java
from rowtide.deploy.kafka.probe import is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["Connect", "ConnectFailed"]

VERSION = "4.1.0"
HOST = "127.0.0.1"
# Below the ephemeral ports, so that no client's own port is in the way of a restart.
PORTS = range(20_000, 32_768)
START_S_MAX = 240.0
POLL_S = 0.2
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ConnectFailed(Exception):
    """Connect, or its connector, did not start."""


class Connect:
    """A worker in ``folder`` that runs one connector; started and killed as a context manager."""

    def __init__(
        self, folder: Path, cache_dir: Path, *, bootstrap: str, connector: Mapping[str, str]
    ) -> None:
        self._folder = folder.resolve()
        self._cache_dir = cache_dir
        self._bootstrap = bootstrap
        self._connector = connector
        self._port = 0
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

    def start(self) -> None:
        """Start, and return when the connector's task runs."""
        assert self._child is None, "already started"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._port = next(p for p in random.sample(PORTS, len(PORTS)) if is_free(HOST, p))
        jars = self._lay_out()
        self._write("worker.properties", self._worker())
        self._write("connector.properties", self._connector)
        with (self._folder / "output.log").open("ab") as output:
            self._child = TetheredProcess(
                [
                    *(str(find_java(None).path), *JVM),
                    *("-cp", os.pathsep.join(map(str, jars))),
                    "org.apache.kafka.connect.cli.ConnectStandalone",
                    *("worker.properties", "connector.properties"),
                ],
                folder=self._folder,
                environment=ENVIRONMENT,
                output=output,
            )
        self._wait_until_it_runs(self._child)

    def kill(self) -> None:
        """End it as a power cut would."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def trace(self) -> str:
        """Return why the connector's task failed; empty while it runs."""
        tasks = self._status()["tasks"]
        return str(tasks[0].get("trace", "")) if tasks else ""

    def last_words(self, count: int = 40) -> str:
        """Return the end of what the worker printed."""
        text = (self._folder / "output.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-count:])

    def _lay_out(self) -> list[Path]:
        """Return the worker's jars; the plugin's stand in a folder of their own."""
        lock = Path(__file__).parent / f"connect-{VERSION}.lock.json"
        groups: dict[str, dict[str, str]] = json.loads(lock.read_text())
        jars = {
            group: [_jar(coordinate, sha256) for coordinate, sha256 in found.items()]
            for group, found in groups.items()
        }
        worker = resolve_jars(self._cache_dir, jars.pop("worker"))
        plugins = self._folder / "plugins"
        shutil.rmtree(plugins, ignore_errors=True)
        for group, found in jars.items():
            (plugins / group).mkdir(parents=True)
            for jar in resolve_jars(self._cache_dir, found):
                (plugins / group / jar.name).symlink_to(jar)
        return worker

    def _worker(self) -> Mapping[str, str]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._bootstrap,
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
            "offset.storage.file.filename": str(self._folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": str(self._folder / "plugins"),
            "plugin.discovery": "hybrid_warn",
            "listeners": f"http://{HOST}:{self._port}",
            "consumer.metadata.max.age.ms": "1000",
        }

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._folder / name).write_text(text)

    def _status(self) -> Any:
        url = f"http://{HOST}:{self._port}/connectors/{self._connector['name']}/status"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def _wait_until_it_runs(self, child: TetheredProcess) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                tasks = self._status()["tasks"]
            except (OSError, urllib.error.URLError, ValueError):
                tasks = []
            states = {task["state"] for task in tasks}
            if states == {"RUNNING"}:
                return
            ended = child.returncode() is not None
            if ended or "FAILED" in states or time.monotonic() > deadline:
                words = self.last_words()
                self.kill()
                raise ConnectFailed(f"Connect does not run: {words}")
            time.sleep(POLL_S)


def _jar(coordinate: str, sha256: str) -> Jar:
    group, artifact, version = coordinate.split(":")
    return Jar(group, artifact, version, sha256)
