"""What a group keeps for an aggregate: signed sums that add and take back.

Each state is linear: the state of some changes is the sum of their states, in any order. So a
shard's state may be below zero after a split, where a child takes back what its parent added. Only
the sum over all shards is an aggregate's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from rowtide.dashboards.fold.exact_sum import ExactSum
from rowtide.dashboards.fold.state_bytes import CorruptState, StateReader, StateWriter
from rowtide.dashboards.values.arithmetic import canonical
from rowtide.dashboards.values.kinds import Value

__all__ = [
    "STATES",
    "AggregateState",
    "CountState",
    "DoubleSumState",
    "IntegerSumState",
    "SketchState",
    "ValuesState",
]

Counted = TypeVar("Counted")


class AggregateState(Protocol):
    """The state of one aggregate of one group. A NULL is never added, but by count(*)."""

    def add(self, value: Value, sign: int) -> None:
        """Add a value, or take it back if ``sign`` is -1."""
        ...

    def merge(self, other: Self) -> None:
        """Add another state of the same aggregate."""
        ...

    @property
    def is_zero(self) -> bool:
        """True if everything that was added has been taken back."""
        ...

    @property
    def entries(self) -> int:
        """How many values or buckets it keeps, 0 if its size does not depend on them."""
        ...

    def write(self, writer: StateWriter) -> None:
        """Write it. Equal states give equal bytes."""
        ...

    def read(self, reader: StateReader) -> None:
        """Fill this new state with what ``write`` wrote."""
        ...


class CountState:
    """How many values there are."""

    __slots__ = ("count",)
    entries: ClassVar[int] = 0

    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Value, sign: int) -> None:
        """See ``AggregateState.add``."""
        self.count += sign

    def merge(self, other: CountState) -> None:
        """See ``AggregateState.merge``."""
        self.count += other.count

    @property
    def is_zero(self) -> bool:
        """See ``AggregateState.is_zero``."""
        return not self.count

    def write(self, writer: StateWriter) -> None:
        """See ``AggregateState.write``."""
        writer.integer(self.count)

    def read(self, reader: StateReader) -> None:
        """See ``AggregateState.read``."""
        self.count = reader.integer()


class IntegerSumState:
    """Count and sum of integers. The sum has no bound here."""

    __slots__ = ("count", "total")
    entries: ClassVar[int] = 0

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def add(self, value: Value, sign: int) -> None:
        """See ``AggregateState.add``."""
        assert isinstance(value, int), "the plan checks types"
        self.count += sign
        self.total += sign * value

    def merge(self, other: IntegerSumState) -> None:
        """See ``AggregateState.merge``."""
        self.count += other.count
        self.total += other.total

    @property
    def is_zero(self) -> bool:
        """See ``AggregateState.is_zero``."""
        return not self.count and not self.total

    def write(self, writer: StateWriter) -> None:
        """See ``AggregateState.write``."""
        writer.integer(self.count)
        writer.integer(self.total)

    def read(self, reader: StateReader) -> None:
        """See ``AggregateState.read``."""
        self.count, self.total = reader.integer(), reader.integer()


class DoubleSumState:
    """Count and exact sum of doubles."""

    __slots__ = ("count", "total")
    entries: ClassVar[int] = 0

    def __init__(self) -> None:
        self.count = 0
        self.total = ExactSum()

    def add(self, value: Value, sign: int) -> None:
        """See ``AggregateState.add``."""
        assert isinstance(value, float), "the plan checks types"
        self.count += sign
        self.total.add(value, sign)

    def merge(self, other: DoubleSumState) -> None:
        """See ``AggregateState.merge``."""
        self.count += other.count
        self.total.merge(other.total)

    @property
    def is_zero(self) -> bool:
        """See ``AggregateState.is_zero``."""
        return not self.count and self.total.is_zero

    def write(self, writer: StateWriter) -> None:
        """See ``AggregateState.write``."""
        total = self.total
        total.reduce()
        writer.integer(self.count)
        for number in (
            *(total.scaled, total.exponent),
            *(total.nans, total.positive_infinities, total.negative_infinities),
        ):
            writer.integer(number)

    def read(self, reader: StateReader) -> None:
        """See ``AggregateState.read``."""
        total = self.total
        self.count = reader.integer()
        total.scaled, total.exponent = reader.integer(), reader.integer()
        total.nans = reader.integer()
        total.positive_infinities, total.negative_infinities = reader.integer(), reader.integer()
        if not -1074 <= total.exponent <= 0:
            raise CorruptState(f"an exponent of {total.exponent}")


class CountsState(Generic[Counted]):
    """Signed counts by value or bucket. One whose count is zero is forgotten."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[Counted, int] = {}

    def add_count(self, counted: Counted, sign: int) -> None:
        """Add to a count."""
        count = self.counts.get(counted, 0) + sign
        if count:
            self.counts[counted] = count
        else:
            del self.counts[counted]

    def merge(self, other: CountsState[Counted]) -> None:
        """See ``AggregateState.merge``."""
        for counted, count in other.counts.items():
            self.add_count(counted, count)

    @property
    def is_zero(self) -> bool:
        """See ``AggregateState.is_zero``."""
        return not self.counts

    @property
    def entries(self) -> int:
        """See ``AggregateState.entries``."""
        return len(self.counts)


