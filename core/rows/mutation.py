"""A requested change of one row, and its outcome.

A ``ChangeRequest`` is a client's request, checked against the schema but not against the row. A
shard evaluates it into a mutation, with versions assigned and increments calculated, or rejects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rowtide.core.values.cell import Cell

__all__ = [
    "DELETE",
    "EXPECT_ABSENT",
    "EXPECT_PRESENT",
    "IGNORE",
    "PUT",
    "RETURN_AFTER_MODIFY",
    "RETURN_KEY",
    "RETURN_NOTHING",
    "UPDATE",
    "ChangeRequest",
    "ColumnCondition",
    "Outcome",
]

# Kinds of change: the numbers of the protocol's OperationType.
PUT, UPDATE, DELETE = 1, 2, 3
# Row expectations: the numbers of RowExistenceExpectation.
IGNORE, EXPECT_PRESENT, EXPECT_ABSENT = 0, 1, 2
# What the answer returns: the numbers of ReturnType.
RETURN_NOTHING, RETURN_KEY, RETURN_AFTER_MODIFY = 0, 1, 2


class ColumnCondition(Protocol):
    """A condition on a row's visible cells."""

    @property
    def columns(self) -> frozenset[bytes]:
        """The columns that it uses, of the key or not. It needs no others."""
        ...

    def holds(self, key: bytes, cells: Sequence[Cell] | None) -> bool:
        """True if the write may be made. ``cells`` is None if the row is absent.

        ``key`` is the row's key as wire bytes, from its tag 01 on.
        """
        ...


@dataclass(slots=True)
class ChangeRequest:
    """A requested change of one row. ``key`` is (name, variant) in the schema's order."""

    kind: int
    key: list[tuple[bytes, bytes]]
    cells: Sequence[Cell]
    expectation: int = IGNORE
    condition: ColumnCondition | None = None
    return_type: int = RETURN_NOTHING
    return_columns: frozenset[bytes] = frozenset()
    time_ms: int | None = None
    """When a source committed it; None for a client's change."""


class Outcome(NamedTuple):
    """A client's result: the returned row as wire bytes without header, and the units used."""

    row: bytes
    read_units: int
    write_units: int
