"""The worker's directory: who owns it, of which cluster it is, which former owners are surely dead.

A lock on a file keeps a second process out. Whoever holds it knows that every earlier process of
this very file has ended, so their leases need not be waited for. A copied directory has another
file (device, inode, machine or host differ), and then nothing is known of them.

A lock is one kernel's. A volume may be mounted by another machine, under a host's name that goes
with it, while a process that was cut off goes on on the former one. So nothing is known of owners
from before this machine has booted either, nor where a boot has no id: only Linux tells one.

Rows stay those of one cluster, also in a copy: ids of shards begin anew in each, so the rows of
another one could be taken for its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from rowtide.stream.log.local.file_lock import lock_file, read_holder, write_holder

__all__ = ["DirectoryBusy", "DirectoryLock", "OtherCluster", "WorkerDirectory"]


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryBusy(Exception):
    """Another process uses the directory."""


class OtherCluster(Exception):
    """The directory is of another cluster, or of one whose catalog Kafka has lost."""


class DirectoryLock:
    """The lock of a directory that exists, held until ``release``. Raises ``DirectoryBusy``."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(self._file)
        except OSError as error:
            holder = read_holder(self._file)
            os.close(self._file)
            raise DirectoryBusy(
                f"{path} is in use by process {holder}: stop it, or choose another directory"
            ) from error
        write_holder(self._file)

    def identity(self) -> list[str]:
        """Return what tells this directory from a copy of it."""
        status = os.fstat(self._file)
        machine = Path("/etc/machine-id")
        # Containers of one image may share it, and the clone of a disk has the same numbers.
        name = machine.read_text().strip() if machine.exists() else ""
        return [name, socket.gethostname(), str(status.st_dev), str(status.st_ino)]

    def release(self) -> None:
        """Let another process in."""
        os.close(self._file)


class WorkerDirectory:
    """``path`` with its lock held until ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = secrets.token_bytes(8)
        """Random id of this process as an owner of slots."""
        path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(path)
        stored = self._stored()
        same_file = stored.get("file") == self._lock.identity()
        self.instance: str = stored.get("instance", "") if same_file else ""
        """Name of this worker across restarts; a copied directory gets another."""
        self.instance = self.instance or f"worker-{secrets.token_hex(6)}"
        self.former: frozenset[bytes] = frozenset(
            bytes.fromhex(owner) for owner in stored.get("owners", [])
        )
        """Owners from before, also where this is a copy, or the machine has booted since."""
        same_boot = stored.get("boot") and stored["boot"] == _boot_id()
        self.dead = self.former if same_file and same_boot else frozenset()
        self._cluster: str = stored.get("cluster", "")
        self._store()

    def belong(self, secret: bytes | None) -> None:
        """See to it that the rows here are of the cluster with this secret, None: a fresh one.

        Raises ``OtherCluster``. A directory that belongs to none comes to belong to this one.
        """
        cluster = "" if secret is None else hashlib.sha256(secret).hexdigest()
        if cluster == self._cluster:
            return
        if self._cluster:
            raise OtherCluster(f"the rows in {self.path} are not of the cluster that Kafka holds")
        self._cluster = cluster
        self._store()

    def release(self) -> None:
        """Let another process in."""
        self._lock.release()

    def _stored(self) -> dict[str, Any]:
        try:
            stored = json.loads((self.path / "identity.json").read_text())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def _store(self) -> None:
        """Remember this owner before it claims anything."""
        owners = [self.owner.hex(), *(owner.hex() for owner in self.dead)][:64]
        content = {
            "file": self._lock.identity(),
            "boot": _boot_id(),
            "instance": self.instance,
            "owners": owners,
            "cluster": self._cluster,
        }
        draft = self.path / "identity.json.new"
        with draft.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / "identity.json")


def _boot_id() -> str:
    """Return what names this machine's life since it booted; empty where nothing does."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
