"""What tables of messages and of meta rows share: searches on an index of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from rowtide.client.async_client import AsyncClient
from rowtide.client.row_values import RowDict
from rowtide.client.search.query import SEARCH_WAIT_S, SearchPage, SearchQuery, SearchRequest, Sort

if TYPE_CHECKING:
    from rowtide.client.search.search_index import SearchIndex

__all__ = ["SearchedTable"]

Hit = TypeVar("Hit")


class SearchedTable(Generic[Hit]):
    """A table that can be searched. A subclass says what a row is (``_hit``)."""

    def __init__(self, client: AsyncClient, table: str, search_folder: Path | None) -> None:
        self.client = client
        self._table = table
        self._search_folder = search_folder

    @cached_property
    def index(self) -> SearchIndex:
        """The index that searches of this table use."""
        # Imported here: most programs do not search, and need no SQLite.
        from rowtide.client.search.search_index import SearchIndex

        return SearchIndex(self.client, self._table, self._search_folder)

    async def search(
        self,
        query: SearchQuery,
        *,
        sort: Sequence[Sort] = (),
        offset: int = 0,
        limit: int = 10,
        wait_s: float = SEARCH_WAIT_S,
    ) -> SearchPage[Hit]:
        """Return the messages of all timelines, or the meta rows, that match, and how many do.

        Every write answered before the call is found. Identifier and id are fields, too. Raises
        ``Unavailable`` if the index needs longer than ``wait_s`` to have these writes.
        """
        request = SearchRequest(query, sort, offset, limit)
        found = await self.index.search(request, wait_s=wait_s)
        return SearchPage(found.total, [self._hit(row) for row in found.hits])

    def _hit(self, row: RowDict) -> Hit:
        raise NotImplementedError
