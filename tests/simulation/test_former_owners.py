"""An owner that stood still as it opened a shard, and was succeeded: what it does by the table of
before changes nothing of what its successor has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.rows.chunk import header, table_prefix
from rowtide.core.rows.mutation import UPDATE
from rowtide.core.values.schema import LOCAL, Index
from rowtide.stream.shard.row_store import RowStore
from tests.simulation.network import Fate
from tests.simulation.program import in_world
from tests.simulation.scene import ROW, SHARD, Scene
from tests.simulation.tables import ADMIN, INSTANCE
from tests.simulation.test_lost_tails import run_story
from tests.simulation.world import World

A, B = 0, 1
LONG_MS = 600_000
DCT_STRING = 4


def test_rows_of_an_index_that_a_successor_made_are_not_passed_over() -> None:
    """An owner was paused as it opened a shard. Its successor had an index created, and
    wrote. The former owner folded that by the old table, and later served these rows
    without the index's part.
    """
    made: list[int] = []

    def add_index(catalog: Catalog, _stamp: int) -> Sequence[Document]:
        table, number = catalog.tables[INSTANCE, ROW.table], catalog.next_table_id
        made[:] = [number]
        index = Index("later", number, LOCAL, ("name", "mark", "number"), (), 0, whole=False)
        changed = replace(table, defined_columns=(("mark", DCT_STRING),), indexes=(index,))
        document = Document(TABLE, table_id(table), table_content(changed))
        return [document, catalog.counters(tables=1)]

    def rows_of_index(rows: RowStore) -> list[bytes]:
        low, high = table_prefix(made[0]), table_prefix(made[0] + 1)
        return [key for key, value in rows.scan(low, high) if not header(value)[1] & 1]

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.give(B)
        await scene.write(B)
        scene.worker(A).link.fates.extend([Fate.REFUSED] * 3)
        world.shared.group.divide({0: scene.worker(A).address})
        await scene.until(lambda: not scene.worker(A).link.fates)
        world.pause(A, LONG_MS)
        await scene.until(lambda: scene.serves(B))
        scene.worker(B).link.flush_fates.extend([Fate.REFUSED] * 500)
        work = scene.begin(B, scene.worker(B).placement.change(add_index))
        await scene.until(work.done)
        work.result()
        await scene.write(B, UPDATE)
        rows_of_b = rows_of_index(scene.shard(B).rows)
        assert rows_of_b
        before = scene.shard(B).end
        world.thaw(scene.worker(A))
        log = world.broker.log((f"sim.shard.{SHARD}", 0))
        await scene.until(lambda: log.end > before)
        await scene.watch(0.4)
        world.kill(B, 0)
        await scene.until(lambda: scene.serves(A))
        await scene.watch(1)
        assert rows_of_index(scene.shard(A).rows) == rows_of_b

    run_story(story, workers=2)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_options_of_before_are_not_put_in_force_behind_those_that_a_successor_learned(
    seed: int,
) -> None:
    """It had the old table, so it appended those options, validly, and only then checked
    if it was the owner. The successor used them, and a stream that was off again.
    """

    async def story(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        scene = Scene(world)
        await scene.give(A)
        await scene.write(A)
        await scene.give(B)
        await scene.write(B, UPDATE)
        # As it opens the shards again, its first append to each is refused.
        scene.worker(A).link.fates.extend([Fate.REFUSED] * 3)
        world.shared.group.divide({0: scene.worker(A).address})
        await scene.until(lambda: not scene.worker(A).link.fates)
        world.pause(A, LONG_MS)
        await scene.until(lambda: scene.serves(B))
        await scene.write(B, UPDATE)
        asked = pb.UpdateTableRequest(table_name=ROW.table)
        asked.table_options.max_versions = 7
        update = scene.worker(B).tables.update_table(ADMIN, asked.SerializeToString())
        work = scene.begin(B, update)
        await scene.until(work.done)
        work.result()
        for _ in range(5):
            await scene.write(B, UPDATE)
        await scene.watch(4)
        logs = [world.broker.log((f"sim.shard.{name}", 0)) for name in ("s1", "s2")]
        ends = [log.end for log in logs]
        world.thaw(scene.worker(A))
        await scene.watch(0.1)
        for log, end in zip(logs, ends, strict=True):
            for entry in log.read(end, 1 << 20):
                envelope, body = record.decode_record(entry.value)
                assert envelope.at != entry.offset or not isinstance(body, record.Options)

    in_world(story, workers=2, slots=1, seed=seed)
