"""The limit of open files, which include sockets: as high as the system allows.

Debian's shells allow 1,024. A thousand clients and the rows of a few slots (at most 256 files each)
use all of them. Then the next attempt to open a file fails, whatever it is for.
"""

from __future__ import annotations

from contextlib import suppress

__all__ = ["allow_open_files"]

OPEN_FILES = 65_536
"""Enough for 1,000 clients, 200 slots, brokers and workers."""


def allow_open_files() -> None:
    """Raise the limit for this process and its children; keep it if that is not allowed."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES:
        return
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
