"""A local index that is made of the rows there are and dropped again, while everything goes on.

Its rows are in the shards of its table. Until a shard has gone through its rows, the index may lack
some of them, but it has none that the table has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from rowtide.core import variant
from rowtide.core.catalog import Catalog
from rowtide.core.errors import StoreError
from rowtide.core.index import BUILT, build_key
from rowtide.core.schema import LOCAL, Index
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.shards.row_store import RowStore
from tests.simulation.index_rows import index_rows_in, index_rows_of
from tests.simulation.row_model import Columns
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import ADMIN, INSTANCE, PLAIN

__all__ = ["check_local", "created", "dropped", "local_indexes", "until_built"]

NAME = "near"
KEY = ("name", "n", "number")
"""A row without the counter is not in the index, and has another place there when it counts."""

COLUMNS = ("mark", "c1")
BUILT_S = 120.0


async def created(worker: SimulatedWorker) -> None:
    """Create the index, of the rows there are."""
    request = pb.CreateIndexRequest(main_table_name=PLAIN, include_base_data=True)
    request.index_meta.name = NAME
    request.index_meta.primary_key.extend(KEY)
    request.index_meta.defined_column.extend(COLUMNS)
    request.index_meta.index_update_mode = pb.IUM_SYNC_INDEX
    request.index_meta.index_type = pb.IT_LOCAL_INDEX
    with suppress(StoreError):
        await worker.indexes.create_index(ADMIN, request.SerializeToString())


async def dropped(worker: SimulatedWorker) -> None:
    """Drop it."""
    request = pb.DropIndexRequest(main_table_name=PLAIN, index_name=NAME)
    with suppress(StoreError):
        await worker.indexes.drop_index(ADMIN, request.SerializeToString())


async def until_built(worker: SimulatedWorker) -> None:
    """Wait until no local index is being built."""
    try:
        async with asyncio.timeout(BUILT_S):
            while any(i.building for i in local_indexes(worker.catalog, PLAIN)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{worker.address} builds an index for ever") from None


def local_indexes(catalog: Catalog, name: str) -> list[Index]:
    """Return those that a table has."""
    table = catalog.tables.get((INSTANCE, name))
    return [index for index in table.indexes if index.kind == LOCAL] if table is not None else []


def check_local(
    where: str,
    shard_id: str,
    rows: RowStore,
    index: Index,
    expected: Mapping[str, Columns | None],
    *,
    serving: bool,
) -> None:
    """A local index has the rows of its shard, given by name: all of them once it is built."""
    names = {variant.encode(name) for name in expected}
    found = {of: row for of, row in index_rows_in(rows, index).items() if of[0] in names}
    must = index_rows_of(expected, index)
    whole = rows.get(build_key(index.table_id, shard_id)) == BUILT
    if not (whole or (serving and not index.building)):
        must = {of: row for of, row in must.items() if of in found}
    assert found == must, f"{index.name} of {where}"
