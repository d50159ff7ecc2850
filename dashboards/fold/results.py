"""The value of an aggregate from its state, once the states of all shards are added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import cast

from rowtide.dashboards.fold.states import (
    AggregateState,
    CountState,
    DoubleSumState,
    IntegerSumState,
    SketchState,
    ValuesState,
)
from rowtide.dashboards.values.arithmetic import check_integer, order_key
from rowtide.dashboards.values.kinds import SqlType, Value

__all__ = [
    "Finish",
    "average",
    "count",
    "distinct_count",
    "highest",
    "lowest",
    "quantile_approximately",
    "quantile_exactly",
    "total",
]

Finish = Callable[[AggregateState], Value]


def count(state: AggregateState) -> Value:
    """Return how many values there are."""
    return cast(CountState, state).count


def total(state: AggregateState) -> Value:
    """Return the sum. Raises ``OutOfRange`` past 128 bits."""
    held = cast(IntegerSumState | DoubleSumState, state)
    if not held.count:
        return None
    if isinstance(held, IntegerSumState):
        return check_integer(held.total, SqlType.HUGEINT)
    return held.total.divide(1)


def average(state: AggregateState) -> Value:
    """Return the mean: the exact quotient, rounded once."""
    held = cast(IntegerSumState | DoubleSumState, state)
    if not held.count:
        return None
    if isinstance(held, IntegerSumState):
        return held.total / held.count
    return held.total.divide(held.count)


def distinct_count(state: AggregateState) -> Value:
    """Return how many different values there are."""
    return len(cast(ValuesState, state).counts)


def lowest(state: AggregateState) -> Value:
    """Return the minimum."""
    return min(cast(ValuesState, state).counts, key=order_key, default=None)


def highest(state: AggregateState) -> Value:
    """Return the maximum."""
    return max(cast(ValuesState, state).counts, key=order_key, default=None)


def quantile_exactly(quantile: Fraction | float) -> Finish:
    """Return the function that finds the value at a quantile, of rank n * quantile, rounded up.

    As in DuckDB, a decimal is exact and a double is not.
    """

    def finish(state: AggregateState) -> Value:
        counts = cast(ValuesState, state).counts
        held = sum(counts.values())
        if not held:
            return None
        # The rank is written as DuckDB calculates it, so that doubles round alike.
        rank = max(1, held - math.floor(held - held * quantile))
        return _value_at(((v, counts[v]) for v in sorted(counts, key=order_key)), rank)

    return finish


def quantile_approximately(quantile: float) -> Finish:
    """Return the function that finds about the value at a quantile."""

    def finish(state: AggregateState) -> Value:
        held = cast(SketchState, state)
        count = sum(held.counts.values())
        if not count:
            return None
        rank = max(1, math.ceil(quantile * count))
        bucket = _value_at(sorted(held.counts.items()), rank)
        return held.value_of(cast(int, bucket))

    return finish


def _value_at(counts: Iterable[tuple[Value, int]], rank: int) -> Value:
    """Return the value at a rank, from 1 on, of sorted values with their counts."""
    passed = 0
    for value, held in counts:
        passed += held
        if passed >= rank:
            return value
    raise AssertionError("a rank is at most the number of values")
