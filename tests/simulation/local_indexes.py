"""A local index that is made of the rows there are and dropped again, while everything goes on.

Its rows are in the shards of its table. Until a shard has gone through its rows, the index may lack
some of them, but it has none that the table has not.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.shard.index import BUILT, build_key
from rowtide.core.values import variant
from rowtide.core.values.schema import LOCAL, Index
from rowtide.stream.shard.row_store import RowStore
from tests.simulation.index_rows import index_rows_in, index_rows_of
from tests.simulation.row_model import Columns
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import INSTANCE, PLAIN
from tests.support.waiting import until_async

__all__ = ["NEAR", "check_local", "local_indexes", "until_built"]

NEAR = Index("near", 0, LOCAL, ("name", "n", "number"), ("mark", "c1"), 0)
"""The index. A row without the counter is not in it, and has another place there when it counts."""

BUILT_S = 120.0


async def until_built(worker: SimulatedWorker) -> None:
    """Wait until no local index is being built."""
    await until_async(
        lambda: not any(i.building for i in local_indexes(worker.catalog, PLAIN)),
        f"{worker.address} has built its indexes",
        s_max=BUILT_S,
        poll_s=0.1,
    )


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
