"""The present rows of keys that were updated. A change has only the cells that it sets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["newest", "rows_since"]

BEHIND_S = 0.02
BEHIND_TIMES = 100
"""Pause and number of reads while a shard has not applied a change yet."""


async def rows_since(api: ApiSource, stamps: Mapping[bytes, int]) -> dict[bytes, CurrentRow]:
    """Return the rows of keys, each as of its stamp or later.

    A reader of the log may have a change before the shard has applied it. Until then the
    shard answers as of an earlier stamp, without the change. Raises ``Unavailable`` if
    that takes too long.
    """
    found: dict[bytes, CurrentRow] = {}
    if not stamps:
        return found
    for _ in range(BEHIND_TIMES):
        rows = await api.current([key for key in stamps if key not in found])
        found |= {key: row for key, row in rows.items() if row.stamp >= stamps[key]}
        if len(found) == len(stamps):
            return found
        await asyncio.sleep(BEHIND_S)
    raise Unavailable("A shard has not applied all entries of its log yet.")


def newest(cells: Sequence[Cell]) -> dict[str, Scalar]:
    """Return each column with its newest value."""
    found: dict[str, Scalar] = {}
    versions: dict[str, int] = {}
    decode = variant.decode
    for cell in cells:
        if cell.op != PUT:
            continue
        name, version = cell.name.decode(), cell.version_ms or 0
        if name in versions and version <= versions[name]:
            continue
        versions[name] = version
        found[name] = decode(cell.variant)
    return found
