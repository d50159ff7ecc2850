"""One embedded broker: start, check, restart, stop.

It blocks by design: a start takes a second or more, so an event loop calls it in a thread (see
``supervision``). ``stop`` may be called from any thread, also during a start, which it aborts.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Self

from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.errors import BrokerFailed
from rowtide.deploy.kafka.jars import Progress, read_lock, resolve_jars
from rowtide.deploy.kafka.java import Runtime, find_java
from rowtide.deploy.kafka.node import Node, launch
from rowtide.deploy.kafka.orphan import end_orphan
from rowtide.deploy.kafka.training import AotTraining

__all__ = ["EmbeddedBroker", "prepare"]

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0


class EmbeddedBroker:
    """A Kafka broker that is a child of this process and owns ``config.data_dir``."""

    def __init__(self, config: EmbeddedConfig, progress: Progress | None = None) -> None:
        self.config = config
        self._progress = progress
        self._directory = BrokerDirectory(config.data_dir)
        self._changing = threading.Lock()  # Held while the node is started or ended.
        self._stopping = threading.Event()
        self._node: Node | None = None
        self._training: AotTraining | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients. A restart changes it if another program took the port."""
        assert self._node is not None, "the broker was never started"
        return self._node.addresses.bootstrap

    @property
    def pid(self) -> int | None:
        """Process id of the broker, also after its end; None before the first start."""
        return None if self._node is None else self._node.child.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the broker after its end (minus the signal that killed it), else None."""
        return None if self._node is None else self._node.child.returncode()

    @property
    def log_file(self) -> Path:
        """The newest of the broker's own log files."""
        return self._directory.log_file

    def is_alive(self) -> bool:
        """True if the broker's process is running. One system call."""
        return self._node is not None and self._node.is_alive()

    def start(self) -> None:
        """Own the directory and return once the broker answers. A failure leaves nothing behind."""
        self._stopping.clear()
        with self._changing:
            self._directory.acquire()
            try:
                self._launch()
            except BaseException:
                self._directory.release()
                raise

    def restart(self) -> None:
        """Start the broker again, after ending it if it still runs. The directory stays owned."""
        with self._changing:
            if self._stopping.is_set():
                raise BrokerFailed("stopped while restarting")
            assert self._directory.is_owned, "restart of a broker that was never started"
            self._end_node()
            self._launch()

    def stop(self) -> None:
        """Shut down the broker and release the directory; do nothing if it does not run."""
        self._stopping.set()  # Aborts a start in another thread, which releases the lock.
        with self._changing:
            if self._training is not None:
                self._training.abort()
                self._training = None
            if self._node is not None and self._node.is_alive():
                status = self._node.child.terminate(STOP_TIMEOUT_S)
                logger.info("the broker (pid %s) ended with status %d", self.pid, status)
            self._end_node()
            self._directory.release()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a fault. The directory stays owned, for ``restart``."""
        assert self._node is not None, "the broker was never started"
        self._node.child.kill()

    def _launch(self) -> None:
        runtime = _runtime(self.config, self._progress)
        if orphan := end_orphan(self._directory.properties):
            logger.warning("ended an orphaned broker (pid %d), whose rowtide was killed", orphan)
        cache = AotCache.of(self.config.cache_dir, runtime)
        used = cache.apply_to(runtime) if self.config.aot else runtime
        self._node = launch(lambda: Node(self.config, self._directory, used), self._stopping)
        if self._training is None and _needs_training(self.config, runtime, cache):
            self._training = AotTraining(self.config, runtime, cache)
            self._training.start()

    def _end_node(self) -> None:
        if self._node is not None:
            self._node.abandon()


def prepare(config: EmbeddedConfig, progress: Progress | None = None) -> None:
    """Download the jars and make the AOT cache now, for an image that must start offline."""
    runtime = _runtime(config, progress)
    cache = AotCache.of(config.cache_dir, runtime)
    if _needs_training(config, runtime, cache):
        AotTraining(config, runtime, cache).run()


def _runtime(config: EmbeddedConfig, progress: Progress | None) -> Runtime:
    java = find_java(config.java)
    jars = resolve_jars(
        config.cache_dir, read_lock(), repository=config.maven_repository, progress=progress
    )
    return Runtime(java, tuple(jars))


def _needs_training(config: EmbeddedConfig, runtime: Runtime, cache: AotCache) -> bool:
    return config.aot and runtime.java.has_aot_cache and not cache.is_made
