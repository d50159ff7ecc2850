"""Two systems without an order of keys: differences are found, changes on their way are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from rowtide.connectors.verify.comparison import Difference, Verdict
from rowtide.connectors.verify.scan import compare_scans
from rowtide.core.values.variant import Scalar

Columns = Mapping[str, Scalar]


@dataclass(slots=True)
class System:
    """Rows in the order in which they came; ``late`` are rows that come after so many looks."""

    held: dict[bytes, Columns] = field(default_factory=dict)
    late: list[tuple[bytes, Columns | None]] = field(default_factory=list)

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Give all rows, see ``Side.rows``."""
        for key, columns in list(self.held.items()):
            yield key, columns

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows, see ``Side.look_up``."""
        found = {key: self.held[key] for key in keys if key in self.held}
        if self.late:
            key, columns = self.late.pop(0)
            self.held.pop(key, None)
            if columns is not None:
                self.held[key] = columns
        return found


def systems(count: int = 500) -> tuple[System, System]:
    """Return two that are equal, in another order."""
    rows: list[tuple[bytes, Columns]] = [(b"%d" % n, {"n": n, "s": "x" * n}) for n in range(count)]
    return System(dict(rows)), System(dict(reversed(rows)))


async def compare_at_once(source: System, target: System) -> Verdict:
    async def at_once(_pause_s: float) -> None:
        pass

    return await compare_scans(source, target, rounds=5, pause=at_once)


async def test_equal_systems_are_equal() -> None:
    verdict = await compare_at_once(*systems())
    assert verdict.equal
    assert (verdict.rows, verdict.rows_held) == (500, 500)


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ({"n": 1}, None, Difference("missing", b"7")),
        (None, {"n": 1}, Difference("surplus", b"7")),
        ({"n": 1, "s": ""}, {"n": 1.0, "t": ""}, Difference("different", b"7", ("n", "s", "t"))),
    ],
)
async def test_a_planted_difference_is_found(
    left: Columns | None, right: Columns | None, found: Difference
) -> None:
    source, target = systems()
    for system, columns in ((source, left), (target, right)):
        del system.held[b"7"]
        if columns is not None:
            system.held[b"7"] = columns
    verdict = await compare_at_once(source, target)
    assert verdict.differences == [found]
    assert verdict.rows == 499 + (left is not None)
    assert verdict.rows_held == 499 + (right is not None)


async def test_what_is_on_its_way_is_no_difference() -> None:
    source, target = systems()
    source.held[b"3"] = {"n": -3}
    del source.held[b"4"]
    source.held[b"new"] = {"n": 0}
    target.late = [(b"3", {"n": -3}), (b"4", None), (b"new", {"n": 0})]
    assert (await compare_at_once(source, target)).equal


async def test_a_row_that_goes_on_changing_is_told_as_unsettled() -> None:
    source, target = systems()
    source.held[b"3"] = {"n": -1}
    source.late = [(b"3", {"n": -number}) for number in range(2, 20)]
    verdict = await compare_at_once(source, target)
    assert verdict.differences == [Difference("unsettled", b"3")]
