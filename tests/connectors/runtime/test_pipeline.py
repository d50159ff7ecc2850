"""What becomes of a batch that fails between the sink and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import pytest

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.worker import Batch
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.runtime.parking import ParkedEntry, ParkedRows
from rowtide.connectors.runtime.pipeline import Pipeline, Target
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.core.records.change import UPDATE, Change, ChangeParts, ChangeTable
from rowtide.core.values import key, variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

KEY = variant.encode("a")
CELLS = [Cell(b"v", PUT, variant.encode(1), 1, 0)]
NOW_US = 2_000


class Ahead:
    """A table whose rows are as of ``NOW_US``, later than any change that is read."""

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        return {key_bytes: CurrentRow(CELLS, NOW_US) for key_bytes in keys}


class Behind:
    """A table whose shard has logged an update and applies it at the third read.

    A reader of the log may have the update before.
    """

    def __init__(self) -> None:
        self.asked = 0

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        self.asked += 1
        row = CurrentRow(CELLS, NOW_US) if self.asked > 2 else CurrentRow(None, 500)
        return dict.fromkeys(keys, row)


class Taking:
    """A sink that takes every row."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Mapping[str, Scalar] | None]] = []

    async def open(self, table: TableShape) -> None:
        pass

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        self.rows.extend((row.stamp, row.columns) for row in batch)
        return []

    async def close(self) -> None:
        pass


class Refusing:
    """A sink that takes no row."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def open(self, table: TableShape) -> None:
        pass

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        self.asked.extend(row.stamp for row in batch)
        return [Refused(row, "no") for row in batch]

    async def close(self) -> None:
        pass


class AwayOnce:
    """Entries that can't be written the first time."""

    def __init__(self) -> None:
        self.keys: dict[bytes, list[ParkedEntry]] = {}
        self.parked: list[bytes] = []
        self._away = True

    async def load(self) -> None:
        pass

    async def park(self, refused: Sequence[Refused], shard_id: str, *, most: int) -> None:
        if self._away:
            self._away = False
            raise Unavailable
        self.parked.extend(row.key_bytes for row, _ in refused)


def update(stamp_us: int) -> Batch:
    table = ChangeTable("t", (b"id",))
    return Batch(
        "t", "s1", [Change.of(UPDATE, table, "s1", stamp_us, ChangeParts([KEY], CELLS, None))]
    )


async def test_a_row_that_was_refused_and_could_not_be_parked_is_told_again() -> None:
    """It was ahead of the stream, so the batch that came again passed it over: it was lost."""
    sink, parked = Refusing(), AwayOnce()
    target = Target(sink, Transforms(), None, cast(ParkedRows, parked), 10)
    pipeline = Pipeline(cast(ApiSource, Ahead()), target, Progress(), asyncio.Event())
    with pytest.raises(Unavailable):
        await pipeline.handle(update(1_000))
    await pipeline.handle(update(1_000))
    assert sink.asked == [NOW_US, NOW_US]
    assert parked.parked == [key.encode([KEY])]
    await pipeline.handle(update(1_500))
    assert sink.asked == [NOW_US, NOW_US], "the row was passed on as of a later stamp"


async def test_an_update_that_its_shard_has_not_applied_yet_is_waited_for() -> None:
    """Once the former row was applied in its place, with an earlier stamp, and the update
    was lost.
    """
    sink = Taking()
    target = Target(sink, Transforms(), None, cast(ParkedRows, AwayOnce()), 10)
    pipeline = Pipeline(cast(ApiSource, Behind()), target, Progress(), asyncio.Event())
    await pipeline.handle(update(1_000))
    assert sink.rows == [(NOW_US, {"v": 1})]
