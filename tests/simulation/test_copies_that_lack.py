"""A copy that waits for missing entries shows, and folds, nothing after them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.fold import ChunkReader, read_cells
from rowtide.core.rows.mutation import IGNORE, PUT, UPDATE, ChangeRequest
from rowtide.core.values import key, variant
from rowtide.stream.slot.changelog.slot_flush import SlotFlush
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.scene import Scene
from tests.simulation.tables import INDEXED, INSTANCE, Place
from tests.simulation.world import World

A, B = 0, 1
ROW = Place(INDEXED, "a")
AT = row_key(2, key.encode([value for _, value in ROW.key]))
PARENT, CHILD = "s3", "s11"


async def never(_self: SlotFlush) -> None:
    """Flush nothing: what the copy lacks is in the logs alone."""
    await asyncio.Event().wait()


def drop_index(catalog: Catalog, _stamp: int) -> Sequence[Document]:
    """Drop the index."""
    changed = replace(catalog.tables[INSTANCE, INDEXED], indexes=())
    return [Document(TABLE, table_id(changed), table_content(changed))]


def columns(rows: ChunkReader) -> list[bytes]:
    return sorted({cell.name for cell in read_cells(rows, AT) or ()})


def copy_of(scene: Scene, shard_id: str) -> StandbyShard | None:
    found = (c for c in scene.worker(B).list_copied_shards() if c.place.shard_id == shard_id)
    return next(found, None)


async def change(scene: Scene, kind: int, column: bytes) -> None:
    mark = f"m{column.decode()}"
    cells = [
        put_cell(MARK, variant.encode(mark), None),
        put_cell(column, variant.encode("x"), None),
    ]
    asked = ChangeRequest(kind, ROW.key, cells, IGNORE)
    attempt = scene.world.clients.ask(scene.worker(A), ROW, asked, mark)
    await scene.until(lambda: attempt.result is not None)
    assert attempt.applied


def test_a_child_is_not_folded_before_what_its_parent_left() -> None:
    """One page of the parent had its seal and a record of an index dropped since: the copy waited
    for the catalog, took the child's log in, and passed the parent's last change over then."""

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        world.shared.copies = True
        await world.begin()
        scene = Scene(world)
        await scene.give(A)
        await change(scene, PUT, b"c0")
        await scene.until(lambda: (c := copy_of(scene, PARENT)) is not None and not c.lag)
        world.kill(B, 1000)
        await change(scene, UPDATE, b"c1")
        await scene.begin(A, scene.worker(A).catalog_owner.change(drop_index))
        await asyncio.sleep(1)
        world.split(1, 0)
        await scene.until(lambda: world.owner(CHILD) is not None)
        await change(scene, UPDATE, b"c3")
        world.start(B)
        await scene.until(lambda: world.worker(B) is not None)
        await scene.until(lambda: (c := copy_of(scene, CHILD)) is not None and not c.lag)
        await asyncio.sleep(5)
        world.kill(A, 1000)
        await scene.until(lambda: world.owner(CHILD) is not None)
        taken = world.owner(CHILD)
        assert taken is not None
        assert columns(taken[1].rows) == [b"c0", b"c1", b"c3", MARK]

    # The world's own model of the table keeps the index, so nobody checks it.
    with patch.object(SlotFlush, "wait", never), patch.object(World, "check", lambda _: None):
        in_world(program, workers=2, slots=1)
