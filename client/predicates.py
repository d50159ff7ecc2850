"""Tests of a row, for filters of reads and conditions of writes.

    column("total") > 100
    (column("state") == "open") & ~(column("owner") == "ada")

A comparison is false if the row lacks the column, unless ``or_missing`` is set. Values of different
types are never equal and have no order: 1 is not 1.0.
"""

from __future__ import annotations

from typing import NoReturn

from google.protobuf.message import Message

from rowtide.client.row_values import Input, to_scalar
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant

__all__ = ["ColumnPage", "ColumnRef", "Predicate", "column"]


class Predicate:
    """A test of a row. Combine several with ``&``, ``|`` and ``~``."""

    __slots__ = ("_message",)

    def __init__(self, message: pb.Filter) -> None:
        self._message = message

    def __and__(self, other: Predicate) -> Predicate:
        return _combine(pb.LO_AND, self, other)

    def __or__(self, other: Predicate) -> Predicate:
        return _combine(pb.LO_OR, self, other)

    def __invert__(self) -> Predicate:
        return _combine(pb.LO_NOT, self)

    def __bool__(self) -> NoReturn:
        # Python would evaluate `a == 1 and b == 2` to the second test alone.
        raise TypeError("A predicate is tested by the server: combine with & | ~, not and, or, not")

    def encode(self) -> bytes:
        """Return the filter's bytes."""
        return self._message.SerializeToString()


class ColumnPage:
    """Reads some columns of each row: skip ``offset``, then return ``limit``. For reads only."""

    __slots__ = ("_message",)

    def __init__(self, *, offset: int = 0, limit: int) -> None:
        page = pb.ColumnPaginationFilter(offset=offset, limit=limit)
        self._message = _filter(pb.FT_COLUMN_PAGINATION, page)

    def encode(self) -> bytes:
        """Return the filter's bytes."""
        return self._message.SerializeToString()


class ColumnRef:
    """A column in a predicate: compare it, or test if a row has it."""

    __slots__ = ("_latest_only", "_name", "_or_missing")

    def __init__(self, name: str, *, or_missing: bool, any_version: bool) -> None:
        self._name = name
        self._or_missing = or_missing
        self._latest_only = not any_version

    __hash__ = None  # type: ignore[assignment]  # == gives a predicate, so it can't be a key.

    def __eq__(self, value: Input) -> Predicate:  # type: ignore[override]
        return self._compare(pb.CT_EQUAL, value)

    def __ne__(self, value: Input) -> Predicate:  # type: ignore[override]
        return self._compare(pb.CT_NOT_EQUAL, value)

    def __gt__(self, value: Input) -> Predicate:
        return self._compare(pb.CT_GREATER_THAN, value)

    def __ge__(self, value: Input) -> Predicate:
        return self._compare(pb.CT_GREATER_EQUAL, value)

    def __lt__(self, value: Input) -> Predicate:
        return self._compare(pb.CT_LESS_THAN, value)

    def __le__(self, value: Input) -> Predicate:
        return self._compare(pb.CT_LESS_EQUAL, value)

    def exists(self) -> Predicate:
        """Return the test that a row has the column."""
        return self._compare(pb.CT_EXIST, b"")

    def is_missing(self) -> Predicate:
        """Return the test that a row lacks the column."""
        return self._compare(pb.CT_NOT_EXIST, b"")

    def _compare(self, comparator: pb.ComparatorType, value: Input) -> Predicate:
        test = pb.SingleColumnValueFilter(
            comparator=comparator,
            column_name=self._name,
            column_value=variant.encode(to_scalar(self._name, value)),
            filter_if_missing=not self._or_missing,
            latest_version_only=self._latest_only,
        )
        return Predicate(_filter(pb.FT_SINGLE_COLUMN_VALUE, test))


def column(name: str, *, or_missing: bool = False, any_version: bool = False) -> ColumnRef:
    """Return a column to compare.

    ``or_missing``: a row that lacks the column passes. ``any_version``: any of the versions read
    may pass, not only the newest.
    """
    return ColumnRef(name, or_missing=or_missing, any_version=any_version)


def _filter(kind: pb.FilterType, content: Message) -> pb.Filter:
    return pb.Filter(type=kind, filter=content.SerializeToString())


def _combine(operator: pb.LogicalOperator, *parts: Predicate) -> Predicate:
    messages = [part._message for part in parts]
    content = pb.CompositeColumnValueFilter(combinator=operator, sub_filters=messages)
    return Predicate(_filter(pb.FT_COMPOSITE_COLUMN_VALUE, content))
