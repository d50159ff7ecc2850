"""The bytes of a request for a partition's bounds and of its answer, in versions 4 and 5.

From version 4 on it has the known epoch (the leader's term). A broker that leads no more,
and does not know it yet, then rejects the request. A new leader that does not know yet
what is committed rejects it too (from version 5 on with a separate code).
"""

from __future__ import annotations

from struct import Struct

from rowtide.stream.log.kafka import wire
from rowtide.stream.log.kafka.wire import NO_REPLICA, NUMBER_BYTES, list_at, text_at

__all__ = ["API_KEY", "VERSIONS", "answer", "request"]

API_KEY = 2
VERSIONS = (4, 5)
"""The oldest and the newest version that this module knows: both are alike."""

_BEGIN = Struct(">ib")
_WANTED = Struct(">iiq")
_PARTITION = Struct(">ihqqi")


def request(
    version: int,
    correlation_id: int,
    client_id: bytes,
    place: tuple[str, int],
    *,
    epoch: int,
    timestamp: int,
    isolation: int,
) -> bytes:
    """Return a request for one offset, without its length. ``epoch`` is the leader's, -1: any."""
    begin = _BEGIN.pack(NO_REPLICA, isolation)
    wanted = [(place[0], (_WANTED.pack(place[1], epoch, timestamp),))]
    return wire.request((API_KEY, version), correlation_id, client_id, begin, wanted)


def answer(correlation_id: int, frame: bytes) -> tuple[int, int]:
    """Return an answer's error code, 0 for none, and its offset.

    Raises ``ValueError`` for bytes that are no answer for one partition.
    """
    return wire.decode_answer(correlation_id, frame, _decode_offset)


def _decode_offset(frame: bytes) -> tuple[tuple[int, int], int]:
    """Return an answer's content, and the offset after it."""
    topics, at = list_at(frame, 2 * NUMBER_BYTES)  # After its number and throttle time.
    _, at = text_at(frame, at)
    partitions, at = list_at(frame, at)
    if (topics, partitions) != (1, 1):
        raise ValueError(f"an answer for {topics} topics, {partitions} partitions of the first")
    _partition, code, _timestamp, offset, _epoch = _PARTITION.unpack_from(frame, at)
    return (code, offset), at + _PARTITION.size
