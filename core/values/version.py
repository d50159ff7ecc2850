"""Which versions of a cell a reader may see.

A column's cells are sorted by version, newest first. Versions are milliseconds since the Unix
epoch. Writers choose them, so they may be in the future or arrive in any order. Nothing here reads
a clock: the caller passes the time. Ages are in whole seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import INT64_MAX, VERSION_END
from rowtide.core.values.schema import TableOptions

__all__ = [
    "Window",
    "check_version",
    "expiry_floor_ms",
    "visible_cells",
]


class Window(NamedTuple):
    """A reader's selection: start <= version < end, then the newest ``max_versions``."""

    start_ms: int = 0
    end_ms: int = INT64_MAX
    max_versions: int = 1


def expiry_floor_ms(options: TableOptions, now_ms: int) -> int:
    """Return the lowest version that has not expired; -1 if the table keeps versions forever.

    A version has expired when its age, both times in whole seconds, exceeds the time to live. A
    version ahead of our clock has a negative age and stays visible.
    """
    if options.time_to_live_s < 0:
        return -1
    return (now_ms // 1000 - options.time_to_live_s) * 1000


def visible_cells(
    cells: Sequence[Cell], options: TableOptions, window: Window, now_ms: int
) -> list[Cell]:
    """Return the cells of one row that a reader may see, in stored order.

    First the table's options hide cells (expired, more than max versions). Then the reader's window
    selects from the rest.
    """
    floor = expiry_floor_ms(options, now_ms)
    keep = options.max_versions
    start, end, want = window
    seen: list[Cell] = []
    last = None
    rank = taken = 0
    for cell in cells:
        if cell.name != last:
            last = cell.name
            rank = taken = 0
        rank += 1
        version = cell.version_ms
        assert version is not None, "a stored cell has a version"
        if rank > keep or version < floor or taken >= want:
            continue
        if start <= version < end:
            taken += 1
            seen.append(cell)
    return seen


def check_version(version_ms: int, options: TableOptions, now_ms: int) -> None:
    """Check a writer's version against the table's options.

    With now and version in whole seconds, a version is accepted if it is in [now - deviation, now +
    deviation) and has not expired. Raises OTSParameterInvalid with the bounds and the value.
    """
    if not 0 <= version_ms < VERSION_END:
        raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")
    now_s, version_s = now_ms // 1000, version_ms // 1000
    low, high = now_s - options.deviation_s, now_s + options.deviation_s
    if not low <= version_s < high:
        raise _out_of_range(version_ms, max(low, 0) * 1000, high * 1000, "max version offset")
    if options.time_to_live_s >= 0 and now_s - version_s > options.time_to_live_s:
        floor = (now_s - options.time_to_live_s) * 1000
        raise _out_of_range(version_ms, max(floor, 0), high * 1000, "time to live")


def _out_of_range(version_ms: int, low_ms: int, high_ms: int, why: str) -> Rejected:
    return invalid(
        f"Timestamp {version_ms} is out of range [{low_ms}, {high_ms}) by the table's {why}."
    )
