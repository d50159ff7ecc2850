"""AddDefinedColumn and DeleteDefinedColumn: they change only the catalog.

Shards do not know defined columns: the types of values are checked before a change is
submitted. Rows that are already stored keep their values, whatever their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.defined_columns import DefinedColumn, add_columns, remove_columns
from rowtide.core.values.errors import invalid, no_table
from rowtide.core.values.schema import Table, check_table_name
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import read_only
from rowtide.stream.api.row_requests import parse
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers

__all__ = ["DefinedColumnOperations", "columns_of"]


def columns_of(schema: Iterable[pb.DefinedColumnSchema]) -> tuple[DefinedColumn, ...]:
    """Return the defined columns of a request; a missing type is 0, which is no type."""
    return tuple((c.name, c.type if c.HasField("type") else 0) for c in schema)


class DefinedColumnOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory, placement: Placement, throttle: TableThrottle) -> None:
        self._directory = directory
        self._placement = placement
        self._throttle = throttle
        self._limits = directory.limits

    @answers("AddDefinedColumn")
    async def add_defined_column(self, identity: Identity, body: bytes) -> bytes:
        """Define more columns of a table."""
        request = parse(pb.AddDefinedColumnRequest, body)
        more = columns_of(request.columns)
        await self._change(
            identity,
            request.table_name,
            lambda table: add_columns(table.defined_columns, more, table.key, self._limits),
        )
        return pb.AddDefinedColumnResponse().SerializeToString()

    @answers("DeleteDefinedColumn")
    async def delete_defined_column(self, identity: Identity, body: bytes) -> bytes:
        """Make defined columns of a table ordinary columns; their values stay."""
        request = parse(pb.DeleteDefinedColumnRequest, body)
        await self._change(
            identity,
            request.table_name,
            lambda table: self._without(table, request.columns),
        )
        return pb.DeleteDefinedColumnResponse().SerializeToString()

    def _without(self, table: Table, names: Sequence[str]) -> tuple[DefinedColumn, ...]:
        left = remove_columns(table.defined_columns, names, self._limits)
        for index in table.indexes:
            used = set(names).intersection((*index.key, *index.columns))
            if used:
                raise invalid(f"Defined column '{min(used)}' is used by index '{index.name}'.")
        return left

    async def _change(
        self,
        identity: Identity,
        name: str,
        columns: Callable[[Table], tuple[DefinedColumn, ...]],
    ) -> None:
        check_table_name(name, self._limits)
        known = self._directory.table(identity.instance, name)
        if known.main:
            raise read_only(known)
        columns(known)
        self._throttle.take(identity.instance)

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            table = catalog.table(identity.instance, name)
            if table is None:
                raise no_table()
            changed = replace(table, defined_columns=columns(table))
            return [Document(TABLE, table_id(table), table_content(changed))]

        await self._placement.change(decide)
