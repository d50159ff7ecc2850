"""Whatever is killed or paused between any two steps, inboxes have each message once, in order.

``ROWTIDE_FAN_OUT_SEEDS`` is the number of seeds, ``ROWTIDE_SEED`` the first. Each seed is one exact
run. ``make test`` runs a tenth of the seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.connectors.timeline.virtual_fan_out import FanOutWorld
from tests.simulation.virtual_time import in_virtual_time

SEEDS = int(os.environ.get("ROWTIDE_FAN_OUT_SEEDS", "300"))
FIRST = int(os.environ.get("ROWTIDE_SEED", "1"))
AT_ONCE = 30
ACTIONS = 60


def run(seed: int) -> None:
    try:
        in_virtual_time(FanOutWorld(seed).run(ACTIONS))
    except Exception as error:
        again = f"ROWTIDE_SEED={seed} ROWTIDE_FAN_OUT_SEEDS=1"
        raise AssertionError(f"{again}: {error}") from error


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(FIRST + at, marks=() if not at else pytest.mark.slow)
        for at in range(0, SEEDS, AT_ONCE)
    ],
)
def test_every_inbox_has_each_message_once_and_in_order(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FIRST + SEEDS)):
        run(seed)
