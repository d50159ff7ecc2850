"""One row of facts for each timeline: its name, its members, its owner.

A meta row and its timeline are independent: either may exist without the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rowtide.client.async_client import AsyncClient
from rowtide.client.predicates import Predicate
from rowtide.client.row_values import RowDict
from rowtide.client.timeline.message import FieldInput, Fields, decode_fields, encode_fields
from rowtide.client.timeline.schema import TimelineMetaSchema
from rowtide.client.timeline.searched_table import SearchedTable
from rowtide.core.values.variant import Scalar

__all__ = ["TimelineMeta", "TimelineMetas"]

Identifier = Sequence[int | str | bytes]


@dataclass(frozen=True, slots=True)
class TimelineMeta:
    """The meta row of a timeline: the values of its identifier columns, and its fields."""

    identifier: tuple[Scalar, ...]
    fields: Fields


class TimelineMetas(SearchedTable[TimelineMeta]):
    """The meta table. An identifier is given as a list of its columns' values.

    ``search_folder`` is for the indexes of searches.
    """

    def __init__(
        self, client: AsyncClient, schema: TimelineMetaSchema, *, search_folder: Path | None = None
    ) -> None:
        super().__init__(client, schema.table, search_folder)
        self.schema = schema

    async def create(self, *, if_missing: bool = False) -> bool:
        """Create the table; return True if it was created."""
        return await self.client.create_table(
            self.schema.table,
            dict(self.schema.key.columns),
            stream_hours=self.schema.stream_hours,
            if_missing=if_missing,
        )

    async def drop(self) -> None:
        """Delete the table with all its rows."""
        await self.client.delete_table(self.schema.table)

    async def put(self, identifier: Identifier, fields: Mapping[str, FieldInput]) -> None:
        """Replace a meta row."""
        await self.client.put(self.schema.table, self._row(identifier, fields))

    async def update(
        self,
        identifier: Identifier,
        fields: Mapping[str, FieldInput],
        *,
        delete: Sequence[str] = (),
    ) -> None:
        """Set some fields and delete others. The row is created if it is absent."""
        await self.client.update(self.schema.table, self._row(identifier, fields), delete=delete)

    async def get(self, identifier: Identifier) -> TimelineMeta | None:
        """Return a meta row, or None if there is none."""
        key = self.schema.key.row(identifier, self.client.limits)
        row = await self.client.get(self.schema.table, key)
        return None if row is None else self._hit(row)

    async def delete(self, identifier: Identifier) -> None:
        """Delete a meta row. An absent one is not an error."""
        key = self.schema.key.row(identifier, self.client.limits)
        await self.client.delete(self.schema.table, key)

    async def scan(
        self, *, filter: Predicate | None = None, limit: int | None = None
    ) -> AsyncIterator[TimelineMeta]:
        """Yield meta rows in the order of their identifiers."""
        async for row in self.client.range(self.schema.table, filter=filter, limit=limit):
            yield self._hit(row)

    def _row(self, identifier: Identifier, fields: Mapping[str, FieldInput]) -> RowDict:
        limits = self.client.limits
        columns = encode_fields(fields, key=self.schema.key.names, limits=limits)
        return self.schema.key.row(identifier, limits) | columns

    def _hit(self, row: RowDict) -> TimelineMeta:
        names = self.schema.key.names
        fields = decode_fields(row, key=names, lists=self.schema.lists)
        return TimelineMeta(tuple(row[name] for name in names), fields)
