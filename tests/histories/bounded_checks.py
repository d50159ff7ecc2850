"""May a read that allows for staleness see what it saw?

The stream tells the states of a row one after the other. A read with a bound may see any of them
that was being made when it was answered, but none before a write that was answered longer before
the read was sent than the bound is.

``bounded``     such a read saw an older state, or one that the row never had
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.histories.operation import Kind, Operation, Outcome, Row
from tests.histories.stream_checks import after
from tests.histories.stream_reading import Record

__all__ = ["Sight", "check_bounded", "is_behind", "sights"]


@dataclass(slots=True)
class States:
    """A row's states, absent first: when the write of each was sent, and when it was answered.

    Deletes look alike, so when its write was sent and answered is not known.
    """

    rows: list[Row]
    invoked_s: list[float]
    returned_s: list[float]

    def least(self, by_s: float) -> int:
        """Return the last state whose write was answered before a moment."""
        return max(index for index, ended_s in enumerate(self.returned_s) if ended_s < by_s)


class Sight(NamedTuple):
    """A read with a bound: the oldest state that it may have seen, and which it can have seen."""

    read: Operation
    states: States
    oldest: int
    seen: Sequence[int]


def sights(records: Iterable[Record], history: Sequence[Operation]) -> Iterator[Sight]:
    """Yield every read with a bound that was answered; records are in the order of changes."""
    states = _states(records, history)
    for read in history:
        if read.bound_s is None or read.outcome is not Outcome.OK:
            continue
        row = states[read.key]
        oldest = row.least(read.invoked_s - read.bound_s)
        seen = [
            index
            for index in range(oldest, len(row.rows))
            if row.rows[index] == read.found and row.invoked_s[index] <= read.returned_s
        ]
        yield Sight(read, row, oldest, seen)


def check_bounded(found: Iterable[Sight]) -> list[str]:
    """Return what is wrong with what was seen."""
    return [
        f"bounded: {read.key} was {read.found} at worker {read.worker} within {read.bound_s} s, "
        f"due was {states.rows[oldest]} or later"
        for read, states, oldest, seen in found
        if not seen
    ]


def is_behind(sight: Sight) -> bool:
    """True if a read saw less than a strong one must: then a copy has answered it."""
    return bool(sight.seen) and sight.seen[-1] < sight.states.least(sight.read.invoked_s)


def _states(records: Iterable[Record], history: Sequence[Operation]) -> dict[str, States]:
    writes = {one.mark: one for one in history if one.mark and one.kind is not Kind.GET}
    found: dict[str, States] = defaultdict(lambda: States([None], [-math.inf], [-math.inf]))
    for record in records:
        states, one = found[record.key], writes.get(record.mark or "")
        states.rows.append(after(states.rows[-1], record))
        states.invoked_s.append(-math.inf if one is None else one.invoked_s)
        states.returned_s.append(math.inf if one is None else one.returned_s)
    return found
