"""Python expressions of a row, from which a panel's functions are compiled.

A panel evaluates the same expressions for each row. Functions that call each other cost more than
what they calculate. Names and texts of a query never become source: values are bound by names that
are made here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, cast

from rowtide.dashboards.values.kinds import Value

__all__ = [
    "Evaluate",
    "RowCode",
    "bind",
    "compile_function",
    "compile_row",
    "constant_code",
    "join",
]

Evaluate = Callable[[Sequence[Value]], Value]

DEPTH_MAX = 12
"""Deeper expressions become functions of their own: Python's parser bounds nested brackets."""

_numbers = count(1)


class RowCode(NamedTuple):
    """An expression of the tuple ``row``. ``names`` are the values that it has names for.

    ``value`` is set for a constant other than NULL: (value,).
    """

    text: str
    names: Mapping[str, object] = types.MappingProxyType({})
    depth: int = 0
    value: tuple[Value] | None = None


def bind(value: object) -> RowCode:
    """Return the code of a value under a new name."""
    name = f"v{next(_numbers)}"
    return RowCode(name, {name: value})


def constant_code(value: Value) -> RowCode:
    """Return the code of a value that is the same in every row."""
    if value is None:
        return RowCode("None")
    if isinstance(value, bool | int):
        return RowCode(f"({value!r})", value=(value,))
    return bind(value)._replace(value=(value,))


def join(template: str, *parts: RowCode, **named: object) -> RowCode:
    """Return the code of a template in which ``{0}`` is the first part, ``{f}`` a named value.

    Every part is in brackets. ``{t}``, ``{u}`` are new names for what is evaluated on the way.
    """
    bound = {name: bind(value) for name, value in named.items()}
    depth = max((part.depth for part in parts), default=0) + 1
    if depth > DEPTH_MAX:
        parts, depth = tuple(_shorten(part) for part in parts), 1
    names: dict[str, object] = {}
    for code in (*parts, *bound.values()):
        names |= code.names
    number = next(_numbers)
    text = template.format(
        *(part.text for part in parts),
        **{name: code.text for name, code in bound.items()},
        t=f"t{number}",
        u=f"u{number}",
    )
    return RowCode(f"({text})", names, depth)


def _shorten(code: RowCode) -> RowCode:
    """Return the code of a call of a function that has the expression."""
    if not code.depth:
        return code
    call = bind(compile_row(code))
    return RowCode(f"{call.text}(row)", call.names)


def compile_row(code: RowCode) -> Evaluate:
    """Return the function that evaluates an expression of a row."""
    found = compile_function(["def evaluate(row):", f"    return {code.text}"], code.names)
    return cast(Evaluate, found)


def compile_function(lines: Sequence[str], names: Mapping[str, object]) -> object:
    """Return the function ``evaluate`` that the lines define."""
    known: dict[str, object] = dict(names)
    exec(compile("\n".join(lines), "<panel>", "exec"), known)
    return known["evaluate"]
