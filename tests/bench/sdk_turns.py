"""What turns of several servers give: medians, and the spread that identical trees show.

Servers take turns, so that a slow minute of the machine meets all of them. A figure is the median
of its turns. Two servers of identical trees show what chance alone does: however their turns are
divided into two halves, the halves' medians differ by the *spread* at most. A change of another
tree that is not above the spread is not claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import NamedTuple

__all__ = ["FIGURES", "Compared", "Measure", "Sample", "compare", "medians", "spread"]

FIGURES = ("rate", "p50_ms", "p99_ms", "worker_us", "broker_us", "client_us")


class Measure(NamedTuple):
    """What is measured: which server does what for which client, on how many connections."""

    server: str
    client: str
    operation: str
    connections: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. ``rate`` is in operations a second; CPU is microseconds an operation.

    An operation is a call, or a row of a batch or a scan, or a record of a stream. ``tree`` names
    the source tree of the server. ``worker_us`` is all of a server that is not a broker.
    """

    measure: Measure
    tree: str
    turn: int
    rate: float
    p50_ms: float
    p99_ms: float
    worker_us: float
    broker_us: float
    client_us: float

    def document(self) -> dict[str, object]:
        """Return the sample for JSON."""
        return {**asdict(self), "measure": self.measure._asdict()}


class Compared(NamedTuple):
    """One figure of two trees. ``change`` and ``spread`` are parts of one: 0.1 is 10 %."""

    measure: Measure
    figure: str
    this: float
    other: float
    change: float
    spread: float

    @property
    def claimed(self) -> bool:
        """Whether the trees differ by more than identical ones do."""
        ratio = 1 + self.change
        return ratio == 0 or max(ratio, 1 / ratio) - 1 > self.spread


def medians(samples: Sequence[Sample], tree: str) -> dict[Measure, dict[str, float]]:
    """Return the medians of a tree's figures, in the order in which they were measured."""
    measures = dict.fromkeys(sample.measure for sample in samples if sample.tree == tree)
    return {
        measure: {figure: median(_values(samples, measure, tree, figure)) for figure in FIGURES}
        for measure in measures
    }


def compare(
    samples: Sequence[Sample], this: str, other: str, twin: str, figures: Sequence[str]
) -> list[Compared]:
    """Compare another tree with this one; ``twin`` is a tree that is identical to this one."""
    found = []
    for measure in medians(samples, other):
        for figure in figures:
            own = _values(samples, measure, this, figure)
            others = _values(samples, measure, other, figure)
            if not any(own) or not any(others):
                continue  # There is no such process in this mode.
            change = median(own) / median(others) - 1 if median(others) else 0.0
            chance = spread(own, _values(samples, measure, twin, figure))
            found.append(
                Compared(measure, figure, median(own), median(others), change, spread=chance)
            )
    return found


def spread(first: Sequence[float], second: Sequence[float]) -> float:
    """Return by how much, as a part of one, medians of two identical trees differ by chance.

    The medians differ most where one half has all of the higher turns.
    """
    together = sorted([*first, *second])
    half = len(together) // 2
    if half == 0 or not together[0]:
        return float("inf")
    return median(together[-half:]) / median(together[:half]) - 1


def _values(samples: Sequence[Sample], measure: Measure, tree: str, figure: str) -> list[float]:
    return [
        getattr(sample, figure)
        for sample in samples
        if sample.measure == measure and sample.tree == tree
    ]
