"""How many files, sockets among them, the process may have open: as many as the system lets it.

Debian's shells give 1,024, of which 1,000 clients and the rows of a few slots (256 files each at
most) leave nothing; what fails then is whatever opens a file next.
"""

from __future__ import annotations

from contextlib import suppress

__all__ = ["allow_open_files"]

OPEN_FILES = 65_536
"""Enough for 1,000 clients, 200 slots, brokers and workers."""


def allow_open_files() -> None:
    """Raise the limit of this process, and of those that it starts; where it can't be, leave it."""
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
