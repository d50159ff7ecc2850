"""Random histories through two processes' sinks: the topic has each change once, in order."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rowtide.connectors.rows import SinkBatch, TableShape
from rowtide.connectors.sinks.kafka.sink import KafkaSink
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import KeyColumn
from tests.connectors.kafka.sinks import open_sink, records
from tests.connectors.row_histories import MIXED, Model, histories, put

pytestmark = pytest.mark.kafka

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes on a real broker."""

AVAILABLE_S_MAX = 60.0
AGAIN_S = 0.05


@settings(max_examples=6, phases=PHASES)
@given(
    history=histories(pages=False),
    turns=st.lists(st.booleans(), min_size=20, max_size=20),
    form=st.sampled_from(["json", "json-schemas"]),
)
def test_each_change_is_in_the_topic_once_and_the_fold_is_the_table(
    broker: str,
    history: tuple[tuple[KeyColumn, ...], list[SinkBatch]],
    turns: list[bool],
    form: str,
) -> None:
    columns, batches = history
    asyncio.run(_deliver(broker, TableShape("things", columns), batches, turns, form))


async def _deliver(
    broker: str, table: TableShape, batches: list[SinkBatch], turns: list[bool], form: str
) -> None:
    topic, model = f"t-{uuid4().hex}", Model()
    async with (
        open_sink(broker, topic, table, format=form, partitions=2) as one,
        open_sink(broker, topic, table, format=form, partitions=2) as other,
    ):
        for at, batch in enumerate(batches):
            await _apply_again(one if turns[at % len(turns)] else other, batch)
            model.apply(batch)
        held = [
            (row.key_bytes, row.stamp, dict(row.columns))
            for row in await one.read_rows(b"", b"", limit=99)
        ]
        assert held == [
            (key, stamp, one.convert_columns(columns)) for key, stamp, columns in model.living()
        ]
        wanted = defaultdict(list)
        for stamp, key in sorted({(row.stamp, row.key_bytes) for b in batches for row in b}):
            wanted[key].append(stamp)
        assert await _stamps(broker, topic, one) == wanted


async def test_a_batch_cut_off_anywhere_and_repeated_is_there_once(
    broker: str, topic: str, seed: int
) -> None:
    chance = random.Random(seed)
    stamps = range(1, 61)
    table = TableShape("things", MIXED[:1])
    async with open_sink(broker, topic, table, partitions=3) as sink:
        for first in stamps[::10]:
            rows = [put(at, [at % 7], {"at": at}, sequence=at) for at in range(first, first + 10)]
            batch = SinkBatch("things", "shard-1", rows)
            for _ in range(chance.randint(0, 3)):
                with suppress(TimeoutError, Unavailable):
                    async with asyncio.timeout(chance.uniform(0, 0.1)):
                        await sink.apply(batch)
            await _apply_again(sink, batch)
    found = [e for _, e in await records(broker, topic, 3)]
    assert sorted(int(dict(e.headers)["rowtide.stamp"]) for e in found) == [*stamps]


async def _apply_again(sink: KafkaSink, batch: SinkBatch) -> None:
    """Apply as the runtime does: again, where the sink was not available."""
    async with asyncio.timeout(AVAILABLE_S_MAX):
        while True:
            try:
                assert await sink.apply(batch) == []
                return
            except Unavailable:  # The other one has taken the shard over.
                await asyncio.sleep(AGAIN_S)


async def _stamps(broker: str, topic: str, sink: KafkaSink) -> dict[bytes, list[int]]:
    """Return each key's stamps in topic order, without tombstones."""
    form = sink._form
    assert form is not None
    found = defaultdict(list)
    for _partition, entry in await records(broker, topic, 2):
        if entry.value is not None:
            key, _ = await form.read_record(entry.key, entry.value)
            key_bytes = key_order.encode([variant.encode(value) for value in key.values()])
            found[key_bytes].append(int(dict(entry.headers)["rowtide.stamp"]))
    return found
