"""Compares the rows of two systems if neither can be read in key order.

Both are read completely, in any order, while they change. Keys fall into buckets by hash,
and each bucket has a sum of its rows' checksums. Buckets with different sums are read
again, key by key. Differing keys are then looked up until they are equal, because a
change of the source may still be on its way to the table. What still differs after all
rounds is reported, as unsettled if the source's row kept changing. Memory: the sums, and
the keys in doubt.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from rowtide.connectors.verify.comparison import (
    Columns,
    Compared,
    Difference,
    Verdict,
    row_bytes,
    row_checksum,
    unequal,
)

__all__ = ["Side", "compare_scans"]

BUCKETS = 1 << 14
LOOK_UP_KEYS = 100
ROUNDS = 30
BEFORE_NEXT_ROUND_S = 0.5

Row = tuple[bytes, Columns]
Rows = Mapping[bytes, Columns]


class Side(Protocol):
    """A system's rows of one table: (encoded key, columns)."""

    def rows(self) -> AsyncIterator[Row]:
        """Yield all rows, each as it is at some time during the read."""
        ...

    async def look_up(self, keys: Sequence[bytes]) -> Rows:
        """Return the current rows of some keys. Missing ones are left out."""
        ...


class _Sums:
    """The number of rows and the sum of their checksums, by bucket."""

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sums = [0] * BUCKETS

    async def read(self, side: Side) -> None:
        async for key, columns in side.rows():
            bucket = _bucket(key)
            self.counts[bucket] += 1
            self.sums[bucket] += row_checksum(key, columns)

    def compare_totals(self, other: _Sums, without: Collection[int]) -> Compared:
        """Return both sides' totals over the equal buckets."""
        chosen = [number for number in range(BUCKETS) if number not in without]
        counts = (sum(sums.counts[n] for n in chosen) for sums in (self, other))
        totals = (sum(sums.sums[n] for n in chosen) % 2**64 for sums in (self, other))
        return Compared((b"", b""), *counts, *totals)


async def compare_scans(
    source: Side,
    target: Side,
    *,
    rounds: int = ROUNDS,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Verdict:
    """Compare all rows of ``target`` with those of ``source``, which is the reference."""
    sums, target_sums = _Sums(), _Sums()
    await sums.read(source)
    await target_sums.read(target)
    doubtful = {
        number
        for number in range(BUCKETS)
        if (sums.counts[number], sums.sums[number])
        != (target_sums.counts[number], target_sums.sums[number])
    }
    verdict = Verdict([sums.compare_totals(target_sums, doubtful)])
    if doubtful:
        rows, held = await _in_buckets(source, doubtful), await _in_buckets(target, doubtful)
        same = [key for key, columns in rows.items() if held.get(key) == columns]
        both = sum(rows[key] for key in same) % 2**64
        verdict.ranges.append(Compared((b"", b""), len(same), len(same), both, both))
        in_doubt = sorted({*rows, *held}.difference(same))
        await _settle(source, target, in_doubt, verdict, rounds, pause)
    return verdict


async def _in_buckets(side: Side, buckets: Collection[int]) -> dict[bytes, int]:
    """Return the checksum of each row in some buckets."""
    return {
        key: row_checksum(key, columns)
        async for key, columns in side.rows()
        if _bucket(key) in buckets
    }


async def _settle(
    source: Side,
    target: Side,
    in_doubt: list[bytes],
    verdict: Verdict,
    rounds: int,
    pause: Callable[[float], Awaitable[None]],
) -> None:
    """Look keys up until they are equal. Add equal and still different ones to the verdict."""
    before: Rows = {}
    for number in range(rounds):
        # Read the target first: what it has must be in the source, or be on its way out.
        held = await _look_up(target, in_doubt)
        rows = await _look_up(source, in_doubt)
        settled = [key for key in in_doubt if _same(rows.get(key), held.get(key))]
        verdict.ranges.append(_totals({key: rows[key] for key in settled if key in rows}))
        in_doubt = [key for key in in_doubt if not _same(rows.get(key), held.get(key))]
        if not in_doubt:
            return
        if number < rounds - 1:
            before = rows
            await pause(BEFORE_NEXT_ROUND_S)
    for key in in_doubt:
        changed = not _same(before.get(key, rows.get(key)), rows.get(key))
        verdict.differences.append(_difference(key, rows.get(key), held.get(key), changed=changed))
    left = _totals({key: rows[key] for key in in_doubt if key in rows})
    right = _totals({key: held[key] for key in in_doubt if key in held})
    verdict.ranges.append(
        left._replace(rows_held=right.rows_held, checksum_held=right.checksum_held)
    )


async def _look_up(side: Side, keys: Sequence[bytes]) -> Rows:
    found: dict[bytes, Columns] = {}
    for at in range(0, len(keys), LOOK_UP_KEYS):
        found.update(await side.look_up(keys[at : at + LOOK_UP_KEYS]))
    return found


def _totals(rows: Rows) -> Compared:
    total = sum(row_checksum(key, columns) for key, columns in rows.items()) % 2**64
    return Compared((b"", b""), len(rows), len(rows), total, total)


def _same(left: Columns | None, right: Columns | None) -> bool:
    if left is None or right is None:
        return left is right
    return row_bytes(left) == row_bytes(right)


def _difference(
    key: bytes, row: Columns | None, held: Columns | None, *, changed: bool
) -> Difference:
    if changed:
        return Difference("unsettled", key)
    if held is None:
        return Difference("missing", key)
    if row is None:
        return Difference("surplus", key)
    return Difference("different", key, unequal(row, held))


def _bucket(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=2).digest(), "big") % BUCKETS
