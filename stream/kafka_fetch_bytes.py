"""The bytes of a fetch of many partitions and of its answer, as Kafka's version 4 has them.

Written out because every worker follows the leases of all others with such fetches, ten a second
and more: six partitions take the client library 80 us of schemas, 9 here. Version 4 is the oldest
that brokers of generation 4 take, and knows all that is asked here. Numbers are big-endian; a
text or bytes are preceded by their length, a list by how many it has, -1 in place of either for
null.

Nothing is known here of connections, and of errors only their codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import NamedTuple

__all__ = ["API_KEY", "VERSION", "Told", "Wanted", "answer", "request"]

API_KEY = 1
VERSION = 4

NO_REPLICA = -1
BYTES_MIN = 1
"""The broker answers with the first byte that there is."""

_HEAD = Struct(">hhih")
_BEGIN = Struct(">iiiibi")
_COUNT = Struct(">i")
_TEXT = Struct(">h")
_WANTED = Struct(">iqi")
_TOLD = Struct(">ihqqi")
_ABORTED_BYTES = 16
_TOPICS_AT = 12
"""Behind the answer's number, how long it was throttled, and how many topics it has."""


class Wanted(NamedTuple):
    """What is asked for: by topic and partition the next offset, and bounds on the answer."""

    offsets: Mapping[tuple[str, int], int]
    wait_ms: int
    bytes_each: int
    bytes_max: int
    isolation: int


class Told(NamedTuple):
    """What a fetch of many says of one: ``end`` is its next offset, as of the answer."""

    error: int
    end: int
    batches: bytes


def request(correlation_id: int, client_id: bytes, wanted: Wanted) -> bytes:
    """Return a request, without its length."""
    offsets, wait_ms, bytes_each, bytes_max, isolation = wanted
    by_topic: dict[str, list[bytes]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(_WANTED.pack(partition, offset, bytes_each))
    parts = [
        _HEAD.pack(API_KEY, VERSION, correlation_id, len(client_id)),
        client_id,
        _BEGIN.pack(NO_REPLICA, wait_ms, BYTES_MIN, bytes_max, isolation, len(by_topic)),
    ]
    for topic, partitions in by_topic.items():
        name = topic.encode()
        parts += (_TEXT.pack(len(name)), name, _COUNT.pack(len(partitions)), *partitions)
    return b"".join(parts)


def answer(correlation_id: int, frame: bytes) -> dict[tuple[str, int], Told]:
    """Take an answer apart, without its length. Raises ``ValueError`` for any other bytes."""
    try:
        found, at = _answer(frame)
    except error as short:
        raise ValueError(f"an answer of {len(frame)} bytes ends early: {short}") from short
    if _COUNT.unpack_from(frame)[0] != correlation_id:
        raise ValueError("the answer belongs to another request")
    if at != len(frame):
        raise ValueError(f"an answer of {len(frame)} bytes, {at} are understood")
    return found


def _answer(frame: bytes) -> tuple[dict[tuple[str, int], Told], int]:
    """Return what an answer tells, and where it ends."""
    found: dict[tuple[str, int], Told] = {}
    (topics,) = _COUNT.unpack_from(frame, _TOPICS_AT - _COUNT.size)
    at = _TOPICS_AT
    for _ in range(topics):
        (size,) = _TEXT.unpack_from(frame, at)
        name_at = at + _TEXT.size
        at = name_at + size
        topic = frame[name_at:at].decode()
        (partitions,) = _COUNT.unpack_from(frame, at)
        at += _COUNT.size
        for _ in range(partitions):
            partition, code, end, _stable, aborted = _TOLD.unpack_from(frame, at)
            at += _TOLD.size + max(0, aborted) * _ABORTED_BYTES
            (size,) = _COUNT.unpack_from(frame, at)
            at += _COUNT.size
            batches = frame[at : at + max(0, size)]
            at += max(0, size)
            found[topic, partition] = Told(code, end, batches)
    return found, at
