"""What must hold, at every moment and in the end: the invariants of the design.

At every moment: what is acknowledged stands once in its log; stamps increase; per row the log has
changes in the order in which clients saw them happen; whoever may serve strong reads has all that
is acknowledged; nobody serves beside another; rows are the fold of the log up to what is applied,
and so are indexes. In the end also: what was refused is nowhere, what is unknown is whole or
absent, a reader of the stream sees exactly the valid changes, and the log alone gives the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.records import record
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.errors import LogTrimmed, Unavailable
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.copy import row_ranges
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.stream_reader import find_stamp, read_page
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from tests.simulation.clients import Attempt, Clients, row_in, shown
from tests.simulation.global_indexes import check_index
from tests.simulation.local_indexes import check_local, local_indexes
from tests.simulation.memory_rows import Disk, MemoryRows
from tests.simulation.row_model import Columns, TableModel, newest_of
from tests.simulation.simulated_worker import TOPICS, SimulatedWorker
from tests.simulation.tables import (
    INDEX,
    INDEXED,
    INSTANCE,
    PLACES,
    PLAIN,
    TABLES,
    Place,
    places_in,
)

__all__ = ["check_lineage", "check_now", "check_outcomes", "check_rebuilt", "check_stream"]

WAIT_S_MAX = 12.5
"""What a client of a worker that runs may wait: ``write_s_max``, and how often it is looked at."""


def check_now(clients: Clients, workers: Sequence[SimulatedWorker], now_s: float) -> None:
    """Hold what holds at every moment."""
    for table in TABLES:
        clients.model(table)
    serving: dict[str, str] = {}
    for worker in workers:
        for owner in worker.open_shards() if worker.alive else ():
            _check_open(clients, worker, owner)
            if _readable(owner):
                shard_id = owner.shard.shard_id
                other = serving.setdefault(shard_id, worker.address)
                assert other == worker.address, f"{other} and {worker.address} serve {shard_id}"
        for copy in worker.list_copied_shards() if worker.alive else ():
            _check_copy(clients, worker, copy)
    for attempt in clients.attempts:
        if attempt.result is None and attempt.worker.alive and not attempt.worker.process.frozen:
            waited_s = now_s - max(attempt.since_s, attempt.worker.thawed_s)
            assert waited_s < WAIT_S_MAX, f"a client waits for ever: {attempt}"


def _readable(owner: ShardOwner) -> bool:
    with suppress(Unavailable):
        owner.require_readable()
        return True
    return False


def _check_rows(
    clients: Clients, where: str, shard: Shard, rows: RowStore, stamp: int, *, serving: bool
) -> list[Place]:
    """Rows are the fold of the log up to a stamp; return which rows may be there."""
    if shard.table.main:
        check_index(clients, where, shard, rows)
        return []
    known = clients.shards.get(shard.shard_id)
    if known is None:
        return []
    table, place = known
    model = clients.model(table)
    places = places_in(shard.table.table_id, place)
    where = f"{shard.shard_id} at {where}, applied {shard.state.applied}"
    expected = {place: model.at(place.name, stamp) for place in places}
    assert difference(rows, expected) == [], where
    for at, row in expected.items():
        clients.check_whole(at, newest_of(row))
    by_name = {at.name: row for at, row in expected.items()}
    if table == INDEXED:
        check_local(where, shard.shard_id, rows, INDEX, by_name, serving=True)
    for index in local_indexes(clients.catalog, PLAIN) if table == PLAIN else ():
        check_local(where, shard.shard_id, rows, index, by_name, serving=serving)
    return places


def _check_open(clients: Clients, worker: SimulatedWorker, owner: ShardOwner) -> None:
    """An open shard has the rows of its log; a readable one has all that is acknowledged.

    What it goes over by itself, to reclaim or to build an index, are its own keys.
    """
    place = owner.shard.indexes.place()
    assert (place.begin, place.end) == owner.shard.keys, f"{owner.shard.shard_id} goes over others'"
    stamp = owner.shard.state.stamp
    serving = _readable(owner)
    places = _check_rows(clients, worker.address, owner.shard, owner.rows, stamp, serving=serving)
    for at in places if serving else ():
        missed = clients.acknowledged[at]
        where = f"{owner.shard.shard_id} at {worker.address}"
        assert missed <= stamp, f"{where}: a strong read of {at} misses {missed}"


def _check_copy(clients: Clients, worker: SimulatedWorker, copy: StandbyShard) -> None:
    """A copy has the rows of its log, and all that was acknowledged before it was fresh."""
    where = f"a copy on {worker.address}"
    stamp = _stamp_at(clients, copy)
    places = _check_rows(clients, where, copy.shard, copy.rows, stamp, serving=False)
    assert copy.fresh_s is not None, "it may be read"
    if worker.link.leaders.is_misled((TOPICS.shard(copy.place.shard_id), 0), copy.fresh_s):
        return  # It is as old as the leader that it asks: docs/concepts/guarantees.md says so.
    for place in places:
        missed = clients.find_acknowledged_stamp(place, copy.fresh_s)
        assert missed <= stamp, f"{where}: a read of {place} misses {missed}"


def _stamp_at(clients: Clients, copy: StandbyShard) -> int:
    """Return the highest stamp of what the rows have: nothing of a group that is half read."""
    entries = clients.log(copy.place.shard_id).everything[: copy.shard.state.applied + 1]
    found = [(entry.offset, *_read_place_and_stamp(entry.value)) for entry in entries]
    valid = [stamp for offset, at, stamp in found if at == offset]
    return max(valid, default=copy.place.floor_us)


@lru_cache(maxsize=8192)
def _read_place_and_stamp(value: bytes) -> tuple[int, int]:
    """Return the offset and the stamp in an entry. Each check reads whole logs: decode it once."""
    envelope = record.decode_envelope(value)
    return envelope.at, envelope.stamp


def check_outcomes(clients: Clients) -> None:
    """Compare the answers with the logs, once nothing is in flight."""
    for attempt in clients.attempts:
        if attempt.mark is None:
            continue
        stands = attempt.mark in clients.model(attempt.place.table).stood
        assert stands or not attempt.applied, f"acknowledged and gone: {attempt}"
        refused = not attempt.applied and not attempt.unknown
        assert not (refused and stands), f"refused, and in the log: {attempt}"
    for place in PLACES:
        ours = [a for a in clients.attempts if a.place == place]
        _check_deletes(clients.model(place.table), place, ours)
        _check_order(clients.model(place.table), ours)


def _check_deletes(model: TableModel, place: Place, attempts: Iterable[Attempt]) -> None:
    deletes = [a for a in attempts if a.mark is None]
    logged = sum(
        valid.row_and_mark == (place.name, None)
        for log in model.logs.values()
        for valid in log.changes
    )
    applied = sum(a.applied for a in deletes)
    assert applied <= logged <= applied + sum(a.unknown for a in deletes), f"deletes of {place}"


def _check_order(model: TableModel, attempts: Iterable[Attempt]) -> None:
    """A change that was acknowledged before another one was requested comes before it in
    the log.
    """
    stood = [(a, model.stood[a.mark].stamp) for a in attempts if a.mark in model.stood]
    acknowledged = sorted(((a.result_s, at) for a, at in stood if a.applied), reverse=True)
    latest = -1
    for attempt, stamp in sorted(stood, key=lambda pair: pair[0].since_s):
        while acknowledged and acknowledged[-1][0] < attempt.since_s:
            latest = max(latest, acknowledged.pop()[1])
        assert stamp > latest, f"stands before what was acknowledged before it: {attempt}"


def check_lineage(catalog: Catalog) -> None:
    """Living shards tile the keys; every parent has ended, below its children's first stamp."""
    for table in catalog.tables_by_id.values():
        shards = [] if table.main else list(table.shards)
        borders = [shard.begin for shard in shards] + [b""]
        assert [b"", *(shard.end for shard in shards)] == borders, f"gaps in {table.name}"
        ended = {shard.shard_id: shard for shard in table.ended}
        for child in (*shards, *table.ended):
            for parent in child.parents:
                if parent in ended:
                    assert 0 < ended[parent].sealed_us <= child.floor_us, f"{parent} of {child}"


