"""One embedded broker: started, asked whether it lives, restarted, stopped.

Blocking by design: a start takes a second and more, so an event loop calls it in a thread (see
``supervisor``). ``stop`` may be called from any thread, also during a start, which it ends.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from rowtide.deploy.kafka.command import (
    broker_command,
    format_command,
    logging_properties,
    write_properties,
)
from rowtide.deploy.kafka.config import Addresses, EmbeddedConfig, server_properties
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.errors import BrokerFailed
from rowtide.deploy.kafka.jars import Progress, locked_jars, resolve_jars
from rowtide.deploy.kafka.java import ENVIRONMENT, Java, find_java
from rowtide.deploy.kafka.orphan import end_orphan
from rowtide.deploy.kafka.probe import answers, is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["EmbeddedBroker"]

logger = logging.getLogger(__name__)

PORT_ATTEMPTS = 3
POLL_S = 0.02
STOP_TIMEOUT_S = 30.0
FORMAT_TIMEOUT_S = 60.0


class EmbeddedBroker:
    """A Kafka broker that is a child of this process and owns ``config.data_dir``."""

    def __init__(self, config: EmbeddedConfig, progress: Progress | None = None) -> None:
        self.config = config
        self._progress = progress
        self._directory = BrokerDirectory(config.data_dir)
        self._changing = threading.Lock()  # Held while the child is started or ended.
        self._stopping = threading.Event()
        self._child: TetheredProcess | None = None
        self._addresses: Addresses | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients. A restart changes it when the port was lost meanwhile."""
        assert self._addresses is not None, "the broker was never started"
        return self._addresses.bootstrap

    @property
    def pid(self) -> int | None:
        """Process id of the broker, also after its end; None before the first start."""
        return None if self._child is None else self._child.pid

    @property
    def log_file(self) -> Path:
        """The newest of the broker's own log files."""
        return self._directory.logs / "kafka.log"

    def alive(self) -> bool:
        """Return whether the broker's process runs. One system call."""
        return self._child is not None and self._child.returncode() is None

    def start(self) -> None:
        """Own the directory and return once the broker answers; on failure nothing is left."""
        self._stopping.clear()
        with self._changing:
            self._directory.acquire()
            try:
                self._launch()
            except BaseException:
                self._abandon()
                self._directory.release()
                raise

    def restart(self) -> None:
        """Start the broker again after it ended, or end it first. The directory stays owned."""
        with self._changing:
            assert self._directory.owned, "restart of a broker that was not started"
            self._abandon()
            self._launch()

    def stop(self) -> None:
        """End the broker in good order and let go of the directory. Nothing to do is no error."""
        self._stopping.set()  # A start in another thread gives up and lets go of the lock.
        with self._changing:
            if self._child is not None and self.alive():
                status = self._child.terminate(STOP_TIMEOUT_S)
                logger.info("the broker (pid %d) ended with status %d", self._child.pid, status)
            self._abandon()
            self._directory.release()

    def kill(self) -> None:
        """End the broker with SIGKILL, as a fault. The directory stays owned, for ``restart``."""
        assert self._child is not None
        self._child.kill()

    def _launch(self) -> None:
        """Bring up the child, on another port if a program took ours meanwhile."""
        java = find_java(self.config.java)
        jars = resolve_jars(self.config.cache_dir, locked_jars(), self._progress)
        if orphan := end_orphan(self._directory.properties):
            logger.warning("ended pid %d, a broker whose rowtide was killed", orphan)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._addresses = self._directory.choose_addresses(self.config.port)
            self._spawn(java, jars)
            try:
                return self._wait_until_ready()
            except BrokerFailed:
                self._abandon()
                port_lost = not is_free(self._addresses.host, self._addresses.port)
                if attempt == PORT_ATTEMPTS or not port_lost:
                    raise

    def _spawn(self, java: Java, jars: list[Path]) -> None:
        self._configure()
        if not self._directory.formatted():
            self._format(java, jars)
        output = self._directory.logs / "jvm.log"
        if output.exists():
            os.replace(output, output.with_suffix(".log.1"))
        with output.open("wb") as file:
            command = broker_command(java, jars, self.config, self._directory)
            self._child = TetheredProcess(
                command, folder=self._directory.path, environment=ENVIRONMENT, output=file
            )

    def _configure(self) -> None:
        assert self._addresses is not None
        directory, config = self._directory, self.config
        directory.clear_tmp()
        server = server_properties(config, self._addresses)
        write_properties(directory.properties, server)
        write_properties(directory.logging, logging_properties(config))

    def _format(self, java: Java, jars: list[Path]) -> None:
        """Run Kafka's own storage tool: a second JVM (1 s), once per data directory."""
        command = format_command(java, jars, self._directory)
        result = subprocess.run(
            command,
            cwd=self._directory.path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
        )
        if result.returncode:
            raise BrokerFailed(f"cannot format {self._directory.topics}: {result.stderr.strip()}")

    def _wait_until_ready(self) -> None:
        assert self._addresses is not None
        deadline = time.monotonic() + self.config.start_timeout_s
        while not answers(self._addresses.host, self._addresses.port) or not self.alive():
            if not self.alive():
                raise BrokerFailed(f"the broker ended while starting{self._last_words()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"no answer within {self.config.start_timeout_s:g} s{self._last_words()}"
                )
            if self._stopping.wait(POLL_S):
                raise BrokerFailed("stopped while starting")

    def _abandon(self) -> None:
        """Make sure that no child is left."""
        if self._child is not None:
            if self.alive():
                self._child.kill()
            self._child.release()

    def _last_words(self) -> str:
        """Return the end of the broker's log and of the JVM's output, for an error message."""
        lines: deque[str] = deque(maxlen=6)
        for path in (self.log_file, self._directory.logs / "jvm.log"):
            if path.exists():
                lines.extend(path.read_text(errors="replace").splitlines()[-3:])
        return f"; see {self.log_file}. It said last:\n  " + "\n  ".join(lines)
