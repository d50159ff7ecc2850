"""A real Kafka Connect on loopback with a connector of Debezium: software that we did not write.

One standalone process. Java is the wheel's. The jars are downloaded once from Maven Central and
checked by the digests of ``connect-VERSION.lock.json``. Each plugin's jars are separate from the
worker's.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.servers.server import Answered, NotStarted, Server, fetch, free_port
from rowtide.deploy.kafka.jars import jars_of, resolve_jars
from rowtide.deploy.kafka.java import ENVIRONMENT, find_java

__all__ = ["Connect"]

VERSION = "4.1.0"
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG_TIMES = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class Connect(Server):
    """A worker that runs one connector of the ``plugin`` with this name in the lock."""

    start_s_max = 240.0
    poll_s = 0.2

    def __init__(
        self,
        folder: Path,
        cache_dir: Path,
        *,
        plugin: str,
        bootstrap: str,
        connector: Mapping[str, str],
    ) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir
        self._plugin = plugin
        self._bootstrap = bootstrap
        self._connector = connector

    def start(self) -> None:
        """Start, and return when the connector's task runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        jars = self._lay_out()
        self._write("worker.properties", self._worker())
        self._write("connector.properties", self._connector)
        command = [
            *(str(find_java(None).path), *JVM, *LOG_TIMES),
            *("-cp", os.pathsep.join(map(str, jars))),
            "org.apache.kafka.connect.cli.ConnectStandalone",
            *("worker.properties", "connector.properties"),
        ]
        self.launch(command, ENVIRONMENT)

    def is_up(self) -> bool:
        """True if the connector's task runs. Raises NotStarted if it has failed."""
        try:
            states = {task["state"] for task in self._status()["tasks"]}
        except (OSError, Answered, ValueError):
            return False
        if "FAILED" in states:
            raise NotStarted(f"Connect does not run: {self.last_words()}")
        return states == {"RUNNING"}

    def trace(self) -> str:
        """Return why the connector's task failed; empty while it runs."""
        tasks = self._status()["tasks"]
        return str(tasks[0].get("trace", "")) if tasks else ""

    def _lay_out(self) -> list[Path]:
        """Return the worker's jars; the plugin's are in a separate folder."""
        lock = Path(__file__).parent / f"connect-{VERSION}.lock.json"
        groups: dict[str, dict[str, str]] = json.loads(lock.read_text())
        plugins = self.folder / "plugins"
        shutil.rmtree(plugins, ignore_errors=True)
        folder = plugins / self._plugin
        folder.mkdir(parents=True)
        for jar in resolve_jars(self._cache_dir, jars_of(groups[self._plugin])):
            (folder / jar.name).symlink_to(jar)
        return resolve_jars(self._cache_dir, jars_of(groups["worker"]))

    def _worker(self) -> Mapping[str, str]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._bootstrap,
            "key.converter": converter,
            "value.converter": converter,
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": str(self.folder / "plugins"),
            # Otherwise every class of every plugin is scanned, which takes seconds.
            "plugin.discovery": "service_load",
            "listeners": self.url,
            "consumer.metadata.max.age.ms": "1000",
        }

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / name).write_text(text)

    def _status(self) -> Any:
        url = f"{self.url}/connectors/{self._connector['name']}/status"
        return json.loads(fetch(url))
