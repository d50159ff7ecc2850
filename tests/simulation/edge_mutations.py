"""Faults planted in what requests pass through (transactions, ranges), and in the reclaimer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from rowtide.core.records import record
from rowtide.core.records.record import CopyEntry
from rowtide.core.rows.chunk import DELETED
from rowtide.core.rows.fold import ChunkReader, Writes
from rowtide.core.shard import group
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.reclaim import _Row
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.transaction_id import COMMITS, TransactionId, session_missing
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.schema import Table
from rowtide.stream.api import row
from rowtide.stream.routing import fan_out
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.open_transactions import OpenTransactions
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.waiting import Tell
from rowtide.stream.slot.changelog.changelog import OpenWriting, SlotChangelog
from rowtide.stream.slot.changelog.flush_scope import FlushScope
from tests.simulation.mutation import Mutation
from tests.simulation.program import EDGE_FROM, EXPIRING_FROM, RECLAIM_FROM

__all__ = ["EDGE", "EXPIRING", "RECLAIMING", "make_mutation_behind"]

_refolded = Shard._refold
_retable = Shard.retable
_slice = ShardCopy._slice
_commit = ShardOwner.commit
_grouped = group.form_group
_kept = fan_out._catch_error
_writes = _Row.writes


def _refold_no_commit(
    self: Shard, body: record.Body, offset: int, stamp: int
) -> tuple[bytes, Writes]:
    log_key, writes = _refolded(self, body, offset, stamp)
    return log_key, [] if isinstance(body, record.Commit) else writes


def _slice_no_commits(
    self: ShardCopy, at: bytes, high: bytes
) -> tuple[list[CopyEntry], bytes | None]:
    entries, following = _slice(self, at, high)
    return [entry for entry in entries if entry[0][:1] != COMMITS], following


def _commit_without_search(self: ShardOwner, transaction_id: TransactionId, tell: Tell) -> None:
    if self.transactions.get(transaction_id) is None:
        raise session_missing()  # It may be one that was committed.
    _commit(self, transaction_id, tell)


def _free(self: OpenTransactions, partition_key: bytes) -> None:
    """Delay no request."""


def _one_by_one(records: list[Evaluated], shard: Shard) -> list[Evaluated]:
    return [one._replace(group=record.SINGLE) for one in _grouped(records, shard)]


def _skip_question(*_asked: object) -> None:
    """Ask for nothing."""


async def _keep_as_failure(answer: Awaitable[bytes]) -> bytes | StoreError:
    reply = await _kept(answer)
    return Unavailable() if isinstance(reply, OutcomeUnknown) else reply


def _retable_keeps_keys(self: Shard, table: Table) -> None:
    indexes, same = self.indexes, table.indexes == self.table.indexes
    _retable(self, table)
    if same:
        self.indexes = indexes  # With the keys of the table that it was begun under.


def _all_unheld(_self: OpenTransactions, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
    return [(first, last)]


def _holds_nothing(_self: OpenTransactions, _first: bytes, _last: bytes) -> bool:
    return False


def _refold_surplus_only(
    self: Shard, body: record.Body, offset: int, stamp: int
) -> tuple[bytes, Writes]:
    if isinstance(body, record.Reclaim):
        body = replace(body, version_cutoff_ms=0)  # Not what had expired then.
    return _refolded(self, body, offset, stamp)


def _list_writes_without_stamp(self: _Row, rows: ChunkReader) -> Writes:
    return [
        (chunk_key, None if value is not None and value[1] & DELETED else value)
        for chunk_key, value in _writes(self, rows)
    ]


async def _bury_anyhow(
    self: SlotChangelog, _scope: Callable[[], FlushScope], graves: Mapping[bytes, int]
) -> None:
    async with self._writing:
        if isinstance(state := self._state, OpenWriting):
            state.flush.bury(graves)  # Be they another's, who has not sent their deletes yet.


def make_mutation_behind(
    behind: int,
    name: str,
    owner: object,
    method: str,
    instead: Callable[..., object],
    seeds_max: int = 10,
) -> Mutation:
    """Return a fault of one method that some of the first seeds from ``behind`` on find."""
    return Mutation(name, [(owner, method, instead)], seeds_max, behind=behind)


at_the_edge = partial(make_mutation_behind, EDGE_FROM)

EDGE = [
    at_the_edge("forget on recovery what was committed", Shard, "_refold", _refold_no_commit),
    at_the_edge("copy no commits", ShardCopy, "_slice", _slice_no_commits),
    at_the_edge("look for no earlier commit", ShardOwner, "commit", _commit_without_search),
    at_the_edge("let others write what is held", OpenTransactions, "require_free", _free),
    at_the_edge("log a transaction one by one", group, "form_group", _one_by_one, 160),
    at_the_edge(
        "tell a part without an answer as failed", fan_out, "_catch_error", _keep_as_failure, 120
    ),
    at_the_edge("answer a range by other shards", row, "require_known", _skip_question),
]
"""Each in runs of seeds from ``EDGE_FROM`` on."""

RECLAIMING = [
    make_mutation_behind(
        RECLAIM_FROM, "bury what others deleted", SlotChangelog, "bury", _bury_anyhow
    ),
    make_mutation_behind(
        RECLAIM_FROM, "reclaim rows of other shards", Shard, "retable", _retable_keeps_keys
    ),
    Mutation(
        "reclaim what a transaction holds",
        [
            (OpenTransactions, "list_free_ranges", _all_unheld),
            (OpenTransactions, "is_held", _holds_nothing),
        ],
        60,
        behind=RECLAIM_FROM,
    ),
]
"""Each in runs of seeds from ``RECLAIM_FROM`` on."""

while_expiring = partial(make_mutation_behind, EXPIRING_FROM)

EXPIRING = [
    while_expiring("keep on recovery what expired", Shard, "_refold", _refold_surplus_only),
    while_expiring("let rows expire unstamped", _Row, "writes", _list_writes_without_stamp),
]
"""Each in runs of seeds from ``EXPIRING_FROM`` on."""
