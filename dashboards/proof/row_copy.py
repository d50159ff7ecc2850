"""The rows of a table at exact positions of its shards' logs, made without any dashboard.

Pages of rows are exact at commit stamps. Changes after a page's stamp and before the wanted
position are merged into it, by the written cells only: the values before and after a change, which
dashboards use, take no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import SourceShard
from rowtide.core.records.change import DELETE, PUT_ROW, Change
from rowtide.core.records.position import decode_position
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, PUT, Cell
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.runtime.state_rows import PartPosition

__all__ = ["CannotTell", "RowCopy", "live_shards"]

PAGE_ROWS = 5000
READ_CHANGES = 1000


class CannotTell(Exception):
    """The rows at a position cannot be known. The text says why."""


class _Page(NamedTuple):
    covers: Range
    stamp: int


_Columns = dict[bytes, Cell]
"""The newest cell of each column."""


async def live_shards(api: ApiSource) -> list[SourceShard]:
    """Return the shards that have no children."""
    shards = await api.shards()
    parents = {parent for shard in shards for parent in shard.parents}
    return [shard for shard in shards if shard.shard_id not in parents]


class RowCopy:
    """The rows of one shard: first as pages have them, then at a position."""

    def __init__(self, api: ApiSource, shard: SourceShard) -> None:
        self.shard_id = shard.shard_id
        self._api = api
        self._shard = shard
        self._pages: list[_Page] = []
        self._rows: dict[bytes, tuple[Mapping[str, Scalar], _Columns]] = {}

    @property
    def stamp(self) -> int:
        """The highest stamp of a page."""
        return max(page.stamp for page in self._pages)

    async def read(self) -> None:
        """Read all pages. Raises ``Rejected`` if the shard has ended."""
        begin, end = self._shard.begin, self._shard.end
        while True:
            page = await self._api.rows(self.shard_id, begin, end, limit=PAGE_ROWS)
            covered = end if page.following is None else page.following
            self._pages.append(_Page((begin, covered), page.stamp))
            for row in page.rows:
                cells = {cell.name: cell for cell in row.cells}
                self._rows[row.key_bytes] = dict(row.key), cells
            if page.following is None:
                return
            begin = page.following

    async def is_before(self, at: PartPosition) -> bool:
        """True if every page is as of a moment at or before a position of this shard."""
        if at.stamp >= self.stamp:
            return True
        page = await self._api.read(at.position, limit=1, wait_s=0.0)
        return page.at_end if not page.changes else page.changes[0].stamp > self.stamp

    async def advance(self, at: PartPosition) -> None:
        """Merge the changes up to a position. Raises ``CannotTell``."""
        least = min(page.stamp for page in self._pages)
        position = await self._api.position(self.shard_id, least)
        end = decode_position(at.position).offset
        while decode_position(position).offset < end:
            page = await self._api.read(position, limit=READ_CHANGES, wait_s=0.0)
            for change in page.changes:
                if change.sequence >= end:
                    return
                if change.stamp > self._page_stamp(change.key_bytes):
                    self._merge(change)
            if page.following is None or (page.at_end and not page.changes):
                return
            position = page.following

    def _page_stamp(self, key: bytes) -> int:
        low, high = 0, len(self._pages) - 1
        while low < high:
            middle = (low + high) // 2
            end = self._pages[middle].covers[1]
            if end and key >= end:
                low = middle + 1
            else:
                high = middle
        return self._pages[low].stamp

    def _merge(self, change: Change) -> None:
        key = change.key_bytes
        if change.kind == DELETE:
            self._rows.pop(key, None)
            return
        known = self._rows.get(key)
        columns = dict(known[1]) if known is not None and change.kind != PUT_ROW else {}
        for cell in change.cells:
            _merge_cell(columns, cell, change)
        self._rows[key] = dict(change.key), columns

    def rows(self) -> Iterator[dict[str, Scalar]]:
        """Yield the rows with their keys."""
        for key, columns in self._rows.values():
            values = {name.decode(): variant.decode(c.variant) for name, c in columns.items()}
            yield {**key, **values}


def _merge_cell(columns: _Columns, cell: Cell, change: Change) -> None:
    held = columns.get(cell.name)
    if cell.op == PUT:
        if held is None or (cell.version_ms or 0) >= (held.version_ms or 0):
            columns[cell.name] = cell
    elif cell.op == DELETE_ALL:
        columns.pop(cell.name, None)
    elif cell.op == DELETE_ONE and held is not None and held.version_ms == cell.version_ms:
        # Only the server knows whether there is an older version.
        raise CannotTell(
            f"a version of column {cell.name.decode()} of {dict(change.key)} was deleted meanwhile"
        )
