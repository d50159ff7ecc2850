"""Statements that begin, divide and end transactions in the binlog."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from rowtide.connectors.sources.mysql.words import Reader, Token

__all__ = ["Control", "Step", "control_of"]


class Step(Enum):
    """What a statement does to its transaction."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    ROLLBACK_TO = "rollback to"
    SAVEPOINT = "savepoint"
    RELEASE = "release"
    XA_ENDED = "xa ended"
    """A transaction that was prepared earlier was committed or rolled back."""
    XA_STEP = "xa step"


class Control(NamedTuple):
    """A step. ``savepoint`` is its savepoint's name, folded as the server compares names."""

    step: Step
    savepoint: str = ""


def control_of(found: Sequence[Token]) -> Control | None:
    """Return what a statement does to its transaction, None for any other statement."""
    reader = Reader(found)
    if reader.take("START", "TRANSACTION"):
        return Control(Step.BEGIN)
    if reader.take("XA"):
        if reader.next in ("START", "BEGIN"):
            return Control(Step.BEGIN)
        ended = reader.next in ("COMMIT", "ROLLBACK")
        return Control(Step.XA_ENDED if ended else Step.XA_STEP)
    if reader.take("SAVEPOINT"):
        return Control(Step.SAVEPOINT, reader.part().casefold())
    if reader.take("RELEASE", "SAVEPOINT"):
        return Control(Step.RELEASE, reader.part().casefold())
    first = reader.take_any({"BEGIN", "COMMIT", "ROLLBACK"})
    if not first:
        return None
    reader.take("WORK")
    if first == "ROLLBACK" and reader.take("TO"):
        reader.take("SAVEPOINT")
        return Control(Step.ROLLBACK_TO, reader.part().casefold())
    return Control(Step[first])
