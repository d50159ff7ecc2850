"""One row of a state machine's table, and the check that a step is in the table."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

__all__ = ["Transition", "require_transition"]


class Transition(NamedTuple):
    """``event`` leads from ``state`` to ``next_state``; ``done`` names the action."""

    state: type[object]
    event: Enum
    next_state: type[object]
    done: str


def require_transition(
    table: Iterable[Transition], event: Enum, *, state: object, next_state: object
) -> None:
    """Raise ``AssertionError`` unless the table has this step: another one is our own error."""
    step = (type(state), event, type(next_state))
    assert any(row[:3] == step for row in table), f"no such transition: {step}"
