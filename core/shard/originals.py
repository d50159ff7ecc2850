"""The original columns that a table's stream keeps: what they are before and after a change.

Both are of the same moment, the time of the evaluation. So what has expired by then is absent from
both. A row exists until it is deleted or reclaimed, with or without visible cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rowtide.core.records.body import Kept
from rowtide.core.records.kept import derive_after, find_underived
from rowtide.core.rows import fold
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.mutation import UPDATE
from rowtide.core.rows.overlay import Overlay, RangeReader
from rowtide.core.shard.evaluated import Resolved
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell
from rowtide.core.values.schema import StreamSettings, TableOptions
from rowtide.core.values.version import Window, expiry_floor_ms, visible_cells

__all__ = ["KeptRow", "find_originals", "keep_row"]

_NEWEST = Window()


class KeptRow(NamedTuple):
    """What the record of a change has of the original columns."""

    before: Sequence[Cell]
    kept: Kept


def find_originals(
    stream: StreamSettings | None, key_names: tuple[bytes, ...]
) -> tuple[bytes, ...] | None:
    """Return the names of the original columns in order; None if the stream keeps none."""
    if stream is None or not stream.columns:
        return None
    return _sort_names(stream.columns, key_names)


@lru_cache(256)
def _sort_names(columns: tuple[str, ...], key_names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(sorted({name.encode() for name in columns} - {*key_names}))


def keep_row(
    names: tuple[bytes, ...],
    resolved: Resolved,
    view: RangeReader,
    writes: Writes,
    options: TableOptions,
    now_ms: int,
) -> KeptRow:
    """Return what a change tells of the columns ``names``; ``writes`` makes it over ``view``."""
    wanted, whole = frozenset(names), resolved.kind != UPDATE
    stored = fold.read_cells(view, resolved.at.row_key, wanted)
    before = _choose_newest(stored or (), wanted, options, now_ms)
    cells = [cell for cell in resolved.cells if cell.name in wanted]
    after: list[Cell] = []
    if not _is_derivable(cells, expiry_floor_ms(options, now_ms)):
        later = Overlay(view)
        later.add(writes)
        left = fold.read_cells(later, resolved.at.row_key, wanted) or ()
        exact = {cell.name: cell for cell in _choose_newest(left, wanted, options, now_ms)}
        after = find_underived(names, exact, derive_after(before, cells, whole=whole))
    present = {cell.name for cell in before}
    absent = [name for name in names if name not in present]
    return KeptRow(before, Kept(stored is not None, absent, after))


def _choose_newest(
    cells: Sequence[Cell], wanted: frozenset[bytes], options: TableOptions, now_ms: int
) -> list[Cell]:
    visible = visible_cells(cells, options, _NEWEST, now_ms)
    return [cell for cell in visible if cell.name in wanted]


def _is_derivable(cells: Sequence[Cell], floor_ms: int) -> bool:
    """True if the newest cells after a change follow from those before it.

    Not so if one version is deleted, because an older one may show then. Nor if a cell that is put
    has expired: a source's, or one of a transaction that committed later.
    """
    return all(
        cell.op == DELETE_ALL or (cell.op == PUT and (cell.version_ms or 0) >= floor_ms)
        for cell in cells
    )
