"""Searches a table in an index on this machine, as long as the client's block is open.

The index belongs to one stream of the table. A table that is dropped and made anew has another
stream, and so another index. It is in a folder of its own below ``folder``; processes that search
the same table share it.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from rowtide.client.async_client import AsyncClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.row_values import RowDict
from rowtide.client.search.query import SearchPage, SearchRequest
from rowtide.client.search.stream_index import IndexStatus, StreamIndex
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["SearchIndex", "default_search_folder"]

STREAM_ENDED = frozenset({"OTSObjectNotExist", "OTSTrimmedDataAccess"})
"""What a read of a dropped table's stream is answered, before and after its logs are removed."""


def default_search_folder() -> Path:
    """Return the folder of this user's indexes, in the user's cache."""
    home = Path.home()
    cache = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return cache / "rowtide" / "timelines"


class SearchIndex:
    """The index of ``table``. The first search starts to feed it, and the client's end stops it."""

    def __init__(self, client: AsyncClient, table: str, folder: Path | None) -> None:
        self._client = client
        self._table = table
        self._folder = folder or default_search_folder()
        self._index: StreamIndex | None = None
        self._opening = asyncio.Lock()

    async def search(self, request: SearchRequest, *, wait_s: float) -> SearchPage[RowDict]:
        """Return the rows that match. Every write answered before the call is found.

        Raises ``Unavailable`` if the index needs longer than ``wait_s`` to have these writes.
        """
        index = await self._open()
        try:
            async with asyncio.timeout(wait_s):
                try:
                    return await index.answer(request)
                except Rejected as failure:
                    if failure.code not in STREAM_ENDED:
                        raise
                    index = await self._reopen(index)
                    return await index.answer(request)
        except TimeoutError as error:
            raise Unavailable(
                f"The search index of table '{self._table}' did not have every write after "
                f"{wait_s:g} s: {index.describe_lag()}. Search again, or wait longer (wait_s)."
            ) from error

    async def wait_for_present(self) -> None:
        """Return when the index has every write answered before the call, however long it takes."""
        await (await self._open()).wait_for_present()

    async def status(self) -> IndexStatus:
        """Return how many rows the index has, and how far behind it is."""
        return await (await self._open()).status()

    async def rebuild(self) -> None:
        """Remove the index and begin again with the table's rows. Searches wait for them."""
        await (await self._open()).rebuild()

    async def wait_until_failed(self) -> None:
        """Feed the index until it fails, and raise the failure."""
        await (await self._open()).wait_until_failed()

    async def stop(self) -> None:
        """Stop feeding until the next search, and release the index for another process."""
        if self._index is not None:
            await self._index.end()

    async def _reopen(self, former: StreamIndex) -> StreamIndex:
        """Return the index of the table's present stream."""
        await former.end()
        return await self._open()

    async def _open(self) -> StreamIndex:
        async with self._opening:
            former = self._index
            if former is None or former.has_ended:
                await self._make(former)
            assert self._index is not None, "it was made"
            return self._index

    async def _make(self, former: StreamIndex | None) -> None:
        """Make the index of the table's present stream. Remove that of a former one."""
        tasks = self._client.tasks
        try:
            described = await self._client.describe_table(self._table)
        except Rejected as failure:
            if former is not None and failure.code == "OTSObjectNotExist":
                shutil.rmtree(former.folder, ignore_errors=True)
            raise
        if not described.stream_hours:
            raise Rejected(
                "OTSParameterInvalid",
                f"Table '{self._table}' has no stream, which a search needs. Enable it: "
                f"rowtide table update {self._table} --stream 24",
            )
        source = ApiSource(self._client.endpoint, self._table)
        folder = self._folder / (await source.stream()).id
        if former is not None and former.folder != folder:
            shutil.rmtree(former.folder, ignore_errors=True)
        ttl_s = described.time_to_live_s
        self._index = StreamIndex(source, folder, ttl_s=ttl_s)
        self._index.start(tasks)
        self._client.feeds.add(self._index)  # Its task keeps it.
