"""One run of Kafka's JVM on a data directory that the caller owns: spawned, awaited, ended."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from rowtide.deploy.kafka.command import (
    broker_command,
    format_command,
    logging_properties,
    write_properties,
)
from rowtide.deploy.kafka.config import EmbeddedConfig, server_properties
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.errors import BrokerFailed
from rowtide.deploy.kafka.java import ENVIRONMENT, Runtime
from rowtide.deploy.kafka.probe import answers, is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["Node", "launch"]

PORT_ATTEMPTS = 3
POLL_S = 0.02
FORMAT_TIMEOUT_S = 60.0


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
        self.addresses = directory.choose_addresses(config.port)
        self._configure()
        if not directory.formatted():
            _format(directory, runtime)
        output = directory.logs / "jvm.log"
        if output.exists():
            os.replace(output, output.with_suffix(".log.1"))
        with output.open("wb") as file:
            self.child = TetheredProcess(
                broker_command(runtime, config, directory, options),
                folder=directory.path,
                environment=ENVIRONMENT,
                output=file,
                nice=nice,
            )

    def alive(self) -> bool:
        return self.child.returncode() is None

    def wait_until_ready(self, stopping: threading.Event) -> None:
        """Return once the broker answers; raise BrokerFailed when it will not."""
        deadline = time.monotonic() + self._config.start_timeout_s
        while not answers(self.addresses.host, self.addresses.port) or not self.alive():
            if not self.alive():
                raise BrokerFailed(f"the broker ended while starting{self._last_words()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"no answer within {self._config.start_timeout_s:g} s{self._last_words()}"
                )
            if stopping.wait(POLL_S):
                raise BrokerFailed("stopped while starting")

    def abandon(self) -> None:
        """Make sure that the process is gone."""
        if self.alive():
            self.child.kill()
        self.child.release()

    def lost_port(self) -> bool:
        """Return whether another program holds the port, once the process is gone."""
        assert not self.alive()
        return not is_free(self.addresses.host, self.addresses.port)

    def _configure(self) -> None:
        self._directory.clear_tmp()
        write_properties(
            self._directory.properties, server_properties(self._config, self.addresses)
        )
        write_properties(self._directory.logging, logging_properties(self._config))

    def _last_words(self) -> str:
        """Return the end of the broker's log and of the JVM's output, for an error message."""
        lines: deque[str] = deque(maxlen=6)
        for path in (self._directory.log_file, self._directory.logs / "jvm.log"):
            if path.exists():
                lines.extend(path.read_text(errors="replace").splitlines()[-3:])
        return f"; see {self._directory.log_file}. It said last:\n  " + "\n  ".join(lines)


def launch(make: Callable[[], Node], stopping: threading.Event) -> Node:
    """Return a node that answers; try again when a program takes its port meanwhile."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        node = make()
        try:
            node.wait_until_ready(stopping)
        except BaseException as error:
            node.abandon()
            if attempt < PORT_ATTEMPTS and isinstance(error, BrokerFailed) and node.lost_port():
                continue
            raise
        return node
    raise AssertionError("unreachable: the last attempt returns or raises")


def _format(directory: BrokerDirectory, runtime: Runtime) -> None:
    """Run Kafka's own storage tool: a second JVM (1 s), once per data directory."""
    result = subprocess.run(
        format_command(runtime, directory),
        cwd=directory.path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
    )
    if result.returncode:
        raise BrokerFailed(f"cannot format {directory.topics}: {result.stderr.strip()}")
