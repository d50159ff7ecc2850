"""All that clients were told in one run, and what is wrong with it.

``judge`` needs nothing but the evidence, so a copy of a run's evidence in which something was
changed by hand shows that the change is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.histories.linearizable import Undecided, by_key, unexplained
from tests.histories.operation import Kind, Operation, Row, Told, to_json
from tests.histories.stream_checks import check_fold, check_shard, check_tail
from tests.histories.stream_reading import Record, Tail

__all__ = ["Evidence", "Verdict", "judge"]

STEPS_MAX = 20_000_000
"""Of the second search for a row, which knows from the stream what happened."""

Shards = Mapping[str, Sequence[Record]]


@dataclass(slots=True)
class Evidence:
    """``streams`` and ``rows`` are what each worker gave in the end, by its name."""

    history: list[Operation]
    streams: dict[str, dict[str, list[Record]]]
    rows: dict[str, dict[str, Row]]
    tails: list[Tail]


@dataclass(slots=True)
class Verdict:
    """``undecided`` rows needed the stream to be judged."""

    anomalies: list[str] = field(default_factory=list)
    rows: int = 0
    undecided: int = 0


def judge(evidence: Evidence) -> Verdict:
    """Check everything against everything."""
    verdict = Verdict()
    first, *others = evidence.streams.items()
    for name, shards in others:
        if shards != first[1]:
            verdict.anomalies.append(f"position: {name} reads another stream than {first[0]}")
    verdict.anomalies += _stream_faults(evidence, first[1])
    records = [record for shard in first[1].values() for record in shard]
    for name, rows in evidence.rows.items():
        verdict.anomalies += check_fold(rows, records, name)
    _judge_rows(verdict, evidence.history, records)
    return verdict


def _stream_faults(evidence: Evidence, shards: Shards) -> list[str]:
    """Check each shard against the operations on its rows."""
    histories: dict[str, list[Operation]] = defaultdict(list)
    homes = {record.key[0]: shard for shard, found in shards.items() for record in found}
    for one in evidence.history:
        # A letter without a record is looked for in no shard: what was acknowledged is lost.
        histories[homes.get(one.key[0], "")].append(one)
    found = []
    for shard in {*histories, *shards}:
        found += check_shard(shards.get(shard, []), histories[shard])
    for tail in evidence.tails:
        found += check_tail(tail, shards.get(tail.shard_id, []), histories[tail.shard_id])
    return found


def _judge_rows(verdict: Verdict, history: list[Operation], records: Sequence[Record]) -> None:
    stand = {record.mark for record in records}
    deleted = {record.key for record in records if record.kind == "DELETE"}
    histories = by_key(history)
    verdict.rows = len(histories)
    for key, operations in histories.items():
        try:
            stuck = unexplained(operations)
        except Undecided:
            verdict.undecided += 1
            told = [o for o in operations if _happened(o, stand, deleted)]
            try:
                stuck = unexplained(told, steps_max=STEPS_MAX)
            except Undecided as error:
                verdict.anomalies.append(f"no verdict: {error}")
                continue
        if stuck is not None:
            verdict.anomalies.append(f"not linearizable: {key} at {[to_json(o) for o in stuck]}")


def _happened(one: Operation, stand: set[str | None], deleted: set[str]) -> bool:
    """Say whether an operation may have happened, as the stream tells."""
    if one.told is not Told.UNKNOWN:
        return True
    return one.key in deleted if one.kind is Kind.DELETE else one.mark in stand
