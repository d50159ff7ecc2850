"""What must hold of rows and stream after whatever happened: nothing lost, doubled, or disordered.

The stream is read whole through the Stream API, the rows by GetRange with all their versions, and
both are held to the answers of the writers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from rowtide.cli.client import ProtocolClient, StreamRecord
from rowtide.client.wire_row import Delete, Put, Row, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.system.load import SHARED, TABLE, VERSIONS, Attempt, Outcome, Written
from tests.system.server import wait_until

__all__ = ["all_rows", "check_all", "stream_of"]

Found = TypeVar("Found")

Columns = dict[str, dict[int, object]]
Rows = dict[tuple[object, ...], Columns]


def check_all(client: ProtocolClient, written: Sequence[Written]) -> dict[str, int]:
    """Check everything and return counts to print."""
    faults = [fault for one in written for fault in one.faults]
    assert not faults, "\n".join(faults[:10])
    shards = _read(lambda: stream_of(client))
    for records in shards.values():
        stamps = [_stamp(record) for record in records]
        assert all(a < b for a, b in pairwise(stamps)), "stamps must increase"
    records = [record for shard in shards.values() for record in shard]
    attempts = [attempt for one in written for attempt in one.attempts]
    check_histories(records, attempts)
    assert differences(_read(lambda: all_rows(client)), fold_records(records)) == []
    outcomes = [attempt.outcome for attempt in attempts]
    return {"stream": len(records)} | {kind.value: outcomes.count(kind) for kind in Outcome}


def _read(read: Callable[[], Found]) -> Found:
    """Return what is read, again where a lease lapses: writes go on while it is not renewed."""
    found: list[Found] = []

    def try_read() -> bool:
        found.append(read())
        return True

    wait_until(try_read, what="reads served")
    return found[0]


def check_histories(records: Sequence[StreamRecord], attempts: Sequence[Attempt]) -> None:
    """Per row the stream holds the applied attempts, in order, and of the unknown ones any."""
    by_key: dict[str, list[StreamRecord]] = defaultdict(list)
    for record in records:
        by_key[str(record.row.key[0][1])].append(record)
    tried: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        tried[attempt.key].append(attempt)
    assert set(by_key) <= set(tried)
    for key, history in tried.items():
        if key in SHARED:
            check_counter(by_key[key], history)
        else:
            check_history(key, by_key[key], history)


def check_history(key: str, records: Sequence[StreamRecord], attempts: Sequence[Attempt]) -> None:
    """``at`` holds every number of records that the attempts so far may have left."""
    at = {0}
    for attempt in attempts:
        if attempt.outcome is Outcome.REFUSED:
            continue
        after = {n + 1 for n in at if n < len(records) and _matches(records[n], attempt)}
        at = after if attempt.outcome is Outcome.APPLIED else after | at
        assert at, f"{key}: {attempt} is not in the stream where it must be"
    assert len(records) in at, f"{key}: {len(records)} records, explained are {sorted(at)}"


def check_counter(records: Sequence[StreamRecord], attempts: Sequence[Attempt]) -> None:
    """All writers count in one row: it passes every number once, none twice."""
    marks = [_mark(record) for record in records]
    assert len(marks) == len(set(marks)), "an increment stands twice"
    assert {a.mark for a in attempts if a.outcome is Outcome.APPLIED} <= set(marks)
    assert not {a.mark for a in attempts if a.outcome is Outcome.REFUSED} & set(marks)
    numbers = [_value(record, "n") for record in records]
    assert numbers == list(range(1, len(records) + 1))


def fold_records(records: Iterable[StreamRecord]) -> Rows:
    """Return the rows that the stream amounts to."""
    rows: Rows = {}
    for record in records:
        key = tuple(value for _, value in record.row.key)
        if record.kind == "DELETE":
            rows.pop(key, None)
            continue
        columns = {} if record.kind == "PUT" else rows.get(key)
        if columns is None and all(isinstance(c, Delete) for c in record.row.changes):
            continue
        rows[key] = _apply_changes(columns or {}, record)
    return rows


def differences(left: Rows, right: Rows) -> list[str]:
    """Return where two sets of rows differ, values by their beginnings."""
    found = []
    for key in sorted(left.keys() | right.keys(), key=str):
        if key not in left or key not in right:
            found.append(f"{key} is absent on the {'left' if key not in left else 'right'}")
            continue
        one, other = left[key], right[key]
        found += [
            f"{key} {name}: {_short(one.get(name))} != {_short(other.get(name))}"
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name)
        ]
    return found


def _short(versions: dict[int, object] | None) -> object:
    return versions and {version: str(value)[:8] for version, value in versions.items()}


def _apply_changes(columns: Columns, record: StreamRecord) -> Columns:
    for change in record.row.changes:
        versions = columns.setdefault(change.name, {})
        if isinstance(change, Put):
            assert change.version_ms is not None
            versions[change.version_ms] = change.value
        elif change.version_ms is None:
            versions.clear()
        else:
            versions.pop(change.version_ms, None)
        for surplus in sorted(versions, reverse=True)[VERSIONS:]:
            del versions[surplus]
    return {name: versions for name, versions in columns.items() if versions}


def all_rows(client: ProtocolClient, table: str = TABLE) -> Rows:
    """Return every row of the table with all its versions."""
    low = (("name", Special.INF_MIN), ("number", Special.INF_MIN))
    high = (("name", Special.INF_MAX), ("number", Special.INF_MAX))
    page = pb.GetRangeRequest(direction=pb.FORWARD, max_versions=VERSIONS)
    rows: Rows = {}
    for rows_read in client.get_range(table, low, high, page=page):
        for row in rows_read:
            rows[tuple(value for _, value in row.key)] = _columns(row)
    return rows


def _columns(row: Row) -> Columns:
    columns: Columns = {}
    for put in row.columns:
        assert put.version_ms is not None
        columns.setdefault(put.name, {})[put.version_ms] = put.value
    return columns


def stream_of(client: ProtocolClient, *, limit: int | None = None) -> dict[str, list[StreamRecord]]:
    """Return every record of the table's stream, by shard."""
    [stream] = client.list_stream(TABLE)
    return {
        shard.shard_id: _shard(client, stream.stream_id, shard.shard_id, limit)
        for shard in client.describe_stream(stream.stream_id).shards
    }


def _shard(
    client: ProtocolClient, stream_id: str, shard_id: str, limit: int | None
) -> list[StreamRecord]:
    records: list[StreamRecord] = []
    iterator: str | None = client.get_shard_iterator(stream_id, shard_id)
    while iterator is not None:
        page = client.get_stream_record(iterator, limit=limit)
        if not page.records:
            return records
        records += page.records
        iterator = page.next_iterator
    return records


def _matches(record: StreamRecord, attempt: Attempt) -> bool:
    return record.kind == attempt.kind and _mark(record) == attempt.mark


def _mark(record: StreamRecord) -> object:
    return _value(record, "mark")


def _value(record: StreamRecord, name: str) -> object:
    """Return what a record puts into a column, or None."""
    puts = [change for change in record.row.changes if isinstance(change, Put)]
    return next((put.value for put in puts if put.name == name), None)


def _stamp(record: StreamRecord) -> int:
    assert record.row.sequence is not None, "a stream record says where it stands"
    return record.row.sequence.timestamp_us
