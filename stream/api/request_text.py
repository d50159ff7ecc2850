"""Checks that a parsed request's strings are UTF-8, which the proto2 parser does not check.

A string that is not UTF-8 leaves the parser as bytes. The string fields of a message type
are computed once, so that a request costs one check per string. A request with more
strings and messages than any that could be answered is rejected unread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rowtide.core.values.errors import invalid

__all__ = ["require_text"]

PARTS_MAX = 128 * 1024
"""Strings and messages of a request's repeated fields: a BatchGetRow may name 1024
columns for each of 100 rows. Checking them takes 0.1 s, in which no other request is
served.
"""


class _Plan(NamedTuple):
    """The names of a type's string fields, and of its message fields with their plans.

    Single and repeated fields are apart.
    """

    texts: tuple[str, ...]
    many_texts: tuple[str, ...]
    nested: tuple[tuple[str, _Plan], ...]
    many_nested: tuple[tuple[str, _Plan], ...]


def require_text(message: Message) -> None:
    """Raise OTSParameterInvalid if a string of ``message`` is not UTF-8, or it has too many."""
    _check(message, _plan(message.DESCRIPTOR), PARTS_MAX)


def _check(message: Any, plan: _Plan, left: int) -> int:
    """Return how many of the ``left`` strings and messages the remaining parts may have."""
    texts, many_texts, nested, many_nested = plan
    for name in texts:
        if type(getattr(message, name)) is not str:
            raise _not_text(name)
    for name in many_texts:
        found = getattr(message, name)
        left = _less(left, len(found))
        for text in found:
            if type(text) is not str:
                raise _not_text(name)
    for name, inner in nested:
        if message.HasField(name):
            left = _check(getattr(message, name), inner, left)
    for name, inner in many_nested:
        found = getattr(message, name)
        left = _less(left, len(found))
        for part in found:
            left = _check(part, inner, left)
    return left


def _less(left: int, count: int) -> int:
    if count > left:
        raise invalid(f"Invalid request body: more than {PARTS_MAX} values of repeated fields.")
    return left - count


@lru_cache(256)
def _plan(kind: Any) -> _Plan:
    texts: tuple[list[str], list[str]] = ([], [])
    nested: tuple[list[tuple[str, _Plan]], list[tuple[str, _Plan]]] = ([], [])
    for described in kind.fields:
        repeated = described.label == FieldDescriptor.LABEL_REPEATED
        if described.type == FieldDescriptor.TYPE_STRING:
            texts[repeated].append(described.name)
        elif described.message_type is not None and any(_plan(described.message_type)):
            nested[repeated].append((described.name, _plan(described.message_type)))
    return _Plan(tuple(texts[0]), tuple(texts[1]), tuple(nested[0]), tuple(nested[1]))


def _not_text(name: str) -> Exception:
    return invalid(f"Invalid request body: field '{name}' is not UTF-8.")
