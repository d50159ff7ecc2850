"""Reads the rows of a table by ranges of keys, even if its shards change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.connectors.verify.comparison import Columns
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.change import Change
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.core.values.key_ranges import Range

__all__ = ["TableRows", "TableSide", "TableSlice"]

PAGE_ROWS = 1000
RETRY_S = 0.1
TRIES_MAX = 100
"""After so many attempts an unavailable shard is reported."""


class TableSlice(NamedTuple):
    """All rows of one shard in ``covers``, as of ``stamp``."""

    rows: Sequence[Change]
    covers: Range
    stamp: int
    shard_id: str


class TableRows:
    """Reads the table of ``source``."""

    def __init__(self, source: ChangeSource) -> None:
        self._source = source
        self._shards: list[SourceShard] = []

    async def shards(self) -> list[SourceShard]:
        """Return the shards that hold rows now: those without children."""
        shards = await self._source.shards()
        parents = {parent for shard in shards for parent in shard.parents}
        self._shards = [shard for shard in shards if shard.shard_id not in parents]
        return self._shards

    async def slice(self, within: Range, *, limit: int) -> TableSlice:
        """Return rows of one shard from the start of ``within``."""
        for tries in count():
            try:
                return await self._slice(within, limit)
            except StoreError as error:
                # The shard was split, merged or moved, or is just now.
                ended = isinstance(error, Rejected) and error.code == "OTSObjectNotExist"
                if tries == TRIES_MAX or not (ended or isinstance(error, Unavailable)):
                    raise
                self._shards = []
                await asyncio.sleep(RETRY_S)
        raise AssertionError("counted to the end")

    async def _slice(self, within: Range, limit: int) -> TableSlice:
        begin, end = within
        shard = await self._shard_of(begin)
        last = min(shard.end, end) if shard.end and end else shard.end or end
        page = await self._source.rows(shard.shard_id, begin, last, limit=limit)
        covers = begin, last if page.following is None else page.following
        return TableSlice(page.rows, covers, page.stamp, shard.shard_id)

    async def _shard_of(self, encoded: bytes) -> SourceShard:
        for shard in self._shards or await self.shards():
            if shard.begin <= encoded and (not shard.end or encoded < shard.end):
                return shard
        raise Unavailable("The table has no shard for a key: it is being split or merged.")


class TableSide:
    """A table for ``compare_scans``."""

    def __init__(self, source: ApiSource) -> None:
        self._source = source
        self._rows = TableRows(source)

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Yield all rows, see ``Side.rows``."""
        begin = b""
        while True:
            found = await self._rows.slice((begin, b""), limit=PAGE_ROWS)
            for change in found.rows:
                yield change.key_bytes, change.columns
            begin = found.covers[1]
            if not begin:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows, see ``Side.look_up``. At most 100 keys."""
        stream = await self._source.stream()
        wanted = pb.TableInBatchGetRowRequest(table_name=stream.table.name, max_versions=1)
        for encoded in keys:
            named = list(zip(stream.table.key_names, key.decode(encoded), strict=True))
            wanted.primary_key.append(HEADER + plainbuffer.encode_row(named, []))
        request = pb.BatchGetRowRequest(tables=[wanted])
        response = await self._source.endpoint.call("BatchGetRow", request, pb.BatchGetRowResponse)
        found: dict[bytes, Columns] = {}
        for encoded, answer in zip(keys, response.tables[0].rows, strict=True):
            if not answer.is_ok:
                raise Unavailable(answer.error.message, answer.error.code)
            if answer.row:
                cells = plainbuffer.decode_row(answer.row).cells
                found[encoded] = {c.name.decode(): variant.decode(c.variant) for c in cells}
        return found
