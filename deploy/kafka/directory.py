"""The data directory of an embedded broker: its owner, and what survives a restart.

owner.lock           locked (flock) by the rowtide that owns the directory; has its pid
state.json           cluster id and ports, kept across restarts
server.properties    written at each start from the configuration
logging.properties   the same
topics/              Kafka's log directory
logs/                the broker's log files, rotated; jvm.log is the output of the JVM
tmp/                 native libraries that Kafka unpacks; emptied at each start
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import IO

from rowtide.deploy.kafka.config import Addresses
from rowtide.deploy.kafka.errors import BrokerFailed, DirectoryInUse, PortTaken, convert_os_errors
from rowtide.deploy.ports import PORTS, TRIES, free_ports, is_free

__all__ = ["HOST", "BrokerDirectory", "fresh_id"]

HOST = "127.0.0.1"


class BrokerDirectory:
    """One data directory. All methods except ``acquire`` need ownership of it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.properties = self.path / "server.properties"
        self.logging = self.path / "log4j2.properties"
        self.topics = self.path / "topics"
        self.logs = self.path / "logs"
        self.tmp = self.path / "tmp"
        self._state = self.path / "state.json"
        self._lock: IO[str] | None = None

    @property
    def is_owned(self) -> bool:
        return self._lock is not None

    def acquire(self) -> None:
        """Own the directory until ``release`` or the end of this process."""
        assert not self.is_owned, "acquired twice"
        with convert_os_errors(BrokerFailed, f"cannot use {self.path}"):
            for folder in (self.path, self.topics, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_directory()

    def _lock_directory(self) -> IO[str]:
        file = (self.path / "owner.lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            file.close()
            raise DirectoryInUse(
                f"{self.path} is in use by another rowtide (pid {owner}): "
                "stop that one, or choose another directory with --data-dir."
            ) from error
        except OSError:
            file.close()
            raise
        return file

    def release(self) -> None:
        """Release the directory for other processes. The broker must have ended."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def log_file(self) -> Path:
        """The newest of the broker's own log files."""
        return self.logs / "kafka.log"

    def is_formatted(self) -> bool:
        return (self.topics / "meta.properties").exists()

    def clear_tmp(self) -> None:
        """Remove what a killed broker unpacked."""
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir()

    def cluster_id(self) -> str:
        """Return the id of this cluster; the first call creates it."""
        state = self._load()
        if "cluster_id" not in state:
            state = self._save(cluster_id=fresh_id())
        return str(state["cluster_id"])

    def choose_addresses(self, wanted: int | None) -> Addresses:
        """Return free addresses: the wanted port, else those of the last start, else new ones."""
        if wanted is not None and not is_free(HOST, wanted):
            raise PortTaken(
                f"port {wanted} is in use by another program: choose another one, "
                "or none to let rowtide find a free one."
            )
        state = self._load()
        port = wanted or _choose_port(state.get("port"))
        controller_port = _choose_port(state.get("controller_port"), other=port)
        self._save(port=port, controller_port=controller_port)
        return Addresses(HOST, port, controller_port)

    def _load(self) -> dict[str, int | str]:
        try:
            state: dict[str, int | str] = json.loads(self._state.read_text())
        except FileNotFoundError:
            return {}
        return state

    def _save(self, **changes: int | str) -> dict[str, int | str]:
        state = self._load() | changes
        draft = self._state.with_suffix(".draft")
        draft.write_text(json.dumps(state))
        os.replace(draft, self._state)
        return state


def _choose_port(kept: int | str | None, *, other: int | None = None) -> int:
    """Return ``kept`` if it is free and not ``other``, else a free port."""
    if kept is not None and kept != other and is_free(HOST, int(kept)):
        return int(kept)
    for port in free_ports(HOST):
        if port != other:
            return port
    raise PortTaken(f"none of {TRIES} ports between {PORTS.start} and {PORTS.stop} is free")


def fresh_id() -> str:
    """Return a random cluster id in Kafka's format, without a leading hyphen (of an option)."""
    while True:
        fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not fresh.startswith("-"):
            return fresh
