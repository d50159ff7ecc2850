"""Locks on files, and the differences between files on Linux, macOS and Windows.

A lock belongs to the open file. The kernel releases it when the process ends, however it
ends.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["lock_file", "read_holder", "sync_folder", "write_holder"]

HOLDER_BYTES = 32

LOCKED_AT = 1 << 30
"""Windows blocks reads of locked bytes, so the lock is one byte far after the holder's number."""


def lock_file(number: int) -> None:
    """Lock an open file against other processes. Raises ``OSError`` if another one has it."""
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(number)
    else:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_on_windows(number: int) -> None:
    import msvcrt

    # Only Windows has these names: mypy reads this on Linux.
    locking, exclusive = getattr(msvcrt, "locking"), getattr(msvcrt, "LK_NBLCK")  # noqa: B009
    position = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, LOCKED_AT, os.SEEK_SET)
    try:
        locking(number, exclusive, 1)
    finally:
        os.lseek(number, position, os.SEEK_SET)


def read_holder(number: int) -> str:
    """Return the process number that ``write_holder`` wrote; "unknown" if there is none."""
    os.lseek(number, 0, os.SEEK_SET)
    return os.read(number, HOLDER_BYTES).decode("ascii", "replace").strip() or "unknown"


def write_holder(number: int) -> None:
    """Write the number of this process into a locked file."""
    os.ftruncate(number, 0)
    os.lseek(number, 0, os.SEEK_SET)
    os.write(number, str(os.getpid()).encode())


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk. Windows has no such call, and needs none."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
