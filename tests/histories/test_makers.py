"""Tables and instances that several clients make, change and remove: each name is linearizable.

``python -m tests.histories.run --makers`` does the same beside every fault.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.campaign import Plan
from tests.histories.makers import judge_names
from tests.histories.operation import Kind, Operation, Outcome, Row
from tests.histories.test_histories import OPTIONS, WORKERS, play_cleanly, schedule

MADE: Row = ("", 3)


def make_operation(
    kind: Kind,
    began_s: float,
    ended_s: float,
    *,
    outcome: Outcome = Outcome.OK,
    number: int = 0,
    found: Row = None,
) -> Operation:
    one = Operation(0, 0, "t1", kind, began_s, ended_s, outcome, number=number, found=found)
    if kind is Kind.PUT:
        one.expect = "EXPECT_NOT_EXIST"
    elif kind is Kind.DELETE:
        one.expect = "EXPECT_EXIST"
    return one


HISTORIES = {
    "a table is there once it was made": (
        [make_operation(Kind.PUT, 1, 2, number=3), make_operation(Kind.GET, 3, 4, found=MADE)],
        True,
    ),
    "one that was made is reported absent": (
        [make_operation(Kind.PUT, 1, 2, number=3), make_operation(Kind.GET, 3, 4)],
        False,
    ),
    "two make it, and both succeed": (
        [make_operation(Kind.PUT, 1, 3, number=3), make_operation(Kind.PUT, 2, 4, number=3)],
        False,
    ),
    "two make it, and one learns that it is there": (
        [
            make_operation(Kind.PUT, 1, 3, number=3),
            make_operation(Kind.PUT, 2, 4, number=3, outcome=Outcome.REFUSED),
        ],
        True,
    ),
    "it is removed, and is reported absent": (
        [
            make_operation(Kind.PUT, 1, 2, number=3),
            make_operation(Kind.DELETE, 3, 4, outcome=Outcome.REFUSED),
        ],
        False,
    ),
    "a removal without an answer may have been done": (
        [
            make_operation(Kind.PUT, 1, 2, number=3),
            make_operation(Kind.DELETE, 3, float("inf"), outcome=Outcome.UNKNOWN),
            make_operation(Kind.GET, 4, 5, found=MADE),
            make_operation(Kind.GET, 6, 7),
        ],
        True,
    ),
    "what is reported gone is there again, though nobody made it": (
        [
            make_operation(Kind.PUT, 1, 2, number=3),
            make_operation(Kind.DELETE, 3, float("inf"), outcome=Outcome.UNKNOWN),
            make_operation(Kind.GET, 4, 5),
            make_operation(Kind.GET, 6, 7, found=MADE),
        ],
        False,
    ),
    "options that nobody set": (
        [make_operation(Kind.PUT, 1, 2, number=3), make_operation(Kind.GET, 3, 4, found=("", 2))],
        False,
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_answers_about_a_name_are_explained_or_not(name: str) -> None:
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
    report, _ = play_cleanly(plan, tmp_path, cache_dir)
    assert report.names["ok"] > 20, "a run that shows anything"
