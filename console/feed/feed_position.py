"""The position of a reader in a table's stream, as a token that people keep for days.

A token is complete: any console process resumes from it, whatever was split, merged or moved since.
It grants nothing. Its form is base64url, without padding, of these bytes:

    01            the version of the form
    kind          00 stream, 01 rows, 02 over
    tag           4 bytes of the SHA-256 of the instance's and the table's names
    enabled at    varint, microseconds: names the life of the stream
    time          varint, seconds: what is unread was committed later
    rows from     varint length, then the encoded key at which unread rows begin (kind 01 alone)
    shards        varint count, then for each: name, offset, delay
      name        varint n + 1 for the shard ``sN``; 00, varint length, text for any other
      offset      varint, the next entry to read
      delay       varint, seconds: what is unread of this shard was committed after time + delay
    checksum      4 bytes, CRC-32 of all bytes before it, big-endian

A shard that is not named is either a descendant of one that is, and unread, or it was read.
The times prove that nothing was trimmed between a shard's end and the beginning of its children.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import NamedTuple

from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.varint import varint

__all__ = [
    "KIND_OVER",
    "KIND_ROWS",
    "KIND_STREAM",
    "TOKEN_CHARS_MAX",
    "FeedPosition",
    "ShardPosition",
    "TokenTooLong",
    "decode_token",
    "encode_token",
    "table_tag",
]

VERSION = 1
KIND_STREAM, KIND_ROWS, KIND_OVER = 0, 1, 2
"""Where a reader is: in the stream; among the rows it began with; nowhere, its feed is over."""
TOKEN_CHARS_MAX = 4096
TAG_BYTES, CHECKSUM_BYTES = 4, 4
NUMBER_BITS_MAX = 63
_CHECK_AGAIN = "Use the id of an event as it came, or start again with ?begin=oldest or latest."


class ShardPosition(NamedTuple):
    """Where a reader is in a shard. What is unread was committed after ``time_s`` (Unix time)."""

    shard: str
    offset: int
    time_s: int


class FeedPosition(NamedTuple):
    """Where a reader is: in the life of the stream that began at ``enabled_at_us``."""

    tag: bytes
    enabled_at_us: int
    shards: tuple[ShardPosition, ...]
    kind: int = KIND_STREAM
    rows_from: bytes = b""


class TokenTooLong(ValueError):
    """The position has more shards than a token of 4 KiB holds."""


def table_tag(instance: str, table: str) -> bytes:
    """Return the bytes by which a token names a table. Instances compare without case."""
    name = f"{instance.lower()}\0{table}".encode()
    return hashlib.sha256(name).digest()[:TAG_BYTES]


def encode_token(position: FeedPosition) -> str:
    """Return the token of a position. Raises ``TokenTooLong``."""
    time_s = min((shard.time_s for shard in position.shards), default=0)
    parts = [
        bytes((VERSION, position.kind)),
        position.tag,
        varint(position.enabled_at_us),
        varint(time_s),
    ]
    if position.kind == KIND_ROWS:
        parts += [varint(len(position.rows_from)), position.rows_from]
    parts.append(varint(len(position.shards)))
    for shard in position.shards:
        parts += [_name_bytes(shard.shard), varint(shard.offset), varint(shard.time_s - time_s)]
    body = b"".join(parts)
    body += zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "big")
    token = base64.urlsafe_b64encode(body).rstrip(b"=").decode()
    if len(token) > TOKEN_CHARS_MAX:
        raise TokenTooLong(
            f"A position of {len(position.shards)} shards needs {len(token)} characters, and a "
            f"token has at most {TOKEN_CHARS_MAX}."
        )
    return token


def _name_bytes(shard: str) -> bytes:
    number = shard[1:]
    if shard[:1] == "s" and number.isdecimal() and number.isascii() and str(int(number)) == number:
        return varint(int(number) + 1)
    text = shard.encode()
    return b"\0" + varint(len(text)) + text


def decode_token(token: str, *, tag: bytes, enabled_at_us: int) -> FeedPosition:
    """Return the position of a token of this table and stream.

    Raises OTSParameterInvalid, with the reason, if it is damaged or of another table or stream.
    """
    position = _parse_body(_check_body(token))
    if position.tag != tag:
        raise invalid(f"The position belongs to another table. {_CHECK_AGAIN}")
    if position.enabled_at_us != enabled_at_us:
        raise invalid(
            f"The position belongs to another stream of this table: the table was created again, "
            f"or its stream was disabled and enabled again. {_CHECK_AGAIN}"
        )
    return position


def _check_body(token: str) -> bytes:
    """Return the bytes before the checksum."""
    if len(token) > TOKEN_CHARS_MAX:
        raise _name_damage(f"it has {len(token)} characters, and the most is {TOKEN_CHARS_MAX}")
    try:
        body = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _name_damage("it is not base64url") from error
    if base64.urlsafe_b64encode(body).rstrip(b"=").decode() != token:
        raise _name_damage("it is not base64url")
    if not body:
        raise _name_damage("it is empty")
    if body[0] != VERSION:
        raise _name_damage(f"its version is {body[0]}, and this console reads version {VERSION}")
    body, checksum = body[:-CHECKSUM_BYTES], body[-CHECKSUM_BYTES:]
    if zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "big") != checksum:
        raise _name_damage("its checksum does not match, as when a part of it is missing")
    return body


def _name_damage(reason: str) -> Rejected:
    return invalid(f"The position is damaged: {reason}. {_CHECK_AGAIN}")


def _parse_body(body: bytes) -> FeedPosition:
    """Return what bytes say. Their checksum matches, but a stranger may have made both."""
    try:
        kind, at = body[1], 2 + TAG_BYTES
        tag = body[2:at]
        enabled_at_us, at = _read_number(body, at)
        time_s, at = _read_number(body, at)
        rows_from = b""
        if kind == KIND_ROWS:
            length, at = _read_number(body, at)
            rows_from, at = _take(body, at, length)
        count, at = _read_number(body, at)
        shards = []
        for _ in range(count):
            shard, at = _read_name(body, at)
            offset, at = _read_number(body, at)
            delay_s, at = _read_number(body, at)
            shards.append(ShardPosition(shard, offset, time_s + delay_s))
    except (IndexError, ValueError) as error:
        raise _name_damage("it ends too early") from error
    if kind not in (KIND_STREAM, KIND_ROWS, KIND_OVER) or at != len(body):
        raise _name_damage("its parts do not fit together")
    return FeedPosition(tag, enabled_at_us, tuple(shards), kind, rows_from)


def _read_number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < NUMBER_BITS_MAX:
        value |= (body[at] & 127) << shift
        at += 1
        if body[at - 1] < 128:
            return value, at
        shift += 7
    raise ValueError("a number has too many bytes")


def _read_name(body: bytes, at: int) -> tuple[str, int]:
    number, at = _read_number(body, at)
    if number:
        return f"s{number - 1}", at
    length, at = _read_number(body, at)
    text, at = _take(body, at, length)
    return text.decode(), at


def _take(body: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(body):
        raise IndexError(f"{length} bytes at {at} of {len(body)}")
    return body[at : at + length], at + length
