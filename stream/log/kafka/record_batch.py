"""The bytes of a batch of records, as a produce request has them.

A kernel writes most batches. The client library writes those with headers, and all without kernels:
it walks each record's parts. All records of a batch have one time, which is only a hint: topics
take the broker's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from rowtide.core import native

__all__ = ["NO_PRODUCER", "Entries", "Producer", "encode_batch"]

Entries = (
    Sequence[tuple[bytes, bytes]] | Sequence[tuple[bytes, bytes | None, list[tuple[str, bytes]]]]
)
"""Key and value of each record, perhaps with headers. A value that is None is a tombstone."""

MAGIC = 2
UNCOMPRESSED = 0
TRANSACTIONAL = 1 << 4
"""The bit of a batch's attributes that says it is a part of a transaction."""
BYTES_MAX = (1 << 31) - 1


class Producer(NamedTuple):
    """The writer of a batch, and the number of its first record."""

    id: int
    epoch: int
    sequence: int


NO_PRODUCER = Producer(-1, -1, -1)
"""The writer of batches that have no sequence numbers."""


def encode_batch(
    entries: Entries, producer: Producer = NO_PRODUCER, *, now_ms: int | None = None
) -> bytes:
    """Return entries as one batch, which is part of a transaction if it has a producer.

    ``now_ms`` is the time of all records, by default the present time.
    """
    assert entries, "a batch needs an entry"
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    attributes = 0 if producer is NO_PRODUCER else TRANSACTIONAL
    made = native.kernels.record_batch(entries, attributes, now_ms, *producer, BYTES_MAX)
    return made if made is not None else _build(entries, producer, attributes, now_ms)


def _build(entries: Entries, producer: Producer, attributes: int, now_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        MAGIC, UNCOMPRESSED, int(attributes == TRANSACTIONAL), *producer, BYTES_MAX
    )
    for index, (key, value, *rest) in enumerate(entries):
        headers = rest[0] if rest else []
        added = builder.append(index, now_ms, key, value, headers)
        assert added is not None, "a batch below 2 GiB"
    return bytes(builder.build())
