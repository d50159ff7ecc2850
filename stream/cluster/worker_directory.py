"""The worker's directory: its owner, its cluster, and the former owners that are certainly dead.

A lock on a file keeps a second process out. The holder knows that every earlier process
of this very file has ended, so it need not wait for their leases. A copied directory has
another file (device, inode, machine or host differ). Then nothing is known of them.

A lock belongs to one kernel. A volume may be mounted by another machine with the same
host name, while a process that was cut off continues on the former one. So nothing is
known of owners from before this machine's boot either, nor if the boot has no id: only
Linux has one.

Rows stay with one cluster, also in a copy. Shard ids begin anew in each cluster, so the
rows of another cluster could be taken for its own.
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
    """The directory belongs to another cluster, or to one whose catalog Kafka has lost."""


class DirectoryLock:
    """The lock of an existing directory, held until ``release``. Raises ``DirectoryBusy``."""

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
        """Return the values that distinguish this directory from a copy of it."""
        status = os.fstat(self._file)
        machine = Path("/etc/machine-id")
        # Containers of one image may share it, and a cloned disk has the same numbers.
        name = machine.read_text().strip() if machine.exists() else ""
        return [name, socket.gethostname(), str(status.st_dev), str(status.st_ino)]

    def release(self) -> None:
        """Release the lock, so that another process can take the directory."""
        os.close(self._file)


class WorkerDirectory:
    """``path`` with its lock held until ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = secrets.token_bytes(8)
        """Random id of this process as an owner of slots."""
        path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(path)
        stored = self._read_identity()
        same_file = stored.get("file") == self._lock.identity()
        self.instance: str = stored.get("instance", "") if same_file else ""
        """Name of this worker across restarts; a copied directory gets another one."""
        self.instance = self.instance or f"worker-{secrets.token_hex(6)}"
        self.former: frozenset[bytes] = frozenset(
            bytes.fromhex(owner) for owner in stored.get("owners", [])
        )
        """Owners from before, also if this is a copy, or the machine has booted since."""
        same_boot = stored.get("boot") and stored["boot"] == _boot_id()
        self.dead = self.former if same_file and same_boot else frozenset()
        self._cluster: str = stored.get("cluster", "")
        self._store()

    def belong(self, secret: bytes | None) -> None:
        """Check that the rows here belong to the cluster with this secret; None: a new cluster.

        Raises ``OtherCluster``. A directory without a cluster is assigned to this one.
        """
        cluster = "" if secret is None else hashlib.sha256(secret).hexdigest()
        if cluster == self._cluster:
            return
        if self._cluster:
            raise OtherCluster(f"the rows in {self.path} are not of the cluster that Kafka holds")
        self._cluster = cluster
        self._store()

    def release(self) -> None:
        """Release the lock, so that another process can take the directory."""
        self._lock.release()

    def _read_identity(self) -> dict[str, Any]:
        try:
            stored = json.loads((self.path / "identity.json").read_text())
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def _store(self) -> None:
        """Store this owner before it claims anything."""
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
    """Return the id of this machine's boot; empty if there is none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
