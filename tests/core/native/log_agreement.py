"""Batches of records for a log, by kernels against Python: the same bytes.

As in ``agreement.py``, a function fails where the two ways differ, and returns whether the kernels
did answer.
"""

from __future__ import annotations

from collections.abc import Callable

from rowtide.core.records.change_body import KEPT_BEGIN
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, Table, TableOptions
from rowtide.stream.log.kafka.record_batch import NO_PRODUCER, Producer, encode_batch
from tests.core.native.inputs import STAMP, VERSION_MS, Inputs
from tests.core.native.ways import python
from tests.core.shard_model import Store

__all__ = ["LOG_AGREEMENTS", "batch_entries"]

KEY = (KeyColumn("id", STRING), KeyColumn("n", INTEGER))
TABLE = Table("i", "t", 1, KEY, TableOptions(), None, 0, 0, 1, 1, ())
NUMBERS = (0, 1, 63, 64, 8192, 2**31, STAMP, 2**62)
SIZES = (0, 1, 5, 63, 64, 127, 128, 300, 8200)
OUTCOME = Outcome(b"", 0, 1)
LAST_WITHOUT_KEPT, KEPT = bytes((KEPT_BEGIN - 1,)), bytes((KEPT_BEGIN,))
"""First bytes of bodies. Those from the second on are written with another schema."""

Headers = list[tuple[str, bytes]]
Entry = tuple[bytes, bytes | None, Headers]


def _text(inputs: Inputs) -> bytes:
    chance = inputs.chance
    return bytes((chance.randrange(256),)) * chance.choice(SIZES)


def batch_entries(inputs: Inputs, *, headers: bool) -> list[Entry]:
    """Return entries for Kafka, some of them tombstones, one or none with headers."""
    chance = inputs.chance
    entries: list[Entry] = []
    for _ in range(chance.choice((1, 2, 3, 70))):
        value = None if chance.randrange(5) == 0 else _text(inputs)
        entries.append((_text(inputs), value, []))
    if headers:
        key, value, _ = entries[-1]
        entries[-1] = key, value, [("stamp", b"17")]
    return entries


def record_batches(inputs: Inputs) -> bool:
    """Compare whole batches, of logs and of transactions."""
    chance = inputs.chance
    has_headers = chance.randrange(10) == 0
    given = batch_entries(inputs, headers=has_headers)
    producer = NO_PRODUCER
    if chance.randrange(2):
        producer = Producer(
            chance.choice(NUMBERS), chance.randrange(2**15), chance.randrange(2**31)
        )
    now_ms = chance.choice((0, VERSION_MS))

    def encode() -> bytes:
        if has_headers or producer is not NO_PRODUCER:
            return encode_batch(given, producer, now_ms=now_ms)
        pairs = [(key, value or b"") for key, value, _ in given]
        return encode_batch(pairs, producer, now_ms=now_ms)

    assert encode() == python(encode)
    return not has_headers


def records(inputs: Inputs) -> bool:
    """Compare the records of several changes at once."""
    chance = inputs.chance
    shard = Shard("s1", TABLE, Store(), ShardState(TABLE.options), limits=Limits())
    shard.adopt_claim(chance.choice(NUMBERS), bytes((chance.randrange(256),)) * 8)
    schemas = chance.choice(
        ((b"\0", LAST_WITHOUT_KEPT), (KEPT, b"\xff"), (LAST_WITHOUT_KEPT, KEPT))
    )
    batch = [
        Evaluated(
            OUTCOME,
            chance.choice(NUMBERS),
            _text(inputs),
            chance.choice(schemas) + _text(inputs),
            group=chance.randrange(4),
        )
        for _ in range(chance.choice((1, 2, 70)))
    ]
    base = chance.choice(NUMBERS)
    assert shard.encode_records(batch, base) == python(lambda: shard.encode_records(batch, base))
    return len({(evaluated.body or b"") >= KEPT for evaluated in batch}) == 1


LOG_AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {
    "record_batch": record_batches,
    "write_records": records,
}
