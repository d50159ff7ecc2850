"""Locks on files, and what else of files differs between Linux, macOS and Windows.

A lock belongs to the open file. The kernel releases it when the process ends, however it ends.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["lock_file", "read_holder", "sync_folder", "write_holder"]

HOLDER_BYTES = 32

LOCKED_AT = 1 << 30
"""Windows keeps others from reading what is locked: one byte far behind the holder's number."""


def lock_file(number: int) -> None:
    """Lock an open file against other processes. Raises ``OSError`` where one has it."""
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(number)
    else:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_on_windows(number: int) -> None:
    import msvcrt

    # Names that only Windows has: mypy reads this on Linux.
    locking, exclusive = getattr(msvcrt, "locking"), getattr(msvcrt, "LK_NBLCK")  # noqa: B009
    position = os.lseek(number, 0, os.SEEK_CUR)
    os.lseek(number, LOCKED_AT, os.SEEK_SET)
    try:
        locking(number, exclusive, 1)
    finally:
        os.lseek(number, position, os.SEEK_SET)


def read_holder(number: int) -> str:
    """Return the number of the process that ``write_holder`` noted; "unknown" where none is."""
    os.lseek(number, 0, os.SEEK_SET)
    return os.read(number, HOLDER_BYTES).decode("ascii", "replace").strip() or "unknown"


def write_holder(number: int) -> None:
    """Note in a locked file which process has it."""
    os.ftruncate(number, 0)
    os.lseek(number, 0, os.SEEK_SET)
    os.write(number, str(os.getpid()).encode())


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk. Windows has no such call, and needs none."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
