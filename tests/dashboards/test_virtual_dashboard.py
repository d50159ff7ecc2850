"""Whatever is killed or paused between any two steps, each position has the sums of its changes.

``ROWTIDE_DASHBOARD_SEEDS`` is the number of seeds, ``ROWTIDE_SEED`` the first. Each seed is one
exact run. ``make test`` runs a tenth of the seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.dashboards.panel_rows import DuckRows
from tests.dashboards.virtual_dashboard import TYPES, DashboardWorld
from tests.simulation.virtual_time import in_virtual_time

SEEDS = int(os.environ.get("ROWTIDE_DASHBOARD_SEEDS", "300"))
FIRST = int(os.environ.get("ROWTIDE_SEED", "1"))
AT_ONCE = 30
ACTIONS = 60


@pytest.fixture(scope="module")
def duck() -> Iterator[DuckRows]:
    rows = DuckRows(TYPES)
    yield rows
    rows.close()


def run(seed: int, duck: DuckRows) -> int:
    """Run one seed; return how many positions were compared on the way."""
    world = DashboardWorld(seed, duck)
    try:
        in_virtual_time(world.run(ACTIONS))
    except Exception as error:
        again = f"ROWTIDE_SEED={seed} ROWTIDE_DASHBOARD_SEEDS=1"
        raise AssertionError(f"{again}: {error}") from error
    return world.looks


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(FIRST + at, marks=() if not at else pytest.mark.slow)
        for at in range(0, SEEDS, AT_ONCE)
    ],
)
def test_every_position_has_the_sums_of_its_changes(first: int, duck: DuckRows) -> None:
    seeds = range(first, min(first + AT_ONCE, FIRST + SEEDS))
    looks = [run(seed, duck) for seed in seeds]
    assert len(seeds) < AT_ONCE or any(looks), "no position was compared"