class ValuesState(CountsState[Value]):
    """How often each value is there: for min, max, count(DISTINCT) and quantile_disc."""

    __slots__ = ()

    def add(self, value: Value, sign: int) -> None:
        """See ``AggregateState.add``."""
        self.add_count(canonical(value), sign)

    def write(self, writer: StateWriter) -> None:
        """See ``AggregateState.write``."""
        parts: list[bytes] = []
        for value, count in self.counts.items():
            part = StateWriter()
            part.value(value)
            part.integer(count)
            parts.append(bytes(part.buffer))
        writer.integer(len(parts))
        for encoded in sorted(parts):
            writer.buffer += encoded

    def read(self, reader: StateReader) -> None:
        """See ``AggregateState.read``."""
        for _ in range(reader.count()):
            value = reader.value()
            self.counts[value] = reader.integer()


_ACCURACY = 0.01
_GAMMA = (1 + _ACCURACY) / (1 - _ACCURACY)
_LOG_GAMMA = math.log(_GAMMA)
_ZERO, _NAN, _INFINITY = 0, 1 << 20, 1 << 19
# Buckets of doubles are between -35,500 and 35,500, so an offset makes all of them positive.
_OFFSET = 1 << 17


class SketchState(CountsState[int]):
    """Counts of values by buckets whose bounds differ by 2 %: DDSketch (Masson et al., 2019).

    A bucket is 0 for zero, ``_OFFSET + i`` for values in (gamma**(i-1), gamma**i], and the
    negative of this for negative values. So buckets sort as their values do. A quantile is at most
    1 % from a value of the right rank.
    """

    __slots__ = ()

    def add(self, value: Value, sign: int) -> None:
        """See ``AggregateState.add``."""
        assert isinstance(value, int | float), "the plan checks types"
        self.add_count(_bucket(float(value)), sign)

    def value_of(self, bucket: int) -> float:
        """Return the value that represents a bucket, at most 1 % from each value in it."""
        if bucket == _ZERO:
            return 0.0
        if bucket == _NAN:
            return math.nan
        if abs(bucket) == _INFINITY:
            return math.copysign(math.inf, bucket)
        # Twice gamma**i / (gamma + 1), by logarithms because gamma**i may be above all doubles.
        exponent = (abs(bucket) - _OFFSET) * _LOG_GAMMA + math.log(2 / (_GAMMA + 1))
        size = math.exp(exponent) if exponent < 709.78 else math.inf
        return math.copysign(min(size, 1.7976931348623157e308), bucket)

    def write(self, writer: StateWriter) -> None:
        """See ``AggregateState.write``."""
        writer.integer(len(self.counts))
        for bucket in sorted(self.counts):
            writer.integer(bucket)
            writer.integer(self.counts[bucket])

    def read(self, reader: StateReader) -> None:
        """See ``AggregateState.read``."""
        for _ in range(reader.count()):
            bucket = reader.integer()
            self.counts[bucket] = reader.integer()


def _bucket(value: float) -> int:
    if value == 0:
        return _ZERO
    if value != value:
        return _NAN
    if value in (math.inf, -math.inf):
        return _INFINITY if value > 0 else -_INFINITY
    bucket = _OFFSET + math.ceil(math.log(abs(value)) / _LOG_GAMMA)
    return bucket if value > 0 else -bucket


STATES: dict[str, Callable[[], AggregateState]] = {
    "count": CountState,
    "integers": IntegerSumState,
    "doubles": DoubleSumState,
    "values": ValuesState,
    "sketch": SketchState,
}
"""The states by the name that a plan has for them."""
