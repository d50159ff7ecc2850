"""Types that a sink's settings declare for attributes: decimals, dates and times.

A source's DECIMAL, date or time is text in rowtide. A declared type converts such a value
without loss, or refuses it. Nothing is rounded, cut or guessed. Times are UTC: an offset
is applied, and a timestamp without one is taken as UTC.

Each sink has words of its own for its users. Here a type has one of these words:

    decimal                        precision and scale
    date, date16, date32           days; the last two of ClickHouse, with fewer years
    time                           microseconds of a day
    timestamp                      microseconds
    datetime32, datetime64         of ClickHouse: seconds, or a number of digits of them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import NamedTuple

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import TableShape
from rowtide.core.values.variant import Scalar

__all__ = [
    "DeclaredTypes",
    "LogicalType",
    "LogicalValue",
    "fitting_columns",
    "normal_columns",
    "parse_type",
    "parse_types",
    "plain_value",
    "refuse_key_columns",
    "type_of_kind",
    "unfit_reason",
]

LogicalValue = Decimal | date | time | datetime

PRECISION_MAX = 38
"""Digits of a decimal that fit into 128 bits."""
FRACTION_MAX = 6
"""Digits of a second that Python's times have."""
SHOWN_MAX = 60
"""Characters of a refused value that its reason shows."""

# How many numbers follow a word.
_WORDS = {
    "decimal": 2,
    "datetime64": 1,
    **dict.fromkeys(("date", "date16", "date32", "time", "timestamp", "datetime32"), 0),
}
# Years that every version of ClickHouse accepts if it knows the type's full range.
_YEARS = {
    "date16": (1970, 2105),
    "date32": (1900, 2299),
    "datetime32": (1970, 2105),
    "datetime64": (1900, 2299),
}
_YEARS_OTHERS = (1, 9999)

_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?")
_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?(?::([0-9]{2}))?")
_TIMESTAMP = re.compile(rf"({_DATE.pattern})[ T]({_TIME.pattern})(Z|{_OFFSET.pattern})?")
_DECLARED = re.compile(r"([A-Za-z]+[0-9]*) ?(?:\( ?([0-9]{1,2}) ?(?:, ?([0-9]{1,2}) ?)?\))?")
_KIND = re.compile(r"([a-z]+[0-9]*?)(?:_([0-9]+))?(?:_([0-9]+))?")


class LogicalType(NamedTuple):
    """A declared type. ``scale`` is the number of digits after the point, also of seconds."""

    word: str
    precision: int = 0
    scale: int = 0

    @property
    def kind(self) -> str:
        """The type as a kind of a column (``layout.py``), which may be part of a name."""
        if self.word == "decimal":
            return f"decimal_{self.precision}_{self.scale}"
        return f"datetime64_{self.scale}" if self.word == "datetime64" else self.word

    def convert(self, value: Scalar) -> LogicalValue:
        """Return a value in this type. Raises ``ValueError`` with the reason if it does not fit."""
        if self.word == "decimal":
            return self._decimal(value)
        if not isinstance(value, str):
            raise ValueError("only a text can be a date or a time")
        if self.word in ("date", "date16", "date32"):
            return self._within_years(_date(value))
        if self.word == "time":
            return _time(value, self.scale)
        found = _timestamp(value, self.scale)
        self._within_years(found.date())
        return found

    def _decimal(self, value: Scalar) -> Decimal:
        if isinstance(value, bool | bytes):
            raise ValueError("it is not a number")
        text = str(value)  # A double is written in its shortest form.
        if not _DECIMAL.fullmatch(text):
            raise ValueError("it is not a number")
        context = Context(prec=self.precision, traps=[Inexact, InvalidOperation])
        try:
            found = Decimal(text).quantize(Decimal((0, (1,), -self.scale)), context=context)
        except Inexact as error:
            raise ValueError(f"it has more than {self.scale} digits after the point") from error
        except InvalidOperation as error:
            digits = self.precision - self.scale
            raise ValueError(f"it has more than {digits} digits before the point") from error
        return found if found else found.copy_abs()  # Targets have no negative zero.

    def _within_years(self, day: date) -> date:
        first, last = _YEARS.get(self.word, _YEARS_OTHERS)
        if not first <= day.year <= last:
            raise ValueError(f"the years are {first} to {last}")
        return day


DeclaredTypes = Mapping[str, LogicalType]
"""Types by the attribute's name in rowtide."""


def parse_types(fields: Fields, words: Mapping[str, str]) -> dict[str, LogicalType]:
    """Return the declared types by attribute. ``words`` maps the sink's lower-case words
    to ours.

    Raises ``SettingsRefused`` for a text that is no such type.
    """
    found: dict[str, LogicalType] = {}
    for name in fields.names():
        text = fields.text(name)
        made = parse_type(text, words)
        if made is None:
            raise SettingsRefused(
                f"{fields.where}.{name} must be one of {', '.join(map(_example, words))}, "
                f"but is {text!r}."
            )
        found[name] = made
    return found


