"""A move that a former owner of the slot begins, and one whose shard no slot folds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from rowtide.core.cluster.catalog import TABLE, Document, reshape_document, table_content, table_id
from rowtide.core.shard.reshape import Reshape
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.slot.reshape import reshapes as slot_reshapes
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import table
from tests.stream.test_slot_reshapes import MOVED, Around, reshapes

FORMER, LATER = 3, 7
"""Claims of two owners of the slot whose shard moves."""


async def test_a_former_owner_does_not_begin_a_copy_in_the_place_of_its_successors() -> None:
    """It was stopped when the move was planned, continued, and had not read the later claim yet.

    The log into which its successor copied was deleted.
    """
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    known = replace(table(), shards=(ShardRange("s1", 0),))
    child = ShardRange("s2", 1, parents=("s1",), copied=True, came=True)
    planned = Reshape("move", known.table_id, ("s1",), (child,), 1)
    await catalog.change(
        lambda c, _s: [
            Document(TABLE, table_id(known), table_content(known)),
            reshape_document(planned),
            c.counters(shards=9),
        ]
    )
    deleted: list[str] = []

    async def delete(shard_ids: Iterable[str]) -> None:
        deleted.extend(shard_ids)

    around: Any = SimpleNamespace(delete=delete)
    operations = ReshapeOperations(around, catalog, around, around, around, around)
    begin = operations.begin_copy_request
    await begin(NOBODY, json.dumps({"id": "s1", "claim": LATER}).encode())
    [begun] = catalog.catalog.reshapes.values()
    with pytest.raises(Unavailable):
        await begin(NOBODY, json.dumps({"id": "s1", "claim": FORMER}).encode())
    assert list(catalog.catalog.reshapes.values()) == [begun]
    assert deleted == []


class Replaced:
    """A copy into a shard that the plan names no more: another was begun in its place."""

    end = 100

    def __init__(self) -> None:
        self._looks = 0

    async def delta(self) -> int:
        return 0

    async def find_received(self, _child: ShardRange) -> int:
        return -1

    def plan(self, _of: str) -> Reshape | None:
        self._looks += 1
        assert self._looks < 1000, "it waits for ever for a shard that never comes"
        return replace(MOVED, children=(ShardRange("s9", 1),), copier=5)


async def test_a_copy_that_another_one_replaced_is_given_up() -> None:
    copying = Replaced()
    of = reshapes(cast(Around, copying))
    with patch.multiple(slot_reshapes, ROUND_S=0.0), pytest.raises(Unavailable):
        await of._catch_up(cast(ShardCopy, copying), MOVED, MOVED.children[0])


class Small:
    """The copy of a small shard, a record of options and one of rows, that no slot folds."""

    end = 2

    def __init__(self) -> None:
        self._looks = 0

    async def delta(self) -> int:
        return 0

    async def find_received(self, _child: ShardRange) -> int:
        return -1

    def plan(self, _of: str) -> Reshape | None:
        self._looks += 1
        return MOVED if self._looks < 20 else None


async def test_a_move_of_a_small_shard_waits_for_a_slot_that_folds_nothing_too() -> None:
    """It was sealed, though the slot that was to open what comes of it was not open."""
    copying = Small()
    of = reshapes(cast(Around, copying))
    with (
        patch.multiple(slot_reshapes, ROUND_S=0.0),
        pytest.raises(Unavailable, match="plan of the move"),
    ):
        await of._catch_up(cast(ShardCopy, copying), MOVED, MOVED.children[0])
