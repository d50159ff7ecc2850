"""The tables of timelines, as the official Java library creates them.

A timeline is a list of messages. One table holds any number of timelines: the identifier columns
name the timeline, and the last key column is the message's id. By default the server assigns the
id from the commit stamp, so ids of a timeline rise in the order of the commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowtide.client.row_values import AUTO_INCREMENT
from rowtide.client.table_requests import KeyType
from rowtide.core.values.errors import Rejected, invalid, invalid_key
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_column_name, is_table_name
from rowtide.core.values.variant import Scalar

__all__ = [
    "MESSAGE_ID",
    "SYNC_TTL_S",
    "TTL_FOREVER",
    "VERSION_DEVIATION_S",
    "IdentifierType",
    "TimelineIdentifier",
    "TimelineMetaSchema",
    "TimelineSchema",
]

SYNC_TTL_S = 604_800
"""How long a sync table keeps its messages: seven days."""

VERSION_DEVIATION_S = 86_400 * 365 * 100
"""How far a writer's version may be from the server's clock: what the Java library sets."""

MESSAGE_ID = "__message_id"
"""The column of a sender's own id of a message, as in version 1 of the library."""

TTL_FOREVER = -1
"""The time to live of messages that do not expire."""

IDENTIFIER_COLUMNS_MAX = 3

IdentifierType = type[int] | type[str] | type[bytes]
"""The type of an identifier column."""

_NAMES: dict[type, str] = {int: "an integer", str: "a text", bytes: "bytes"}


@dataclass(frozen=True, slots=True)
class TimelineIdentifier:
    """The identifier columns of timelines with their types. The first is the partition key."""

    columns: tuple[tuple[str, IdentifierType], ...]

    @classmethod
    def of(cls, given: Sequence[str] | Mapping[str, IdentifierType]) -> TimelineIdentifier:
        """Return the columns that a schema names. A name without a type is a text."""
        if isinstance(given, str):
            raise invalid(f"The identifier is a list of columns: write ({given!r},).")
        pairs = given.items() if isinstance(given, Mapping) else [(name, str) for name in given]
        found = cls(tuple(pairs))
        if not 1 <= len(found.columns) <= IDENTIFIER_COLUMNS_MAX:
            raise invalid(
                f"An identifier has 1 to {IDENTIFIER_COLUMNS_MAX} columns, not "
                f"{len(found.columns)}."
            )
        for name, kind in found.columns:
            check_column_name(name, Limits())
            if kind not in _NAMES:
                raise invalid(f"Identifier column '{name}' can be int, str or bytes, not {kind!r}.")
        if len(set(found.names)) < len(found.names):
            raise invalid(f"The identifier has a column twice: {', '.join(found.names)}.")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(name for name, _ in self.columns)

    def row(self, values: Sequence[object], limits: Limits) -> dict[str, Scalar]:
        """Return the key columns of one timeline. Raises OTSInvalidPK with the column's name."""
        if len(values) != len(self.columns):
            raise invalid_key(
                f"The identifier has {len(self.columns)} columns ({', '.join(self.names)}), "
                f"but {len(values)} values are given."
            )
        return {
            name: _check_value(name, kind, value, limits)
            for (name, kind), value in zip(self.columns, values, strict=True)
        }


@dataclass(frozen=True, slots=True)
class TimelineSchema:
    """A table of timelines.

    ``identifier`` names 1 to 3 columns, as texts or by type: ``{"room": int}``. With
    ``manual_sequence`` the writer chooses the ids. The rising order of commits does not hold then:
    a reader that has passed an id may miss a smaller one. ``ttl_s`` is -1 for no expiry, and
    86,400 at least; then each message needs a field. ``lists`` are the fields that a read returns
    as lists of text.

    Changes are kept for ``stream_hours``, for ``follow``. The table has an index by message id,
    which ``send`` needs, unless ``has_send_index`` is False, messages expire, or ids are manual.
    """

    table: str
    identifier: Sequence[str] | Mapping[str, IdentifierType] = ("timeline_id",)
    sequence: str = "sequence_id"
    manual_sequence: bool = False
    ttl_s: int = TTL_FOREVER
    lists: Sequence[str] = ()
    stream_hours: int = 24
    has_send_index: bool = True
    key: TimelineIdentifier = field(init=False, repr=False, compare=False)
    """The identifier with its types."""

    def __post_init__(self) -> None:
        _check_table(self.table)
        object.__setattr__(self, "key", TimelineIdentifier.of(self.identifier))
        check_column_name(self.sequence, Limits())
        if self.sequence in self.key.names:
            raise invalid(f"Column '{self.sequence}' is an identifier: it cannot be the sequence.")
        least = Limits().time_to_live_s_min
        if self.ttl_s != TTL_FOREVER and self.ttl_s < least:
            raise invalid(f"ttl_s is {self.ttl_s}; it must be -1 (no expiry) or {least} at least.")

    @property
    def index(self) -> str | None:
        """The name of the index by message id, or None if the table has none."""
        if self.manual_sequence or self.ttl_s != TTL_FOREVER or not self.has_send_index:
            return None
        return f"{self.table}_by_message"

    def has_expired(self, row: Mapping[str, Scalar]) -> bool:
        """True if a whole row has expired, as it was read with all its columns.

        The server keeps the key of such a row until the reclaimer removes it, minutes later.
        """
        return self.ttl_s != TTL_FOREVER and len(row) == len(self.key.names) + 1

    def key_columns(self) -> dict[str, KeyType]:
        """Return the table's key as ``create_table`` takes it."""
        sequence: KeyType = int if self.manual_sequence else AUTO_INCREMENT
        return {**dict(self.key.columns), self.sequence: sequence}


@dataclass(frozen=True, slots=True)
class TimelineMetaSchema:
    """A table with one row for each timeline: its name, its members, whatever belongs to it.

    ``lists`` are the fields that a read returns as lists of text. Changes are kept for
    ``stream_hours``, for searches.
    """

    table: str
    identifier: Sequence[str] | Mapping[str, IdentifierType] = ("timeline_id",)
    lists: Sequence[str] = ()
    stream_hours: int = 24
    key: TimelineIdentifier = field(init=False, repr=False, compare=False)
    """The identifier with its types."""

    def __post_init__(self) -> None:
        _check_table(self.table)
        object.__setattr__(self, "key", TimelineIdentifier.of(self.identifier))


def _check_table(name: str) -> None:
    if not is_table_name(name, Limits()):
        raise invalid(f"Invalid table name: '{name}'.")


def _check_value(name: str, kind: IdentifierType, value: object, limits: Limits) -> Scalar:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise invalid_key(
            f"Identifier column '{name}' takes {_NAMES[kind]}, not {type(value).__name__}."
        )
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise invalid_key(f"Identifier column '{name}': {value} does not fit 64 bits.")
        return value
    if not value:
        raise invalid_key(f"Identifier column '{name}' is empty.")
    try:
        size = len(value.encode() if isinstance(value, str) else value)
    except UnicodeEncodeError as error:
        raise invalid_key(f"Identifier column '{name}' is not UTF-8: {error.reason}.") from error
    if size > limits.key_value_bytes_max:
        raise Rejected(
            "OTSParameterInvalid",
            f"Identifier column '{name}' has {size} bytes; the limit is "
            f"{limits.key_value_bytes_max}.",
        )
    return value
