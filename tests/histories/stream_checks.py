"""Is the stream the history of the rows? Each anomaly that Kafka's checkers know has a check.

``lost``        a write that was acknowledged is not in the stream
``duplicate``   a write is in it twice, or an increment counts twice
``unwritten``   a record of a write that was refused, or that nobody sent
``reordered``   a write that was answered before another was sent stands behind it
``stamps``      places do not rise within a shard
``position``    two readers were given different records, or in a different order
``aborted``     a live reader was given what does not stand in the end
``stale``       a page was empty although an answered write was not yet read
``fold``        rows are not what the stream amounts to
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.histories.operation import Kind, Operation, Outcome, Row
from tests.histories.stream_reading import Record, Tail

__all__ = [
    "Shards",
    "after",
    "check_fold",
    "check_stream",
    "check_tail",
    "fold_records",
    "in_order",
]

Shards = Mapping[str, Sequence[Record]]
"""Records by shard id, parents before their children."""


def check_stream(shards: Shards, history: Sequence[Operation]) -> list[str]:
    """Return what is wrong with a stream, whose shards come parents first, and its writes."""
    writes = {o.mark: o for o in history if o.mark and o.kind is not Kind.GET}
    found = []
    for records in shards.values():
        found += _stamps(records) + _find_reordered(records, writes)
    records = in_order(shards)
    by_key: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_key[record.key].append(record)
    for ours in by_key.values():
        # A row's records may stand in several shards, one after the other.
        found += _stamps(ours) + _find_reordered(ours, writes)
    return [
        *dict.fromkeys(found),
        *_find_lost_or_doubled(records, writes),
        *_deletes(records, history),
        *_numbers_add_up(records, writes),
    ]


def in_order(shards: Shards) -> list[Record]:
    """Return all records, those of a row in the order of its changes."""
    return [record for records in shards.values() for record in records]


def _stamps(records: Sequence[Record]) -> list[str]:
    return [
        f"stamps: {former} is followed by {latter}"
        for former, latter in pairwise(records)
        if former.place >= latter.place
    ]


def _find_lost_or_doubled(records: Sequence[Record], writes: Mapping[str, Operation]) -> list[str]:
    counts = Counter(record.mark for record in records if record.mark is not None)
    found = [f"duplicate: {mark} stands {n} times" for mark, n in counts.items() if n > 1]
    for mark in counts:
        one = writes.get(mark)
        if one is None or one.outcome not in (Outcome.OK, Outcome.UNKNOWN):
            found.append(f"unwritten: {mark} stands, its writer got {one and one.outcome.value}")
    for mark, one in writes.items():
        if one.outcome is Outcome.OK and mark not in counts:
            found.append(f"lost: {one.kind.value} {mark} of {one.key} was acknowledged")
    return found


def _deletes(records: Sequence[Record], history: Sequence[Operation]) -> list[str]:
    """Deletes carry no mark: their number per row is at least that of the acknowledged ones."""
    stand = Counter(record.key for record in records if record.kind == "DELETE")
    deletes = Counter((o.key, o.outcome) for o in history if o.kind is Kind.DELETE)
    found = []
    for key in stand.keys() | {key for key, _ in deletes}:
        least, unknown = deletes[key, Outcome.OK], deletes[key, Outcome.UNKNOWN]
        if stand[key] < least:
            found.append(f"lost: {stand[key]} deletes of {key}, acknowledged were {least}")
        if stand[key] > least + unknown:
            found.append(f"duplicate: {stand[key]} deletes of {key}, {least} + {unknown} were sent")
    return found


def _find_reordered(records: Sequence[Record], writes: Mapping[str, Operation]) -> list[str]:
    """A shard has one order: no write stands behind one that was sent after its answer."""
    found = []
    latest: Operation | None = None
    for record in records:
        one = writes.get(record.mark or "")
        if one is None:
            continue
        if latest is not None and one.returned_s < latest.invoked_s:
            found.append(f"reordered: {one.mark} stands behind {latest.mark}, which was sent later")
        if latest is None or one.invoked_s > latest.invoked_s:
            latest = one
    return found


def _numbers_add_up(records: Sequence[Record], writes: Mapping[str, Operation]) -> list[str]:
    """Every increment adds its number to what stands before it, and returned the sum."""
    rows: dict[str, Row] = {}
    found = []
    for record in records:
        one, row = writes.get(record.mark or ""), rows.get(record.key)
        if one is not None and one.kind is Kind.INCREMENT:
            wanted = ((row[1] if row else None) or 0) + one.number
            if record.number != wanted:
                found.append(f"duplicate: {one.mark} made {record.number}, due was {wanted}")
            if one.outcome is Outcome.OK and one.found != record.number:
                found.append(f"lost: {one.mark} got {one.found}, stands as {record.number}")
        rows[record.key] = after(row, record)
    return found


def fold_records(records: Sequence[Record]) -> dict[str, Row]:
    """Return the rows that a shard's records amount to, absent ones left out."""
    rows: dict[str, Row] = {}
    for record in records:
        rows[record.key] = after(rows.get(record.key), record)
    return {key: row for key, row in rows.items() if row is not None}


def after(row: Row, record: Record) -> Row:
    """Return a row after one of its records."""
    if record.kind == "DELETE":
        return None
    assert record.mark is not None, "every put and update has a mark"
    kept = None if record.kind == "PUT" or row is None else row[1]
    return record.mark, kept if record.number is None else record.number


def check_fold(rows: Mapping[str, Row], records: Sequence[Record], reader: str) -> list[str]:
    """Return where the rows that ``reader`` gave differ from the stream's."""
    wanted = fold_records(records)
    return [
        f"fold: {key} is {rows.get(key)} of {reader}, {wanted.get(key)} of the stream"
        for key in sorted(rows.keys() | wanted.keys())
        if rows.get(key) != wanted.get(key)
    ]


def check_tail(tail: Tail, records: Sequence[Record], history: Sequence[Operation]) -> list[str]:
    """Return what is wrong with what a live reader saw of a shard."""
    found = [f"position: a live reader failed: {tail.failure}"] if tail.failure else []
    standing = {record.place: record for record in records}
    found += [
        f"aborted: {record} was read, there stands {standing.get(record.place)}"
        for record in tail.records
        if standing.get(record.place) != record
    ]
    if not found and list(records[: len(tail.records)]) != tail.records:
        found.append(f"position: a live reader read {len(tail.records)} records in another order")
    return found + _stale(tail, records, history)


def _stale(tail: Tail, records: Sequence[Record], history: Sequence[Operation]) -> list[str]:
    """An empty page says: nothing is answered beyond what was read when it was asked for."""
    at = {record.mark: index for index, record in enumerate(records) if record.mark is not None}
    answered = sorted(
        (o.returned_s, at[o.mark])
        for o in history
        if o.outcome is Outcome.OK and o.kind is not Kind.GET and o.mark in at
    )
    found = []
    index, due = 0, -1
    for page in tail.empty:
        while index < len(answered) and answered[index][0] < page.invoked_s:
            due = max(due, answered[index][1])
            index += 1
        if due >= page.read:
            found.append(f"stale: an empty page after {page.read} records, {due + 1} were due")
    return found
