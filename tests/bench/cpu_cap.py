"""Holds processes to a part of a core, by the kernel's control groups.

Both generations are known: version 1 (a mounted ``cpu`` controller) and version 2 (``cpu.max``).
Either way the user must be allowed to make a group: root, or the user the tree below was delegated
to. Throttled for less than 10 ms at a time, a process keeps its leases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

__all__ = ["CapUnavailable", "cpu_cap"]

PERIOD_US = 10_000
GROUPS = Path("/sys/fs/cgroup")


class CapUnavailable(Exception):
    """This machine lets us make no group; the message says what was tried."""


@contextmanager
def cpu_cap(pid: int, cores: float) -> Iterator[None]:
    """Hold a process, and those it starts from now on, to so many cores."""
    quota_us = int(cores * PERIOD_US)
    group = _new_group(quota_us)
    try:
        try:
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise CapUnavailable(f"{group} takes no process: {error}") from error
        yield
    finally:
        _remove(group)


def _new_group(quota_us: int) -> Path:
    """Return a new group with that quota."""
    first, second = GROUPS / "cpu", GROUPS
    parent = first if (first / "cpu.cfs_quota_us").exists() else second
    group = parent / f"rowtide-bench-{uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        raise CapUnavailable(f"no group can be made in {parent}: {error}") from error
    try:
        if parent == first:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    except OSError as error:
        _remove(group)
        raise CapUnavailable(f"{group} has no quota: {error}") from error
    return group


def _remove(group: Path) -> None:
    """Let who is left go to the group above, and remove the group."""
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            (group.parent / "cgroup.procs").write_text(pid)
        except ProcessLookupError:
            continue  # It has ended meanwhile.
    group.rmdir()
