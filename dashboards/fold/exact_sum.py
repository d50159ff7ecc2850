"""A sum of doubles without any rounding, from which each number can be taken back.

A finite double is an integer times a power of two, so the sum is one, too. The result is rounded
once, as ``math.fsum`` does. Infinities and NaN are counted beside it.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["ExactSum"]


_SMALL = 2.0**62
_UNITS = [2.0**power if power < 1024 else math.inf for power in range(1075)]
"""By the negative exponent of a sum. A product below ``_SMALL`` is exact."""


class ExactSum:
    """The sum is ``scaled * 2**exponent``, and ``exponent`` is never above 0."""

    __slots__ = ("exponent", "nans", "negative_infinities", "positive_infinities", "scaled")

    def __init__(self) -> None:
        self.scaled = 0
        self.exponent = 0
        self.nans = 0
        self.positive_infinities = 0
        self.negative_infinities = 0

    def add(self, value: float, sign: int) -> None:
        """Add a number ``times`` times; below 0 takes it back."""
        shifted = value * _UNITS[-self.exponent]
        if -_SMALL < shifted < _SMALL and shifted == (whole := int(shifted)):
            # Mostly the number is a multiple of the last bit of the sum.
            self.scaled += sign * whole
            return
        if value - value != 0:  # True for infinities and NaN.
            self._count(value, sign)
            return
        numerator, denominator = value.as_integer_ratio()
        self.add_scaled(sign * numerator, 1 - denominator.bit_length())

    def add_scaled(self, scaled: int, exponent: int) -> None:
        """Add ``scaled * 2**exponent``. The exponent is at most 0."""
        below = self.exponent - exponent
        if below > 0:
            self.scaled <<= below
            self.exponent = exponent
            self.scaled += scaled
        else:
            self.scaled += scaled << -below

    def merge(self, other: ExactSum) -> None:
        """Add another sum."""
        self.add_scaled(other.scaled, other.exponent)
        self.nans += other.nans
        self.positive_infinities += other.positive_infinities
        self.negative_infinities += other.negative_infinities

    def _count(self, value: float, sign: int) -> None:
        if value != value:
            self.nans += sign
        elif value > 0:
            self.positive_infinities += sign
        else:
            self.negative_infinities += sign

    def reduce(self) -> None:
        """Make equal sums equal in their fields: remove what only a removed number needed."""
        if not self.scaled:
            self.exponent = 0
            return
        zeros = (self.scaled & -self.scaled).bit_length() - 1
        zeros = min(zeros, -self.exponent)
        self.scaled >>= zeros
        self.exponent += zeros

    @property
    def is_zero(self) -> bool:
        """True if nothing is left in it."""
        counts = self.nans or self.positive_infinities or self.negative_infinities
        return not self.scaled and not counts

    def divide(self, divisor: int) -> float:
        """Return the sum divided by an integer, rounded once."""
        if self.nans or (self.positive_infinities and self.negative_infinities):
            return math.nan
        if self.positive_infinities or self.negative_infinities:
            return math.inf if self.positive_infinities else -math.inf
        try:
            # A quotient of two integers is rounded correctly.
            return self.scaled / (divisor << -self.exponent)
        except OverflowError:
            return math.inf if self.scaled > 0 else -math.inf

    @property
    def exact(self) -> Fraction:
        """The sum of the finite numbers."""
        return Fraction(self.scaled, 1 << -self.exponent)
