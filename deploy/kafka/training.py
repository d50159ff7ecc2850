"""Makes the AOT cache with a second broker on scratch data, in the background or at once."""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
from dataclasses import replace
from pathlib import Path

from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.command import java_command
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.errors import EmbeddedKafkaError
from rowtide.deploy.kafka.java import ENVIRONMENT, Runtime
from rowtide.deploy.kafka.node import Node, launch
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["AotTraining"]

logger = logging.getLogger(__name__)

POLL_S = 0.05
START_TIMEOUT_S = 300.0  # A start at the lowest priority may take long.


class AotTraining:
    """One attempt to make the cache. It can be aborted at any time, and leaves nothing then."""

    def __init__(self, config: EmbeddedConfig, runtime: Runtime, cache: AotCache) -> None:
        self._folder = cache.path.parent / "training"
        self._config = replace(
            config, data_dir=self._folder, port=None, settings={}, start_timeout_s=START_TIMEOUT_S
        )
        self._runtime = runtime
        self._cache = cache
        self._aborted = threading.Event()
        self._thread = threading.Thread(target=self.run, name="aot-training", daemon=True)

    def start(self) -> None:
        """Train in the background, at the lowest priority."""
        self._thread.start()

    def abort(self) -> None:
        """Abort the training and wait until its processes have ended (some milliseconds)."""
        self._aborted.set()
        if self._thread.is_alive():
            self._thread.join()

    def run(self) -> None:
        """Train now. A failure is only logged: it means a slow start next time."""
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with (self._folder.parent / "training.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._train()
        except BlockingIOError:
            logger.debug("another rowtide is already making the AOT cache")
        except (EmbeddedKafkaError, OSError) as error:
            if not self._aborted.is_set():
                logger.warning("AOT cache not made, starts stay slow: %s", error)

    def _train(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)  # A killed process may have left it.
        directory = BrokerDirectory(self._folder)
        directory.acquire()
        try:
            record = self._folder / "record.aotconf"
            draft = self._folder / "draft.aot"
            self._record(directory, record)
            if record.exists() and self._create(record, draft) == 0 and draft.exists():
                self._cache.install(draft)
                logger.info("AOT cache made: later starts take under a second")
        finally:
            directory.release()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _record(self, directory: BrokerDirectory, record: Path) -> None:
        """Start a broker that records what it loads, and stop it once it answers."""
        options = self._cache.record(record)
        node = launch(
            lambda: Node(self._config, directory, self._runtime, options, nice=True),
            self._aborted,
        )
        node.child.ask_to_end()
        self._await_end(node.child)

    def _create(self, record: Path, draft: Path) -> int:
        command = java_command(self._runtime, self._cache.create(record, draft))
        with (self._folder / "create.log").open("wb") as output:
            child = TetheredProcess(
                command, folder=self._folder, environment=ENVIRONMENT, output=output, nice=True
            )
        return self._await_end(child)

    def _await_end(self, child: TetheredProcess) -> int:
        while (status := child.returncode()) is None:
            if self._aborted.wait(POLL_S):
                return child.kill()
        child.release()
        return status
