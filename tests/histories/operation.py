"""One operation on one row: what was asked, when, of which worker, and what was answered.

Times are seconds of one monotonic clock. An operation whose outcome is unknown has no end: it may
take effect at any moment after it was sent, or never. What was refused as unavailable has had no
effect and is only counted; should it have one after all, a row shows a mark that nobody wrote.

A row is its mark, which no two writes share, and a number; an absent row is None. The rules of
``step`` are those of the protocol, written down a second time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final, Literal

__all__ = ["ILLEGAL", "Kind", "Operation", "Outcome", "Row", "from_json", "step", "to_json"]

Row = tuple[str, int | None] | None
"""A row's mark and number; the number is None until a put or an increment sets one."""

Expect = Literal["IGNORE", "EXPECT_EXIST", "EXPECT_NOT_EXIST"]


class Kind(Enum):
    """What was asked. A range is a GET of each of its keys, in the range's own time."""

    GET = "get"
    PUT = "put"
    UPDATE = "update"
    INCREMENT = "increment"
    DELETE = "delete"


class Outcome(Enum):
    """What the client knows of the outcome."""

    OK = "ok"
    REFUSED = "refused"
    """A condition did not hold: a strong read in itself."""
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Operation:
    """``number`` is what a put sets or an increment adds; ``found`` what a get or an increment
    returned; ``if_mark`` a condition on the row's mark. ``bound_s`` is how stale a read may be."""

    client: int
    worker: int
    key: str
    kind: Kind
    invoked_s: float
    returned_s: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    mark: str = ""
    number: int = 0
    expect: Expect = "IGNORE"
    if_mark: str | None = None
    found: Row | int = None
    bound_s: float | None = None

    @property
    def reads(self) -> bool:
        """True if it left the row as it was, for sure."""
        return self.kind is Kind.GET or self.outcome is Outcome.REFUSED


class _Illegal(Enum):
    ILLEGAL = "illegal"


ILLEGAL: Final = _Illegal.ILLEGAL

GET, PUT, UPDATE, INCREMENT = Kind.GET, Kind.PUT, Kind.UPDATE, Kind.INCREMENT
OK, REFUSED = Outcome.OK, Outcome.REFUSED


def step(row: Row, operation: Operation) -> Row | _Illegal:
    """Return the row after an operation, or ILLEGAL where its answer can't be of this row.

    An unknown one whose condition fails has no effect: it is illegal too, as if never done.
    """
    if operation.kind is GET:
        return row if row == operation.found else ILLEGAL
    holds = _holds(row, operation)
    if operation.outcome is REFUSED:
        return ILLEGAL if holds else row
    if not holds:
        return ILLEGAL
    after = apply_write(row, operation)
    if operation.kind is INCREMENT and operation.outcome is OK:
        assert after is not None
        return after if after[1] == operation.found else ILLEGAL
    return after


def apply_write(row: Row, operation: Operation) -> Row:
    """Return the row after a write whose condition holds."""
    number = None if row is None else row[1]
    if operation.kind is PUT:
        return operation.mark, operation.number
    if operation.kind is UPDATE:
        return operation.mark, number
    if operation.kind is INCREMENT:
        return operation.mark, (number or 0) + operation.number
    return None


def _holds(row: Row, operation: Operation) -> bool:
    if operation.expect == "EXPECT_EXIST" and row is None:
        return False
    if operation.expect == "EXPECT_NOT_EXIST" and row is not None:
        return False
    return operation.if_mark is None or (row is not None and row[0] == operation.if_mark)


def to_json(operation: Operation) -> dict[str, Any]:
    """Return an operation as JSON has it; one without end has null."""
    fields = asdict(operation)
    fields["kind"], fields["told"] = operation.kind.value, fields.pop("outcome").value
    fields["returned_s"] = None if math.isinf(operation.returned_s) else operation.returned_s
    return fields


def from_json(stored: dict[str, Any]) -> Operation:
    """Return what ``to_json`` made JSON of."""
    fields = dict(stored)
    fields["kind"], fields["outcome"] = Kind(stored["kind"]), Outcome(fields.pop("told"))
    fields["returned_s"] = math.inf if stored["returned_s"] is None else stored["returned_s"]
    if isinstance(stored["found"], list):
        fields["found"] = tuple(stored["found"])
    return Operation(**fields)
