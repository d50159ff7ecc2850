"""For how long a shard took no writes or gave no reads while something was struck.

A pause is the time between two answers of one shard, one after the other, of which the latter comes
after the strike began and the former before it has healed and settled. Probes ask each shard fifty
times a second or so, so a pause of less than 0.1 s is none that is seen here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from tests.histories.operation import Kind, Operation, Told

__all__ = ["longest_pause_s"]

SETTLES_S = 15.0
"""After a strike has healed, pauses that begin this much later are another's."""


def longest_pause_s(
    history: Sequence[Operation], began_s: float, healed_s: float, *, reads: bool
) -> float | None:
    """Return the longest pause of one shard around a strike; None where it never answered again."""
    answers = sorted(
        o.returned_s
        for o in history
        if o.told is not Told.UNAVAILABLE
        and not math.isinf(o.returned_s)
        and (o.kind is Kind.GET) is reads
    )
    first = max(bisect_right(answers, began_s) - 1, 0)
    last = bisect_right(answers, healed_s + SETTLES_S) + 1
    near = answers[first:last]
    if not near or near[-1] < began_s:
        return None
    return max((latter - former for former, latter in pairwise(near)), default=0.0)
