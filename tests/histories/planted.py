"""Faults put into a copy of what a run brought: each must be found, and called what it is.

``PLANTED`` names for each fault what plants it and how the anomaly that finds it begins.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

from tests.histories.bounded_checks import sights
from tests.histories.judgement import Evidence
from tests.histories.operation import Kind, Operation, Outcome
from tests.histories.stream_checks import in_order
from tests.histories.stream_reading import Empty, Record

__all__ = ["PLANTED", "Planted", "plant_fault"]


class Planted(NamedTuple):
    """A way to spoil evidence in place, and what finds it."""

    spoil: Callable[[Evidence, random.Random], None]
    found_as: str


def plant_fault(name: str, evidence: Evidence, chance: random.Random) -> Evidence:
    """Return a copy of evidence with a fault in it."""
    copy = deepcopy(evidence)
    PLANTED[name].spoil(copy, chance)
    return copy


def lose_an_acknowledged_write(evidence: Evidence, chance: random.Random) -> None:
    one = chance.choice(_list_acknowledged_writes(evidence))
    for records in _streams(evidence):
        records[:] = [record for record in records if record.mark != one.mark]


def read_stale(evidence: Evidence, chance: random.Random) -> None:
    """A read that began after a put was answered gives what was put before."""
    former, read = chance.choice(_overwritten(evidence))
    read.found = (former.mark, former.number)


def count_twice_for_a_client(evidence: Evidence, chance: random.Random) -> None:
    one = chance.choice(_list_certain_increments(evidence))
    assert isinstance(one.found, int)
    one.found += 1


def count_twice_in_the_stream(evidence: Evidence, chance: random.Random) -> None:
    one = chance.choice(_increments(evidence))
    for records in _streams(evidence):
        for index, record in enumerate(records):
            if record.mark == one.mark:
                epoch, timestamp_us, row_index = record.place
                again = record._replace(place=(epoch, timestamp_us, row_index + 1))
                records.insert(index + 1, again)
                break


def reorder_the_stream(evidence: Evidence, chance: random.Random) -> None:
    """Two records change places of which one was answered before the other was sent."""
    operations = {one.mark: one for one in _list_acknowledged_writes(evidence)}
    records = next(iter(next(iter(evidence.streams.values())).values()))
    known = [i for i, record in enumerate(records) if record.mark in operations]
    first = chance.choice(known[: len(known) // 2])
    ended_s = operations[records[first].mark or ""].returned_s
    second = next(i for i in known if operations[records[i].mark or ""].invoked_s > ended_s)
    for stream in _streams(evidence):
        if stream[first].mark == records[first].mark or stream is records:
            one, other = stream[first], stream[second]
            stream[first] = other._replace(place=one.place)
            stream[second] = one._replace(place=other.place)


def let_stamps_fall(evidence: Evidence, chance: random.Random) -> None:
    for records in _streams(evidence):
        if len(records) > 1:
            records[0], records[1] = (
                records[0]._replace(place=records[1].place),
                records[1]._replace(place=records[0].place),
            )


def show_a_record_that_goes_away(evidence: Evidence, chance: random.Random) -> None:
    tail = chance.choice([tail for tail in evidence.tails if tail.records])
    epoch, timestamp_us, _ = tail.records[-1].place
    ghost = tail.records[-1]._replace(mark="ghost", place=(epoch, timestamp_us, 99))
    tail.records.append(ghost)


def move_a_record(evidence: Evidence, chance: random.Random) -> None:
    """One worker gives a record another place than the others do."""
    name = chance.choice(list(evidence.streams))
    records = chance.choice([found for found in evidence.streams[name].values() if found])
    epoch, timestamp_us, row_index = records[-1].place
    records[-1] = records[-1]._replace(place=(epoch, timestamp_us + 1, row_index))


def withhold_a_record_from_a_reader(evidence: Evidence, chance: random.Random) -> None:
    """A page is empty although everything has been answered long ago.

    The last writes of a slow machine may be without an answer: they may be withheld.
    """
    answered = {one.mark for one in _list_acknowledged_writes(evidence)}
    tails = [tail for tail in evidence.tails if any(r.mark in answered for r in tail.records)]
    tail = chance.choice(tails)
    while tail.records.pop().mark not in answered:
        pass
    tail.empty.append(Empty(math.inf, len(tail.records)))


def apply_what_was_refused(evidence: Evidence, chance: random.Random) -> None:
    chance.choice(_list_acknowledged_writes(evidence)).outcome = Outcome.UNAVAILABLE


def serve_another_row(evidence: Evidence, chance: random.Random) -> None:
    rows = evidence.rows[chance.choice(list(evidence.rows))]
    key = chance.choice(sorted(rows))
    rows[key] = ("another", 0)


def read_beyond_the_bound(evidence: Evidence, chance: random.Random) -> None:
    records = in_order(next(iter(evidence.streams.values())))
    older = [
        (read, row)
        for read, states, oldest, _ in sights(records, evidence.history)
        for row in states.rows[:oldest]
        if row not in states.rows[oldest:]
    ]
    read, row = chance.choice(older)
    read.found = row


PLANTED: dict[str, Planted] = {
    "a lost write": Planted(lose_an_acknowledged_write, "lost"),
    "a stale read": Planted(read_stale, "not linearizable"),
    "an increment counted twice": Planted(count_twice_for_a_client, "not linearizable"),
    "an increment twice in the stream": Planted(count_twice_in_the_stream, "duplicate"),
    "a reordered record": Planted(reorder_the_stream, "reordered"),
    "stamps that fall": Planted(let_stamps_fall, "stamps"),
    "an aborted read": Planted(show_a_record_that_goes_away, "aborted"),
    "an inconsistent position": Planted(move_a_record, "position"),
    "a stale page": Planted(withhold_a_record_from_a_reader, "stale"),
    "a refused write that happened": Planted(apply_what_was_refused, "unwritten"),
    "a row that is not the stream's": Planted(serve_another_row, "fold"),
    "a read older than its bound": Planted(read_beyond_the_bound, "bounded"),
}


def _streams(evidence: Evidence) -> list[list[Record]]:
    return [records for shards in evidence.streams.values() for records in shards.values()]


def _list_acknowledged_writes(evidence: Evidence) -> list[Operation]:
    return [one for one in evidence.history if one.outcome is Outcome.OK and one.mark]


def _increments(evidence: Evidence) -> list[Operation]:
    return [one for one in _list_acknowledged_writes(evidence) if one.kind is Kind.INCREMENT]


def _list_certain_increments(evidence: Evidence) -> list[Operation]:
    """Return increments whose number nothing else can have made: one more has no explanation.

    No put sets it. No other increment of the row began before its answer.
    """
    puts = max(one.number for one in evidence.history if one.kind is Kind.PUT)
    answered: dict[tuple[str, object], list[Operation]] = {}
    unknown_s: dict[str, float] = {}
    for one in evidence.history:
        if one.kind is Kind.INCREMENT and one.outcome is Outcome.OK:
            answered.setdefault((one.key, one.found), []).append(one)
        elif one.kind is Kind.INCREMENT and one.outcome is Outcome.UNKNOWN:
            unknown_s[one.key] = min(one.invoked_s, unknown_s.get(one.key, math.inf))
    found = []
    for (key, number), increments in answered.items():
        first, *others = sorted(increments, key=lambda one: one.invoked_s)
        others_s = min((one.invoked_s for one in others), default=math.inf)
        assert isinstance(number, int)
        if number > puts and first.returned_s < min(others_s, unknown_s.get(key, math.inf)):
            found.append(first)
    return found


def _overwritten(evidence: Evidence) -> list[tuple[Operation, Operation]]:
    """Return (put, read) where the put's row was put anew between the two, for sure."""
    puts = [one for one in _list_acknowledged_writes(evidence) if one.kind is Kind.PUT]
    reads = [
        one
        for one in evidence.history
        if one.kind is Kind.GET and one.outcome is Outcome.OK and one.bound_s is None
    ]
    latest: dict[str, tuple[Operation, Operation]] = {}
    found = []
    for former in puts:
        if former.key not in latest:
            for latter in puts:
                if latter.key == former.key and latter.invoked_s > former.returned_s:
                    latest[former.key] = former, latter
                    break
    for read in reads:
        pair = latest.get(read.key)
        if pair is not None and read.invoked_s > pair[1].returned_s:
            found.append((pair[0], read))
    return found
