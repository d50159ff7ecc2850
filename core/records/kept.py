"""The original columns of a change: what a record tells of the row before and after it.

A table's stream may keep original columns. A record then has the newest visible cell of each of
them before the change, the names of those that had none, and whether the row existed. What they
are after the change mostly follows from that and from the change (``derive_after``). The record has
only the cells for which it does not follow: the deleted version of a column hid an older one, or
what was put had expired.

This module does not know how a row is read, or when a cell expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rowtide.core.protocol.plainbuffer import delete_cell
from rowtide.core.records.avro import (
    read_cells,
    read_names,
    write_cells,
    write_names,
)
from rowtide.core.records.body import Kept
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell

__all__ = [
    "cells_after",
    "derive_after",
    "find_names",
    "find_underived",
    "narrow_kept",
    "read_kept",
    "write_kept",
]

_BOOLEANS = (b"\x00", b"\x01")


def derive_after(
    before: Iterable[Cell], cells: Iterable[Cell], *, whole: bool
) -> dict[bytes, Cell]:
    """Return the newest cell of each column, as it follows from the change.

    ``before`` has the newest cells, at most one of a column. ``whole``: the row becomes exactly
    ``cells``. Otherwise they are merged into it, in order.
    """
    newest = {} if whole else {cell.name: cell for cell in before}
    for cell in cells:
        name, op, _, version, _ = cell
        held = newest.get(name)
        if op == PUT:
            if held is None or (held.version_ms or 0) <= (version or 0):
                newest[name] = cell
        elif op == DELETE_ALL or (held is not None and held.version_ms == version):
            newest.pop(name, None)
    return newest


def find_names(before: Sequence[Cell], kept: Kept) -> list[bytes]:
    """Return the original columns of a record, in order."""
    return sorted((*(cell.name for cell in before), *kept.absent))


def find_underived(
    names: Iterable[bytes], exact: Mapping[bytes, Cell], derived: Mapping[bytes, Cell]
) -> list[Cell]:
    """Return the cells of ``exact`` that ``derived`` lacks; a delete of what it has too much."""
    return [
        exact.get(name) or delete_cell(name, None)
        for name in names
        if exact.get(name) != derived.get(name)
    ]


def cells_after(
    before: Sequence[Cell], kept: Kept, cells: Iterable[Cell], *, whole: bool
) -> dict[bytes, Cell]:
    """Return the newest visible cell of each original column after a change, in order."""
    found = derive_after(before, cells, whole=whole)
    for cell in kept.after:
        if cell.op == PUT:
            found[cell.name] = cell
        else:
            found.pop(cell.name, None)
    return {name: found[name] for name in find_names(before, kept) if name in found}


def narrow_kept(
    before: Sequence[Cell],
    kept: Kept,
    cells: Iterable[Cell],
    fewer: Iterable[Cell],
    *,
    whole: bool,
) -> Kept:
    """Return what gives the same cells after a change that is shown with ``fewer`` cells."""
    exact = cells_after(before, kept, cells, whole=whole)
    derived = derive_after(before, fewer, whole=whole)
    return kept._replace(after=find_underived(find_names(before, kept), exact, derived))


def write_kept(before: Sequence[Cell], kept: Kept) -> bytes:
    """Return the fields of a record: existed, before, absent, after."""
    existed, absent, after = kept
    return b"".join(
        (_BOOLEANS[existed], write_cells(before), write_names(absent), write_cells(after))
    )


def read_kept(record: bytes, at: int) -> tuple[list[Cell], Kept, int]:
    """Return the cells before, the rest, and their end. Raises as the readers of ``avro.py``."""
    existed = record[at]
    if existed > 1:
        raise ValueError(f"byte {at}: a boolean of {existed}")
    before, at = read_cells(record, at + 1)
    absent, at = read_names(record, at)
    after, at = read_cells(record, at)
    return before, Kept(bool(existed), absent, after), at
