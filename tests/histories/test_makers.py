"""Tables and instances that several clients make, change and remove: each name is linearizable.

``python -m tests.histories.run --makers`` does the same beside every fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.campaign import Plan
from tests.histories.makers import judge_names
from tests.histories.operation import Kind, Operation, Row, Told
from tests.histories.test_histories import OPTIONS, WORKERS, played, schedule

MADE: Row = ("", 3)


def asked(
    kind: Kind,
    began_s: float,
    ended_s: float,
    *,
    told: Told = Told.OK,
    number: int = 0,
    found: Row = None,
) -> Operation:
    one = Operation(0, 0, "t1", kind, began_s, ended_s, told, number=number, found=found)
    if kind is Kind.PUT:
        one.expect = "EXPECT_NOT_EXIST"
    elif kind is Kind.DELETE:
        one.expect = "EXPECT_EXIST"
    return one


HISTORIES = {
    "a table is there once it was made": (
        [asked(Kind.PUT, 1, 2, number=3), asked(Kind.GET, 3, 4, found=MADE)],
        True,
    ),
    "one that was made is told absent": (
        [asked(Kind.PUT, 1, 2, number=3), asked(Kind.GET, 3, 4)],
        False,
    ),
    "two make it, and both are told so": (
        [asked(Kind.PUT, 1, 3, number=3), asked(Kind.PUT, 2, 4, number=3)],
        False,
    ),
    "two make it, and one is told that it is there": (
        [asked(Kind.PUT, 1, 3, number=3), asked(Kind.PUT, 2, 4, number=3, told=Told.REFUSED)],
        True,
    ),
    "it is removed, and is told to have been absent": (
        [asked(Kind.PUT, 1, 2, number=3), asked(Kind.DELETE, 3, 4, told=Told.REFUSED)],
        False,
    ),
    "a removal of which nothing was told may have been done": (
        [
            asked(Kind.PUT, 1, 2, number=3),
            asked(Kind.DELETE, 3, float("inf"), told=Told.UNKNOWN),
            asked(Kind.GET, 4, 5, found=MADE),
            asked(Kind.GET, 6, 7),
        ],
        True,
    ),
    "what is told gone is there again, though nobody made it": (
        [
            asked(Kind.PUT, 1, 2, number=3),
            asked(Kind.DELETE, 3, float("inf"), told=Told.UNKNOWN),
            asked(Kind.GET, 4, 5),
            asked(Kind.GET, 6, 7, found=MADE),
        ],
        False,
    ),
    "options that nobody set": (
        [asked(Kind.PUT, 1, 2, number=3), asked(Kind.GET, 3, 4, found=("", 2))],
        False,
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_was_told_of_a_name_is_explained_or_not(name: str) -> None:
    history, explained = HISTORIES[name]
    assert (judge_names(history) == []) is explained


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.system
def test_every_answer_about_tables_and_instances_can_be_explained(
    seed: int, tmp_path: Path, cache_dir: Path
) -> None:
    strikes = schedule(["kill-worker", "pause-worker", "stall-wire"], seed)
    plan = Plan("makers", seed, strikes, WORKERS, OPTIONS, makers=True)
    report, _ = played(plan, tmp_path, cache_dir)
    assert report.names["ok"] > 20, "a run that shows anything"
