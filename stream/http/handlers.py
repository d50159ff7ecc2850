"""Joins the rows of the operation table to the methods that answer them.

``@answers(name)`` names the operation that a method answers, in any part of a worker. A
divided operation has two more methods. The method with ``@checks`` checks a request and
returns what is to be divided, or None if it must not be divided. The method with
``@divides`` divides it among workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, TypeVar

from rowtide.core.protocol.operations import OPERATIONS

__all__ = ["Role", "answers", "checks", "divides", "methods_of"]

Method = TypeVar("Method", bound=Callable[..., Any])


class Role(StrEnum):
    """What a method does for an operation; the value is the attribute that holds its name."""

    ANSWERS = "answers_operation"
    CHECKS = "checks_operation"
    DIVIDES = "divides_operation"


def answers(operation: str) -> Callable[[Method], Method]:
    """Mark the method that answers an operation."""
    return _mark_as(Role.ANSWERS, operation)


def checks(operation: str) -> Callable[[Method], Method]:
    """Mark the method that checks a request before it is divided."""
    return _mark_as(Role.CHECKS, operation)


def divides(operation: str) -> Callable[[Method], Method]:
    """Mark the method that divides a request among workers."""
    return _mark_as(Role.DIVIDES, operation)


def _mark_as(role: Role, operation: str) -> Callable[[Method], Method]:
    if operation not in OPERATIONS:
        raise LookupError(f"core/protocol/operations.py has no row for {operation!r}: add one")

    def mark(method: Method) -> Method:
        setattr(method, role, operation)
        return method

    return mark


def methods_of(parts: Iterable[object], role: Role) -> dict[str, Callable[..., Any]]:
    """Return the methods of some parts that have a role, by operation. Raises ``LookupError``."""
    found: dict[str, Callable[..., Any]] = {}
    for part in parts:
        for kind in type(part).__mro__:
            for attribute, member in vars(kind).items():
                operation = getattr(member, role, None)
                if not isinstance(operation, str):
                    continue
                if operation in found:
                    raise LookupError(f"two methods have {role.value} {operation!r}")
                found[operation] = getattr(part, attribute)
    return found
