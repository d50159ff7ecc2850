"""Histories of a store that is right, made up: every operation takes effect at one moment.

Clients overlap, some get no answer, and of what got none a half took effect. With a history comes
the stream that such a store would have had, and reads of copies that are behind.
"""

from __future__ import annotations

import math
import random

from tests.histories.judgement import Evidence
from tests.histories.operation import ILLEGAL, Kind, Operation, Outcome, Row, step
from tests.histories.stream_checks import fold_records
from tests.histories.stream_reading import Empty, Record, Tail

__all__ = ["SHARD", "imagine_evidence", "imagine_history"]

SHARD = "b-shard"
MADE_US = 1000


def imagine_history(
    chance: random.Random, count: int, clients: int, *, keys: int = 1, lost: float = 0.15
) -> list[Operation]:
    """Return ``count`` operations on as many rows as asked for."""
    history, _ = _imagine(chance, count, clients, keys=keys, lost=lost)
    return history


def imagine_evidence(seed: int, count: int = 400) -> Evidence:
    """Return all that a run would have brought: three workers that agree, a live reader."""
    history, records = _imagine(random.Random(seed), count, 8, keys=4, lost=0.02)
    half = len(records) // 2
    history += _imagine_bounded_reads(random.Random(seed), count, records)
    tail = Tail(SHARD, records[:half], [Empty(history[0].invoked_s, half)])
    workers = ("worker 0", "worker 1", "worker 2")
    return Evidence(
        history,
        {name: {SHARD: list(records)} for name in workers},
        {name: fold_records(records) for name in workers},
        [tail],
    )


def _imagine(
    chance: random.Random, count: int, clients: int, *, keys: int, lost: float
) -> tuple[list[Operation], list[Record]]:
    rows: dict[str, Row] = {}
    free_s = [0.0] * clients
    history: list[Operation] = []
    records: list[Record] = []
    for number in range(count):
        at_s = number + chance.random()  # The moment at which it takes effect.
        key = f"b000000/{chance.randrange(keys)}"
        row = rows.get(key)
        one = _operation(chance, number, key, row)
        one.client = chance.randrange(clients)
        one.invoked_s = max(at_s - chance.random() * 4, min(free_s[one.client], at_s))
        one.returned_s = free_s[one.client] = at_s + chance.random() * 4
        unanswered = chance.random() < lost and one.kind is not Kind.GET
        if unanswered:
            one.returned_s, one.outcome = math.inf, Outcome.UNKNOWN
        if not (unanswered and chance.random() < 0.5):
            after = step(row, one)
            if after is not ILLEGAL and not one.reads:
                rows[key] = after
                records.append(_record(one, after, number))
        history.append(one)
    return history, records


def _imagine_bounded_reads(
    chance: random.Random, count: int, records: list[Record]
) -> list[Operation]:
    """Return reads of what was the newest at a moment within their bound."""
    keys = sorted({record.key for record in records})
    reads = []
    for _ in range(count // 4):
        at_s, bound_s = chance.uniform(20, count), chance.choice([2.0, 10.0])
        # Of the records the one with number N was made between the moments N and N + 1.
        moment = math.floor(chance.uniform(at_s - bound_s + 1, at_s))
        rows = fold_records([record for record in records if record.place[1] < MADE_US + moment])
        key = chance.choice(keys)
        read = Operation(0, 0, key, Kind.GET, at_s, at_s + chance.random(), Outcome.OK)
        read.found, read.bound_s = rows.get(key), bound_s
        reads.append(read)
    return reads


def _operation(chance: random.Random, number: int, key: str, row: Row) -> Operation:
    kind = chance.choice(list(Kind))
    one = Operation(0, 0, key, kind, 0.0, 0.0, Outcome.OK, number=1)
    if kind not in (Kind.GET, Kind.DELETE):
        one.mark = f"m{number}"
    if kind is Kind.GET:
        one.found = row
    elif chance.random() < 0.3:
        one.expect = chance.choice(["EXPECT_EXIST", "EXPECT_NOT_EXIST"])
    if kind is Kind.INCREMENT:
        one.found = 1 if row is None else (row[1] or 0) + 1
    if step(row, one) is ILLEGAL:
        one.outcome = Outcome.REFUSED
    return one


def _record(one: Operation, after: Row, number: int) -> Record:
    kind = {Kind.PUT: "PUT", Kind.DELETE: "DELETE"}.get(one.kind, "UPDATE")
    shown = None if after is None or one.kind is Kind.UPDATE else after[1]
    return Record(one.key, kind, one.mark or None, shown, (0, MADE_US + number, 0))