async def check_stream(clients: Clients, owner: ShardOwner, limits: Sequence[int]) -> None:
    """A reader, whatever its page size, sees every valid change that is kept, and no other.

    Trims go on meanwhile: what was found of a log that begins elsewhere by then counts for nothing.
    """
    while True:
        start, _ = await owner.log.bounds()
        try:
            await _check_from(clients, owner, start, limits)
        except (AssertionError, LogTrimmed):
            if (await owner.log.bounds())[0] == start:
                raise
        else:
            return


async def _check_from(
    clients: Clients, owner: ShardOwner, start: int, limits: Sequence[int]
) -> None:
    shard_id = owner.shard.shard_id
    model = clients.model(clients.shards[shard_id][0])
    kept = [valid for valid in model.logs[shard_id].changes if valid.offset >= start]
    for valid in kept[::-7]:
        assert await find_stamp(owner, valid.stamp, start) in range(start, valid.offset + 1)
    for limit in limits:
        at, stamps = start, []
        while True:
            page = await read_page(owner, at, limit=limit, bytes_max=20_000)
            at = page.next_offset
            stamps += [change.stamp for change in page.changes]
            if page.at_end:
                break
        expected = [valid.stamp for valid in kept]
        assert stamps == expected, f"a reader of pages of {limit} of {shard_id}"