def parse_type(text: str, words: Mapping[str, str]) -> LogicalType | None:
    """Return the type that a text declares, None if it is none of ``words``."""
    parts = _DECLARED.fullmatch(text)
    word = words.get(parts[1].lower()) if parts is not None else None
    return _make_type(word, parts[2], parts[3]) if parts is not None and word else None


def refuse_key_columns(types: DeclaredTypes, table: TableShape) -> None:
    """Refuse types of key columns: a key is compared in its own type. Raises SettingsRefused."""
    for column in table.key:
        if column.name in types:
            raise SettingsRefused(
                f"`columns` has {column.name}, of the key of {table.name}: "
                "only attributes can have a type of their own."
            )


def type_of_kind(kind: str) -> LogicalType | None:
    """Return the type of a column's kind, None for a kind of rowtide's own values."""
    parts = _KIND.fullmatch(kind)
    if parts is None or parts[1] not in _WORDS:
        return None
    return _make_type(*parts.groups())


def plain_value(value: Scalar | LogicalValue | None) -> Scalar | None:
    """Return a value as rowtide stores it. A logical value becomes its text."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, time):
        return value.isoformat("microseconds")
    return value.isoformat() if isinstance(value, date) else value


def normal_columns(types: DeclaredTypes, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Return columns in which equal values of a declared type have one text.

    A value that does not fit its type is left as it is. The sink refused it, so it
    differs from the stored value.
    """
    changed: dict[str, Scalar] = {}
    for name in types.keys() & columns.keys():
        try:
            value = plain_value(types[name].convert(columns[name]))
        except ValueError:
            continue
        assert value is not None, "converted"
        changed[name] = value
    return {**columns, **changed} if changed else columns


def unfit_reason(columns: Mapping[str, Scalar], types: DeclaredTypes) -> str:
    """Return why a row's columns do not fit their types, an empty text if they fit."""
    for name in types.keys() & columns.keys():
        try:
            types[name].convert(columns[name])
        except ValueError as error:
            shown = repr(columns[name])[:SHOWN_MAX]
            return f"`columns` gives {name!r} a type that {shown} does not fit: {error}."
    return ""


def fitting_columns(columns: Mapping[str, Scalar], types: DeclaredTypes) -> Mapping[str, Scalar]:
    """Return columns without the values that do not fit their types."""
    unfit = {
        name for name in types.keys() & columns.keys() if unfit_reason({name: columns[name]}, types)
    }
    return {n: v for n, v in columns.items() if n not in unfit} if unfit else columns


def _make_type(word: str | None, first: str | None, second: str | None) -> LogicalType | None:
    numbers = [int(number) for number in (first, second) if number is not None]
    if word is None or len(numbers) != _WORDS[word]:
        return None
    if word == "decimal":
        precision, scale = numbers
        fits = 1 <= precision <= PRECISION_MAX and scale <= precision
        return LogicalType(word, precision, scale) if fits else None
    if word == "datetime64":
        return LogicalType(word, 0, numbers[0]) if numbers[0] <= FRACTION_MAX else None
    return LogicalType(word, 0, FRACTION_MAX if word in ("time", "timestamp") else 0)


def _example(word: str) -> str:
    return word.upper() + {"decimal": "(10,2)", "datetime64": "(3)"}.get(word, "")


def _date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError("it is not a date such as 2024-02-29")
    return date.fromisoformat(text)


def _time(text: str, scale: int) -> time:
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError("it is not a time of day such as 23:59:59.123456")
    return time.fromisoformat(parts[1]).replace(microsecond=_microsecond(parts[2], scale))


def _timestamp(text: str, scale: int) -> datetime:
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise ValueError("it is not a timestamp such as 2024-02-29 23:59:59.123456+00:00")
    day, of_day, offset = parts[1], parts[2], parts[5]
    found = datetime.combine(_date(day), _time(of_day, scale), _zone(offset))
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("its year is out of range in UTC") from error


def _zone(offset: str | None) -> timezone:
    parts = _OFFSET.fullmatch(offset or "")
    if parts is None:  # None, or Z.
        return UTC
    hours, minutes, seconds = (int(part or 0) for part in parts.groups()[1:])
    span = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(span if parts[1] == "+" else -span)


def _microsecond(digits: str | None, scale: int) -> int:
    if digits is not None and digits[scale:].strip("0"):
        raise ValueError(f"it has more than {scale} digits after the point")
    return int((digits or "")[:FRACTION_MAX].ljust(FRACTION_MAX, "0"))
