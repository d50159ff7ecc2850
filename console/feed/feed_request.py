"""What a request for a feed asks for: its parameters, checked, and what they mean for a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.row_filter import RowTest, parse_test
from rowtide.console.feed.feed_lens import EVERY, SAMPLED, FeedMode, LensKey
from rowtide.console.feed.feed_start import FeedBegin
from rowtide.console.feed.stream_reading import TableStream
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.key_text import BadKeyText, parse_key_text
from rowtide.core.values.schema import INTEGER

__all__ = ["FILTER_CHARS_MAX", "FeedParameters", "FeedRequest", "parse_begin", "parse_request"]

FILTER_CHARS_MAX = 16 * 1024
COLUMNS_MAX = 1024
SHARDS_MAX = 64
NAMES = (
    *("after", "begin", "columns", "filter", "format", "key", "mode", "shard"),
    # A browser's EventSource cannot set headers, so a page may add this against caches.
    "_",
)
BEGINS: tuple[Literal["latest", "oldest", "rows"], ...] = ("latest", "oldest", "rows")
FORMATS = ("sse", "ndjson")


class FeedParameters(Protocol):
    """The query of an address."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """Return the values of a name."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names."""
        ...


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """One request. ``after`` is a token; empty: the feed begins at ``begin``.

    ``key`` is a partition key as text, whose type the table decides. ``shards`` are those to
    follow, empty for all.
    """

    after: str
    begin: FeedBegin
    mode: FeedMode
    format: str
    filter: RowTest | None
    columns: frozenset[str] | None
    key: str | None
    shards: frozenset[str]

    def lens_key(self, stream: TableStream) -> LensKey:
        """Return what the viewer sees of a table.

        Raises OTSParameterInvalid if the key's value is of another type than the key, and
        OTSNoPermissionAccess if the filter tests a hidden column.
        """
        tested = self.filter.columns if self.filter is not None else frozenset[str]()
        if hidden := tested & stream.hidden:
            raise Rejected(
                "OTSNoPermissionAccess",
                f"This console hides the column '{min(hidden)}' of table '{stream.table}', so no "
                f"filter may test it.",
            )
        return LensKey(
            self.mode,
            self.filter,
            self.columns,
            None if self.key is None else _encode_key(self.key, stream),
            self.shards or None,
        )


def parse_request(parameters: FeedParameters, last_event_id: str, accept: str) -> FeedRequest:
    """Return what an address asks for. Raises OTSParameterInvalid.

    ``last_event_id`` is the header that a browser sends when it reconnects. It is newer than the
    position in the address.
    """
    values = _Values(parameters)
    for name in parameters.keys():  # noqa: SIM118  # It is no dictionary.
        if name not in NAMES:
            raise invalid(f"Unknown parameter '{name[:50]}'. A feed has: {', '.join(NAMES[:-1])}.")
    after = last_event_id or values.one("after")
    if values.one("after") and values.one("begin"):
        raise invalid("Give either after or begin: a feed starts at one of them.")
    mode = values.one("mode") or EVERY
    if mode not in (EVERY, SAMPLED):
        raise invalid(f"mode must be every or sampled, not '{mode[:50]}'.")
    form = values.one("format") or ("ndjson" if "ndjson" in accept else "sse")
    if form not in FORMATS:
        raise invalid(f"format must be sse or ndjson, not '{form[:50]}'.")
    columns = values.many("columns", COLUMNS_MAX)
    key = parameters.getall("key", [])
    if len(key) > 1:
        raise invalid("key may be given once.")
    return FeedRequest(
        after,
        "latest" if after else parse_begin(values.one("begin") or "latest"),
        mode,
        form,
        _parse_filter(values.one("filter")),
        frozenset(columns) if columns else None,
        key[0] if key else None,
        frozenset(values.many("shard", SHARDS_MAX)),
    )


class _Values:
    """Values of parameters. Raises OTSParameterInvalid for one that is given too often."""

    def __init__(self, parameters: FeedParameters) -> None:
        self._parameters = parameters

    def one(self, name: str) -> str:
        """Return the only value; empty if there is none."""
        found = self._parameters.getall(name, [])
        if len(found) > 1:
            raise invalid(f"{name} may be given once.")
        return found[0] if found else ""

    def many(self, name: str, count_max: int) -> list[str]:
        """Return values that are separated by commas, or given several times."""
        found = self._parameters.getall(name, [])
        values = [part for value in found for part in value.split(",") if part]
        if len(values) > count_max:
            raise invalid(f"{name} has {len(values)} values, and the most is {count_max}.")
        return values


def parse_begin(text: str) -> FeedBegin:
    """Return where a feed begins. Raises OTSParameterInvalid."""
    for begin in BEGINS:
        if text == begin:
            return begin
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(
            f"begin must be latest, oldest, rows, a time such as 2024-05-01T12:00:00Z, or Unix "
            f"microseconds, not '{text[:50]}'."
        ) from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    time_us = int(found.timestamp() * 1_000_000)
    if time_us < 0:
        raise invalid(f"begin must not be before 1970, as '{text[:50]}' is.")
    return time_us


def _parse_filter(text: str) -> RowTest | None:
    if not text:
        return None
    if len(text) > FILTER_CHARS_MAX:
        raise invalid(f"The filter has {len(text)} characters, and the most is {FILTER_CHARS_MAX}.")
    try:
        return parse_test(text, "filter")
    except SettingsRefused as error:
        raise invalid(str(error)) from error


def _encode_key(text: str, stream: TableStream) -> bytes:
    """Return the variant of a partition key's value. Raises OTSParameterInvalid."""
    column = stream.key[0]
    where = f"The partition key '{column.name}' of table '{stream.table}'"
    if column.name in stream.hidden:
        raise Rejected("OTSNoPermissionAccess", f"{where} is hidden by this console.")
    try:
        return variant.encode(parse_key_text(column.type, text))
    except BadKeyText as error:
        kind = "INTEGER" if column.type == INTEGER else "BINARY"
        raise invalid(f"{where} is {kind}, and {error}.") from error
