"""Lengths of time in a query, and the buckets into which they divide time as DuckDB does."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlglot import exp

from rowtide.dashboards.sql.rejection import NodeRejected

__all__ = [
    "BUCKET_ORIGIN_US",
    "Interval",
    "bucket_ends",
    "bucket_starts",
    "parse_interval",
    "parse_timestamp",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
# DuckDB counts buckets of days and less from a Monday, and buckets of months from a year's start.
BUCKET_ORIGIN_US = int((datetime(2000, 1, 3, tzinfo=UTC) - _EPOCH) / _US)
_ORIGIN_MONTHS = 2000 * 12
_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
INTERVAL_US_MAX = 366 * _UNITS_US["DAY"]
INTERVAL_MONTHS_MAX = 12_000
END_OF_TIME_US = 2**63 - 1
YEAR_MAX = 9999
_WHOLE = re.compile(r"[0-9]{1,15}")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]{1,6})?)?)?"
)


class Interval:
    """A positive length of time: either months or microseconds, the other one is 0."""

    __slots__ = ("microseconds", "months")

    def __init__(self, *, months: int = 0, microseconds: int = 0) -> None:
        self.months = months
        self.microseconds = microseconds


def parse_interval(node: exp.Expr) -> Interval:
    """Return a literal such as INTERVAL '1 hour'. Raises ``NodeRejected``."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        raise NodeRejected(node, "a length of time must be a literal such as INTERVAL '1 hour'")
    count, unit = str(node.this.this), str(node.args.get("unit") or "").upper().removesuffix("S")
    if not _WHOLE.fullmatch(count) or unit not in (*_UNITS_US, *_UNITS_MONTHS):
        units = ", ".join([*_UNITS_US, *_UNITS_MONTHS]).lower()
        raise NodeRejected(node, f"an interval must be a whole number and one unit of {units}")
    months = int(count) * _UNITS_MONTHS.get(unit, 0)
    microseconds = int(count) * _UNITS_US.get(unit, 0)
    if months + microseconds == 0 or months > INTERVAL_MONTHS_MAX:
        raise NodeRejected(node, "an interval must be above 0 and at most 1,000 years")
    if microseconds > INTERVAL_US_MAX:
        raise NodeRejected(node, "an interval in days or less must be at most 366 days")
    return Interval(months=months, microseconds=microseconds)


def bucket_starts(width: Interval) -> Callable[[int], int]:
    """Return the function from a timestamp to the start of its bucket, both in microseconds."""
    if width.microseconds:
        width_us = width.microseconds
        return lambda at_us: at_us - (at_us - BUCKET_ORIGIN_US) % width_us
    return lambda at_us: _month_bucket(at_us, width.months)


def bucket_ends(width: Interval) -> Callable[[int], int]:
    """Return the function from the start of a bucket to its end, both in microseconds."""
    if width.microseconds:
        width_us = width.microseconds
        return lambda start_us: start_us + width_us
    return lambda start_us: _add_months(start_us, width.months)


def _add_months(at_us: int, months: int) -> int:
    at = _EPOCH + timedelta(microseconds=at_us)
    later = at.year * 12 + at.month - 1 + months
    year = later // 12
    if year > YEAR_MAX:
        return END_OF_TIME_US
    return (datetime(year, later % 12 + 1, 1, tzinfo=UTC) - _EPOCH) // _US


def _month_bucket(at_us: int, width_months: int) -> int:
    at = _EPOCH + timedelta(microseconds=at_us)
    months = at.year * 12 + at.month - 1
    months -= (months - _ORIGIN_MONTHS) % width_months
    # The bucket of an early year may begin before year 1, which Python's dates do not have.
    year = max(months // 12, 1)
    start = datetime(year, months % 12 + 1 if months >= 12 else 1, 1, tzinfo=UTC)
    return (start - _EPOCH) // _US


def parse_timestamp(node: exp.Literal) -> int:
    """Return the microseconds of a text such as '2026-01-31 12:00:00'. Raises ``NodeRejected``."""
    text = str(node.this)
    found = _TIMESTAMP.fullmatch(text)
    try:
        if not found:
            raise ValueError
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise NodeRejected(node, f"{text!r} is no timestamp: write YYYY-MM-DD HH:MM:SS") from error
    fraction = (found.group(7) or ".")[1:].ljust(6, "0")
    return (at - _EPOCH) // _US + int(fraction)
