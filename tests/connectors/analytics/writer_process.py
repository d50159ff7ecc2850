"""A process that writes a known history into a target until it is killed.

    python writer_process.py KIND FOLDER FIRST

Change number i is always the same, so a test knows what every row must be. After each
durable batch the process prints a line: the number of the next change.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from rowtide.connectors.rows import SinkBatch
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import SHAPE, STAMP_FIRST, State, batch_of
from tests.connectors.analytics.targets import MAKERS

__all__ = ["BATCH", "CHANGES_MAX", "batch", "state"]

BATCH = 20
KEYS = 150
CHANGES_MAX = 100_000


def state(number: int) -> State:
    """Return the row of a key after change ``number``."""
    key = (("customer", "c"), ("Number", number * 7919 % KEYS), ("order", b""))
    if number % 11 == 0:
        return State(key, STAMP_FIRST + number, None)
    value: Scalar = number if number % 5 else f"text {number}"
    # New columns go on coming, so that a kill may meet the making of one.
    columns: dict[str, Scalar] = {"value": value, f"c{number // 60 % 40}": number / 3}
    return State(key, STAMP_FIRST + number, columns)


def batch(first: int) -> SinkBatch:
    """Return the batch that begins with change ``first``."""
    return batch_of(*(state(number) for number in range(first, first + BATCH)))


async def write(kind: str, folder: Path, first: int) -> None:
    sink = MAKERS[kind](folder).make()
    await sink.open(SHAPE)
    for number in range(first, CHANGES_MAX, BATCH):
        refused = await sink.apply(batch(number))
        assert refused == []
        print(number + BATCH, flush=True)  # noqa: T201  The test reads it.


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
