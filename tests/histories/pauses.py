"""For how long a shard took no writes or gave no reads while something was struck.

A pause is the time between two answers of one shard that follow each other while a strike lasts, or
soon after. Beside the clients a probe asks each shard up to fifty times a second, turn by turn a
write and a read: what is below 0.1 s is the probe's own rhythm.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from tests.histories.operation import Kind, Operation, Outcome

__all__ = ["longest_pause_s"]

SETTLES_S = 15.0
"""Pauses that begin this long after a strike has healed are no longer its own."""


def longest_pause_s(
    history: Sequence[Operation], began_s: float, end_s: float, *, reads: bool
) -> float | None:
    """Return the longest pause of one shard between two moments; None without an answer then."""
    answers = sorted(
        o.returned_s
        for o in history
        if o.outcome in (Outcome.OK, Outcome.REFUSED)
        and (o.client >= 0 and o.bound_s is None)
        and (o.kind is Kind.GET) is reads
    )
    first = max(bisect_right(answers, began_s) - 1, 0)
    last = bisect_right(answers, end_s) + 1
    near = answers[first:last]
    if not near or near[-1] < began_s:
        return None
    return round(max((latter - former for former, latter in pairwise(near)), default=0.0), 3)
