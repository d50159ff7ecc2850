"""The bytes of the local log are those of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.log.local.layout import (
    Bounds,
    Topic,
    bounds_key,
    change_of,
    change_value,
    entry_key,
    entry_of,
    entry_value,
    number_of,
    offset_of,
)
from rowtide.stream.log.log import Entry

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/formats/local-log.md"

EXAMPLES = {
    "entry key, partition 1, offset 2": entry_key(1, 2),
    "log entry, key `k`, value `v1`": entry_value(b"k", b"v1"),
    "bounds from 2 to 5": Bounds(2, 5).encode(),
    "topic of partitions 3 and 4": Topic(3, 2).encode(),
    "change, key `k`, value `v`, header `h` = `x`": change_value(b"k", b"v", [("h", b"x")]),
    "tombstone of `k`": change_value(b"k", None, []),
}


def test_the_page_has_the_bytes_that_are_written() -> None:
    page = PAGE.read_text(encoding="utf-8").split("## Examples")[1]
    found = re.findall(r"^\| (.+) \| `([0-9a-f]+)` \|$", page, re.MULTILINE)
    assert dict(found) == {what: content.hex() for what, content in EXAMPLES.items()}


@pytest.mark.parametrize(("key", "value"), [(b"", b""), (b"k", b""), (b"\0" * 300, b"\xff" * 9)])
def test_an_entry_is_read_as_it_was_written(key: bytes, value: bytes) -> None:
    assert entry_of(7, entry_value(key, value)) == Entry(7, key, value)


@pytest.mark.parametrize("value", [None, b"", b"v" * 300])
@pytest.mark.parametrize("headers", [[], [("h", b"")], [("h", b"x"), ("", b"yy"), ("h", b"z")]])
def test_a_change_is_read_as_it_was_written(
    value: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    stored = change_value(b"key", value, headers)
    assert change_of(7, stored) == ChangelogEntry(7, b"key", value, headers)


def test_keys_say_what_they_are_of() -> None:
    assert offset_of(entry_key(9, 1 << 40)) == 1 << 40
    assert number_of(bounds_key(9)) == 9
    assert Bounds.decode(Bounds(1, 2, 3).encode()) == Bounds(1, 2, 3)
    assert Topic.decode(Topic(1, 2).encode()) == Topic(1, 2)
