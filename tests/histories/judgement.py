"""All answers of one run, and what is wrong with it.

``judge`` needs nothing but the evidence, so a copy of a run's evidence in which something was
changed by hand shows that the change is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.histories.bounded_checks import check_bounded, is_behind, sights
from tests.histories.linearizable import Undecided, by_key, find_unexplained
from tests.histories.operation import Kind, Operation, Outcome, Row, to_json
from tests.histories.stream_checks import check_fold, check_stream, check_tail, in_order
from tests.histories.stream_reading import Record, Tail

__all__ = ["Evidence", "Verdict", "judge"]

STEPS_MAX = 20_000_000
"""Of the second search for a row, which knows from the stream what happened."""


@dataclass(slots=True)
class Evidence:
    """``streams`` and ``rows`` are what each worker gave in the end, by its name.

    A stream's shards come parents first.
    """

    history: list[Operation]
    streams: dict[str, dict[str, list[Record]]]
    rows: dict[str, dict[str, Row]]
    tails: list[Tail]


@dataclass(slots=True)
class Verdict:
    """``undecided`` rows needed the stream to be judged.

    ``bounded`` reads might be stale; ``behind`` are those that were.
    """

    anomalies: list[str] = field(default_factory=list)
    rows: int = 0
    undecided: int = 0
    bounded: int = 0
    behind: int = 0


def judge(evidence: Evidence) -> Verdict:
    """Check everything against everything."""
    verdict = Verdict()
    first, *others = evidence.streams.items()
    for name, shards in others:
        if shards != first[1]:
            verdict.anomalies.append(f"position: {name} reads another stream than {first[0]}")
    verdict.anomalies += check_stream(first[1], evidence.history)
    for tail in evidence.tails:
        records = first[1].get(tail.shard_id, [])
        verdict.anomalies += check_tail(tail, records, evidence.history)
    records = in_order(first[1])
    for name, rows in evidence.rows.items():
        verdict.anomalies += check_fold(rows, records, name)
    _judge_rows(verdict, evidence.history, records)
    seen = list(sights(records, evidence.history))
    verdict.anomalies += check_bounded(seen)
    verdict.bounded, verdict.behind = len(seen), sum(map(is_behind, seen))
    return verdict


def _judge_rows(verdict: Verdict, history: list[Operation], records: Sequence[Record]) -> None:
    stand = {record.mark for record in records}
    deleted = {record.key for record in records if record.kind == "DELETE"}
    histories = by_key(history)
    verdict.rows = len(histories)
    for key, operations in histories.items():
        try:
            stuck = find_unexplained(operations)
        except Undecided:
            verdict.undecided += 1
            possible = [o for o in operations if _may_have_happened(o, stand, deleted)]
            try:
                stuck = find_unexplained(possible, steps_max=STEPS_MAX)
            except Undecided as error:
                verdict.anomalies.append(f"no verdict: {error}")
                continue
        if stuck is not None:
            verdict.anomalies.append(f"not linearizable: {key} at {[to_json(o) for o in stuck]}")


def _may_have_happened(one: Operation, stand: set[str | None], deleted: set[str]) -> bool:
    """True if an operation may have happened, as the stream tells."""
    if one.outcome is not Outcome.UNKNOWN:
        return True
    return one.key in deleted if one.kind is Kind.DELETE else one.mark in stand
