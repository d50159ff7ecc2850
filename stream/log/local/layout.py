"""The layout of logs in the local database: keys, and the bytes of values.

A topic has consecutive partition numbers. Integers are big-endian, so keys sort like
numbers. The page of this format is ``docs/internals/formats/local-log.md``.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rowtide.stream.log.changelog import ChangelogEntry, Headers
from rowtide.stream.log.log import Entry

__all__ = [
    "BOUNDS",
    "FORMAT",
    "FORMAT_KEY",
    "LAST_KEY",
    "TOPICS",
    "Bounds",
    "Topic",
    "bounds_key",
    "change_of",
    "change_value",
    "entry_key",
    "entry_of",
    "entry_value",
    "latest_key",
    "number_of",
    "offset_of",
    "tombstone_key",
    "topic_key",
]

FORMAT = b"1"
FORMAT_KEY = b"a"
"""The first key: the version of this layout."""
BOUNDS = b"b"
TOPICS = b"t"
LAST_KEY = b"z"
"""Above all other keys: a scan that ends without meeting it has missed entries."""

_PLACE = Struct(">cIQ")
_PARTITION = Struct(">cI")
_BOUNDS = Struct(">QQQ")
_TOPIC = Struct(">II")
_LENGTH = Struct(">I")
_CHANGE = Struct(">?II")


class Bounds(NamedTuple):
    """The offsets of a partition; below ``compacted`` each key of a changelog is unique."""

    start: int = 0
    end: int = 0
    compacted: int = 0

    def encode(self) -> bytes:
        """Return the value for ``bounds_key``."""
        return _BOUNDS.pack(*self)

    @classmethod
    def decode(cls, value: bytes) -> Bounds:
        """Return the bounds of a stored value."""
        return cls(*_BOUNDS.unpack(value))


class Topic(NamedTuple):
    """Partitions ``first`` to ``first + partitions - 1``."""

    first: int
    partitions: int

    def encode(self) -> bytes:
        """Return the value for ``topic_key``."""
        return _TOPIC.pack(*self)

    @classmethod
    def decode(cls, value: bytes) -> Topic:
        """Return the topic of a stored value."""
        return cls(*_TOPIC.unpack(value))


# Keys.


def topic_key(name: str) -> bytes:
    """Return the key of a topic."""
    return TOPICS + name.encode()


def bounds_key(number: int) -> bytes:
    """Return the key of a partition's bounds."""
    return _PARTITION.pack(BOUNDS, number)


def entry_key(number: int, offset: int) -> bytes:
    """Return the key of an entry in a partition."""
    return _PLACE.pack(b"e", number, offset)


def latest_key(number: int, key: bytes) -> bytes:
    """Return the key of the offset of a changelog key's last entry."""
    return _PARTITION.pack(b"k", number) + key


def tombstone_key(number: int, offset: int) -> bytes:
    """Return the key of the time of a changelog's tombstone."""
    return _PLACE.pack(b"d", number, offset)


def offset_of(key: bytes) -> int:
    """Return the offset in an entry's or a tombstone's key."""
    return int(_PLACE.unpack(key)[2])


def number_of(key: bytes) -> int:
    """Return the partition in a bounds key."""
    return int(_PARTITION.unpack(key)[1])


# Values.


def entry_value(key: bytes, value: bytes) -> bytes:
    """Return an entry of a log as stored."""
    return _LENGTH.pack(len(key)) + key + value


def entry_of(offset: int, stored: bytes) -> Entry:
    """Return a stored entry."""
    end = 4 + _LENGTH.unpack_from(stored)[0]
    return Entry(offset, stored[4:end], stored[end:])


def change_value(key: bytes, value: bytes | None, headers: Headers) -> bytes:
    """Return an entry of a changelog as stored."""
    head = _CHANGE.pack(value is None, len(key), len(headers))
    if not headers:
        return head + key + (value or b"")
    parts = [head, key]
    for name, content in headers:
        encoded = name.encode()
        parts += _LENGTH.pack(len(encoded)), encoded, _LENGTH.pack(len(content)), content
    parts.append(value or b"")
    return b"".join(parts)


def change_of(offset: int, stored: bytes) -> ChangelogEntry:
    """Return a stored changelog entry."""
    is_tombstone, key_length, count = _CHANGE.unpack_from(stored)
    at = _CHANGE.size + key_length
    key = stored[_CHANGE.size : at]
    texts: list[bytes] = []
    for _ in range(2 * count):
        end = at + 4 + _LENGTH.unpack_from(stored, at)[0]
        texts.append(stored[at + 4 : end])
        at = end
    headers = [
        (name.decode(), content) for name, content in zip(texts[::2], texts[1::2], strict=True)
    ]
    return ChangelogEntry(offset, key, None if is_tombstone else stored[at:], headers)
