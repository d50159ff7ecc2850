"""Who folds records of a successor folds the rows of indexes, too, that it has not heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rowtide.core.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.chunk import header, table_prefix
from rowtide.core.mutation import UPDATE
from rowtide.core.schema import LOCAL, Index
from rowtide.stream.shards.row_store import RowStore
from tests.simulation.network import Fate
from tests.simulation.scene import ROW, SHARD, Scene
from tests.simulation.tables import INSTANCE
from tests.simulation.test_lost_tails import told

A, B = 0, 1
LONG_MS = 600_000
DCT_STRING = 4


def test_rows_of_an_index_that_a_successor_made_are_not_passed_over() -> None:
    """An owner stood still as it opened a shard; its successor had an index made, and wrote. It
    folded that by the table of before, and later served these rows without what the index has."""
    made: list[int] = []

    def indexed(catalog: Catalog, _stamp: int) -> Sequence[Document]:
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
        await scene.done(B)
        scene.worker(A).link.fates.extend([Fate.REFUSED] * 3)
        world.shared.group.divide({0: scene.worker(A).address})
        await scene.until(lambda: not scene.worker(A).link.fates)
        world.pause(A, LONG_MS)
        await scene.until(lambda: scene.serves(B))
        scene.worker(B).link.flush_fates.extend([Fate.REFUSED] * 500)
        work = scene.begin(B, scene.worker(B).placement.change(indexed))
        await scene.until(work.done)
        work.result()
        await scene.done(B, UPDATE)
        told_by_b = rows_of_index(scene.shard(B).rows)
        assert told_by_b
        before = scene.shard(B).end
        world.thaw(scene.worker(A))
        log = world.broker.log((f"sim.shard.{SHARD}", 0))
        await scene.until(lambda: log.end > before)
        await scene.watch(0.4)
        world.kill(B, 0)
        await scene.until(lambda: scene.serves(A))
        await scene.watch(1)
        assert rows_of_index(scene.shard(A).rows) == told_by_b

    told(story, workers=2)
