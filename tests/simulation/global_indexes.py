"""Global indexes in a simulated cluster: made and dropped, and what their rows must be.

An index's shard says, in the same write as its rows, how far it has followed the log of each shard
of its table. So its rows are known at every moment: those that the table had as of these places.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rowtide.core.records import record
from rowtide.core.shard.index import decode_fed, feed_key
from rowtide.core.shard.shard import Shard
from rowtide.core.values.schema import GLOBAL, Index, Table
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from tests.simulation.clients import Clients
from tests.simulation.index_rows import index_rows_in, index_rows_of
from tests.simulation.row_model import TableModel
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import ANYWHERE, KEPT
from tests.support.waiting import until_async

__all__ = ["AGAIN", "check_followed", "check_index", "wait_for_indexes"]

AGAIN = Index("again", 0, GLOBAL, ANYWHERE, KEPT, 0)
"""The index that comes and goes."""

FOLLOWED_S = 120.0


async def wait_for_indexes(worker: SimulatedWorker) -> None:
    """Wait until every global index has followed every log of its table to its end."""
    await until_async(
        lambda: not _behind(worker),
        lambda: f"{worker.address} does not follow: {_behind(worker)}",
        s_max=FOLLOWED_S,
        poll_s=0.1,
    )


def _behind(worker: SimulatedWorker) -> list[str]:
    """Return which indexes have not followed which logs, or are still being built."""
    ends = {owner.shard.shard_id: owner.end for owner in worker.open_shards()}
    behind: list[str] = []
    for _table, index in _indexes(worker.catalog.tables_by_id):
        behind += [index.name] * index.building
        [shard] = index.shards
        feeder = worker.roster.slots[shard.slot].feeders[shard.shard_id]
        for source, at in feeder.find_progress().items():
            if source in ends and at.following < ends[source]:
                behind.append(f"{index.name} of {source}")
    return behind


def check_followed(clients: Clients, worker: SimulatedWorker) -> None:
    """An index that has followed everything has the rows of its table, and no others."""
    open_shards = {owner.shard.shard_id: owner for owner in worker.open_shards()}
    for table, index in _indexes(worker.catalog.tables_by_id):
        owner: ShardOwner = open_shards[index.shards[0].shard_id]
        model = clients.model(table.name)
        last = {name: model.at(name, model.last(name)) for name in _names(model)}
        found = index_rows_in(owner.rows, index)
        assert found == index_rows_of(last, index), f"{index.name} in the end"


def check_index(clients: Clients, where: str, shard: Shard, rows: RowStore) -> None:
    """An index has the rows of its table, as of the positions in its log.

    The rows' store may have a further position: a copy reads the changelog as it comes.
    """
    number = shard.table.table_id
    known = [pair for pair in _indexes(clients.catalog.tables_by_id) if pair[1].table_id == number]
    if not known or known[0][1].created_us:
        return  # It is dropped, or may not have all that was there before.
    [(table, index)] = known
    where = f"{index.name} in {shard.shard_id} at {where}, applied {shard.state.applied}"
    model, stamps = clients.model(table.name), dict[str, int]()
    places = _places(clients, shard.shard_id, shard.state.applied)
    for source, followed in places.items():
        value = rows.get(feed_key(number, source))
        assert value is not None, f"{where} does not know that it follows {source}"
        assert followed <= decode_fed(value).following, f"{where} has {source} to come again"
        for valid in model.logs[source].changes:
            if valid.offset < followed:
                name, _ = valid.row_and_mark
                stamps[name] = max(stamps.get(name, 0), valid.stamp)
    followed_rows = {name: model.at(name, stamp) for name, stamp in stamps.items()}
    assert index_rows_in(rows, index) == index_rows_of(followed_rows, index), where


def _places(clients: Clients, shard_id: str, applied: int) -> dict[str, int]:
    """Return how far an index has followed each log, by the entries of its own."""
    places: dict[str, int] = {}
    for entry in clients.log(shard_id).everything[: applied + 1]:
        at, source, following = _read_feed(entry.value)
        if at == entry.offset and source:
            places[source] = max(places.get(source, 0), following)
    return places


@lru_cache(maxsize=8192)
def _read_feed(value: bytes) -> tuple[int, str, int]:
    """Return an entry's offset, the log that an index followed by it, and how far.

    Each check reads whole logs, so an entry is decoded once.
    """
    envelope, body = record.decode_record(value)
    if isinstance(body, record.IndexFeed):
        return envelope.at, body.source, body.following
    return envelope.at, "", 0


def _indexes(tables: Mapping[int, Table]) -> list[tuple[Table, Index]]:
    return [
        (table, index)
        for table in tables.values()
        for index in table.indexes
        if index.kind == GLOBAL
    ]


def _names(model: TableModel) -> set[str]:
    return {valid.row_and_mark[0] for log in model.logs.values() for valid in log.changes}
