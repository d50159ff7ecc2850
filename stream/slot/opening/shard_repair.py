"""What a shard lost whose log lacks acknowledged entries, and how it continues without them.

Three things may have happened to a log:

- It *ends early*: the broker lost its last entries. The rows here still have their changes and
  keep them; readers of the stream never see them. Every chunk, and every note beside the rows,
  goes to the changelog again. Then no-ops take the places of the lost entries, so that
  positions stay valid.
- It ended early and was *filled* since: other entries are there now. The rows keep their state
  and also apply the other entries' changes.
- It *begins late*: entries were deleted that the rows had not applied. Their changes are lost.

In this order each step can be repeated after a crash. The shard stays closed until the
last step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.shard.index import PROGRESS, build_key, feed_key, progress_of
from rowtide.core.shard.mark import encode_mark, entry_digest, mark_key
from rowtide.core.shard.source_position import positions_of
from rowtide.core.shard.transaction_id import COMMITS
from rowtide.core.values.errors import Unavailable, invalid
from rowtide.stream.shard.appender import read_known
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.upkeep.reclaimer import chunk_ranges

__all__ = ["Loss", "fill_log", "find_loss", "hold_rows"]

FILL_RECORDS = 1000
APPEND_S = 10.0


class Loss(NamedTuple):
    """Entries ``first`` to ``last`` are gone from a log; ``in_rows``: the rows have their
    changes.

    ``filled``: other entries are in their places.
    """

    shard: str
    first: int
    last: int
    in_rows: bool
    filled: bool = False


async def find_loss(owner: ShardOwner) -> Loss:
    """Compare a closed shard's log with its rows. Raises ``Rejected`` if nothing is missing."""
    shard, applied = owner.shard.shard_id, owner.shard.state.applied
    start, end = await owner.log.bounds()
    if end <= applied:
        return Loss(shard, end, applied, in_rows=True)
    if start > applied + 1:
        return Loss(shard, applied + 1, start - 1, in_rows=False)
    if start <= applied and await _is_other(owner):
        return Loss(shard, await _find_fill_start(owner, start), applied, in_rows=True, filled=True)
    raise invalid(
        f"The log of shard '{shard}' lacks nothing that its rows know of: it is closed for what it "
        f"holds."
    )


async def _is_other(owner: ShardOwner) -> bool:
    """True if the log has another entry at the rows' mark than the rows."""
    state = owner.shard.state
    [last] = await owner.appender.read(state.applied, state.applied + 1)
    return state.entry is not None and entry_digest(last.value) != state.entry


async def _find_fill_start(owner: ShardOwner, start: int) -> int:
    """Return the first offset with another entry than the rows know of.

    These entries were written later: their stamps are above all stamps in the rows.
    """
    at = owner.shard.state.applied
    while at > start:
        low = max(start, at - FILL_RECORDS)
        for entry in reversed(await owner.appender.read(low, at)):
            if record.decode_envelope(entry.value).stamp <= owner.shard.state.stamp:
                return entry.offset + 1
        at = low
    return at


def hold_rows(owner: ShardOwner, loss: Loss) -> None:
    """Keep the rows as they are: the next flush writes all of them, and their mark."""
    state = owner.shard.state
    state.entry = None  # The log has, or will have, another entry there.
    if loss.filled:
        state.applied = loss.first - 1  # Here, too, once the other entries are folded.
    else:
        state.applied = loss.last
        owner.rows.write([], [(mark_key(loss.shard), encode_mark(state))])
    for low, high in chunk_ranges(owner):
        owner.ledger.add(owner.rows.scan_changed(low, high, 0))
    owner.ledger.add(_scan_notes(owner))
    owner.ledger.is_complete = True


def _scan_notes(owner: ShardOwner) -> Iterator[bytes]:
    """Yield the keys of notes that the shard may have beside its rows.

    The progress of an index that other workers maintain goes to the changelog only with
    their rows: a feed that it has passed is not folded again. Commits and positions may
    be others': they are just as valid.
    """
    shard, rows = owner.shard, owner.rows
    number = shard.table.table_id
    for low, high in (COMMITS, bytes((COMMITS[0] + 1,))), positions_of(number):
        yield from (noted for noted, _ in rows.scan(low, high))
    for noted, _ in rows.scan(PROGRESS, bytes((PROGRESS[0] + 1,))):
        built = build_key(progress_of(noted), shard.shard_id)
        if noted.startswith(feed_key(number, "")) or noted == built:
            yield noted


async def fill_log(owner: ShardOwner, loss: Loss, claim: int, writer: bytes) -> None:
    """Put no-ops in the places of lost entries at a log's end, or fold the entries there.

    The no-ops' stamps end with that of the last lost entry: each is above the one before
    it. Raises ``Unavailable``: start again.
    """
    if not loss.in_rows:
        return
    if loss.filled:
        await _fold(owner, loss.first)
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


async def _fold(owner: ShardOwner, first: int) -> None:
    """Fold a log from ``first`` to its end."""
    at, (_, end) = first, await owner.log.bounds()
    while at < end:
        entries = await read_known(owner.log, at, end)
        owner.fold.replay(entries)
        at = entries[-1].offset + 1
        await asyncio.sleep(0)
