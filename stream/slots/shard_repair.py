"""What a shard has lost whose log lacks acknowledged entries, and how it goes on without them.

Two things may have happened to a log. It *ends early*: the broker lost its last entries. The rows
here still have what these did, and keep it; readers of the stream never see them. Every chunk goes
to the changelog again, then no-ops take the places of what is gone, so that positions stay true.
It *begins late*: entries were deleted that the rows had not applied. What these did is gone.

Done in this order, each step can be repeated after a crash: until the last one the shard stays
closed.
"""

from __future__ import annotations

from typing import NamedTuple

from rowtide.core import record
from rowtide.core.errors import Unavailable, invalid
from rowtide.core.mark import encode_mark, mark_key
from rowtide.stream.shards.owner import ShardOwner
from rowtide.stream.slots.reclaimer import chunk_ranges

__all__ = ["Loss", "fill_log", "find_loss", "hold_rows"]

FILL_RECORDS = 1000
APPEND_S = 10.0


class Loss(NamedTuple):
    """Entries ``first`` to ``last`` are gone from a log; ``in_rows``: what they did is not."""

    shard: str
    first: int
    last: int
    in_rows: bool


async def find_loss(owner: ShardOwner) -> Loss:
    """Compare a closed shard's log with its rows. Raises ``Rejected`` where nothing is missing."""
    shard, applied = owner.shard.shard_id, owner.shard.state.applied
    start, end = await owner.log.bounds()
    if end <= applied:
        return Loss(shard, end, applied, in_rows=True)
    if start > applied + 1:
        return Loss(shard, applied + 1, start - 1, in_rows=False)
    raise invalid(
        f"The log of shard '{shard}' lacks nothing that its rows know of: it is closed for what it "
        f"holds."
    )


def hold_rows(owner: ShardOwner, loss: Loss) -> None:
    """Let the rows stand as they are: the next flush writes all of them, and their mark."""
    if not loss.in_rows:
        owner.shard.state.applied = loss.last
        state = owner.shard.state
        owner.rows.write([], [(mark_key(loss.shard), encode_mark(state))])
    for low, high in chunk_ranges(owner):
        owner.dirty.update(owner.rows.changed_since(low, high, 0))
    owner.accounted = True


async def fill_log(owner: ShardOwner, loss: Loss, claim: int, writer: bytes) -> None:
    """Put no-ops where entries are gone from a log's end. Raises ``Unavailable``: begin again.

    Their stamps end with that of the last lost entry: each lies above the one before it.
    """
    if not loss.in_rows:
        return
    _, at = await owner.log.bounds()
    body = record.encode_body(record.NoOp())
    while at <= loss.last:
        count = min(FILL_RECORDS, loss.last + 1 - at)
        stamps = [owner.shard.state.stamp - (loss.last - at - n) for n in range(count)]
        envelopes = [
            record.Envelope(at + n, claim, writer, stamp, record.SINGLE)
            for n, stamp in enumerate(stamps)
        ]
        batch = [(b"", record.encode_record(envelope, body)) for envelope in envelopes]
        if await owner.log.append(batch, deadline_s=APPEND_S) != at:
            raise Unavailable(f"{owner.log.name} grows meanwhile")
        at += count
