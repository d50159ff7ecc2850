"""One run of Kafka's JVM on a data directory that the caller owns: start, wait, end."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rowtide.deploy.kafka.command import (
    broker_command,
    format_command,
    logging_properties,
    write_properties,
)
from rowtide.deploy.kafka.config import EmbeddedConfig, server_properties
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.errors import BrokerFailed, convert_os_errors
from rowtide.deploy.kafka.java import ENVIRONMENT, Runtime
from rowtide.deploy.kafka.probe import is_answering
from rowtide.deploy.kafka.tether import TetheredProcess
from rowtide.deploy.ports import is_free

__all__ = ["Node", "launch"]

PORT_ATTEMPTS = 3
POLL_S = 0.02
FORMAT_TIMEOUT_S = 60.0

LAST_WORDS = 5
NO_COMPLAINT = re.compile(r" INFO |^\s+at |^WARNING:|\[warning\]\[aot")
"""Lines of the logs that never show why a broker ended."""


class Node:
    """A broker process at its addresses. It runs from construction until it ends."""

    def __init__(
        self,
        config: EmbeddedConfig,
        directory: BrokerDirectory,
        runtime: Runtime,
        options: Sequence[str] = (),
        *,
        nice: bool = False,
    ) -> None:
        self._config = config
        self._directory = directory
        self._jvm_log = directory.logs / "jvm.log"
        with convert_os_errors(BrokerFailed, f"cannot start the broker in {directory.path}"):
            self.addresses = directory.choose_addresses(config.port)
            self._configure()
            if not directory.is_formatted():
                _format(directory, runtime)
            self._log_start = self._turn_over_logs()
            command = broker_command(runtime, config, directory, options)
            self.child = self._spawn(command, nice=nice)

    def _configure(self) -> None:
        directory = self._directory
        directory.clear_tmp()
        write_properties(directory.properties, server_properties(self._config, self.addresses))
        write_properties(directory.logging, logging_properties(self._config))

    def _turn_over_logs(self) -> int:
        """Rename the JVM's output of the last run; return the present end of Kafka's log."""
        if self._jvm_log.exists():
            os.replace(self._jvm_log, self._jvm_log.with_suffix(".log.1"))
        log = self._directory.log_file
        return log.stat().st_size if log.exists() else 0

    def _spawn(self, command: Sequence[str], *, nice: bool) -> TetheredProcess:
        with self._jvm_log.open("wb") as output:
            return TetheredProcess(
                command,
                folder=self._directory.path,
                environment=ENVIRONMENT,
                output=output,
                nice=nice,
            )

    def is_alive(self) -> bool:
        return self.child.returncode() is None

    def wait_until_ready(self, stopping: threading.Event) -> None:
        """Return once the broker answers. Raises BrokerFailed if it ends or times out."""
        deadline = time.monotonic() + self._config.start_timeout_s
        while not is_answering(self.addresses.host, self.addresses.port) or not self.is_alive():
            if not self.is_alive():
                raise BrokerFailed(f"the broker ended while starting{self._last_words()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"no answer within {self._config.start_timeout_s:g} s{self._last_words()}"
                )
            if stopping.wait(POLL_S):
                raise BrokerFailed("stopped while starting")

    def abandon(self) -> None:
        """Make sure that the process has ended."""
        if self.is_alive():
            self.child.kill()
        self.child.release()

    def has_lost_port(self) -> bool:
        """True if another program uses the port after the process has ended."""
        assert not self.is_alive()
        return not is_free(self.addresses.host, self.addresses.port)

    def _last_words(self) -> str:
        """Return the last errors in this run's logs, for an error message."""
        text = _since(self._directory.log_file, self._log_start) + _since(self._jvm_log, 0)
        complaints = [line for line in text.splitlines() if line and not NO_COMPLAINT.search(line)]
        return "\n  ".join([f"; see {self._directory.log_file}", *complaints[-LAST_WORDS:]])


def _since(path: Path, start: int) -> str:
    """Return what was written to ``path`` after ``start``; all of it if it was rotated."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(start if start <= path.stat().st_size else 0)
        return file.read().decode(errors="replace")


def launch(make: Callable[[], Node], stopping: threading.Event) -> Node:
    """Return a node that answers; retry if another program takes its port meanwhile."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        node = make()
        try:
            node.wait_until_ready(stopping)
        except BaseException as error:
            node.abandon()
            if attempt < PORT_ATTEMPTS and isinstance(error, BrokerFailed) and node.has_lost_port():
                continue
            raise
        return node
    raise AssertionError("unreachable: the last attempt returns or raises")


def _format(directory: BrokerDirectory, runtime: Runtime) -> None:
    """Run Kafka's own storage tool: a second JVM (1 s), once per data directory."""
    command = format_command(runtime, directory)
    try:
        result = subprocess.run(
            command,
            cwd=directory.path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerFailed(f"cannot format {directory.topics}: {error}") from error
    if result.returncode:
        raise BrokerFailed(f"cannot format {directory.topics}: {result.stderr.strip()}")
