"""How long random searches are: in ``make test`` short ones, in ``make test-all`` long ones."""

from __future__ import annotations

import os

__all__ = ["LONG", "examples"]

LONG = os.environ.get("ROWTIDE_TEST_SEARCH") == "long"
"""``make test-all`` sets it."""


def examples(each_time: int, long: int) -> int:
    """Return how many examples Hypothesis makes: for each commit, or in a long search."""
    return long if LONG else each_time