def check_rebuilt(clients: Clients, catalog: Catalog) -> None:
    """The untrimmed logs alone give the same rows: those of a slot, parents first."""
    stores: dict[int, MemoryRows] = {}
    living = {s.shard_id for t in catalog.tables_by_id.values() for s in t.shards}
    for shard_id in sorted(clients.shards, key=lambda name: int(name[1:])):
        name, shard = clients.shards[shard_id]
        if name not in TABLES:
            continue
        table = catalog.tables[INSTANCE, name]
        rows = stores.setdefault(shard.slot, MemoryRows(Disk()))
        if shard.copied:
            for low, high in row_ranges(table, shard):
                rows.write([(chunk, None) for chunk, _ in list(rows.scan(low, high))])
        _replay(table, shard, rows, clients.log(shard_id).everything)
        if shard_id not in living:
            continue
        model, places = clients.model(name), places_in(table.table_id, shard)
        expected = {place: model.at(place.name, INT64_MAX) for place in places}
        where = f"{shard_id} rebuilt from logs alone"
        assert difference(rows, expected) == [], where
        by_name = {place.name: row for place, row in expected.items()}
        for index in local_indexes(catalog, name):
            check_local(where, shard_id, rows, index, by_name, serving=True)


def _replay(table: Table, shard: ShardRange, rows: MemoryRows, log: Sequence[Entry]) -> None:
    state = ShardState(table.options, stamp=shard.floor_us)
    machine = Shard(shard.shard_id, table, rows, state, limits=Limits())
    machine.retable(table)
    for entry in log:
        writes = machine.replay(entry.offset, entry.value).writes
        rows.write(writes, [(mark_key(shard.shard_id), encode_mark(machine.state))])
        machine.settle_writes(writes)


# Rows.


def difference(rows: RangeReader, expected: Mapping[Place, Columns | None]) -> list[str]:
    """Return where rows differ from what is expected."""
    found = {place: row_in(rows, place) for place in expected}
    return [
        f"{place.table}/{place.name}: {shown(found[place])} should be {shown(row)}"
        for place, row in expected.items()
        if found[place] != row
    ]
