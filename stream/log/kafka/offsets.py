"""The bytes of a question for the bounds of partitions and of its answer, as versions 4 and 5.

From version 4 on it says which term of a leader the asker knows of: a broker that leads no more,
and does not know it yet, then refuses to answer. A leader that is new, and does not know yet what
is committed, refuses too (from version 5 on with a code of its own).
"""

from __future__ import annotations

from struct import Struct

from rowtide.stream.log.kafka import wire
from rowtide.stream.log.kafka.wire import NO_REPLICA, NUMBER_BYTES, list_at, text_at

__all__ = ["API_KEY", "VERSIONS", "answer", "request"]

API_KEY = 2
VERSIONS = (4, 5)
"""The oldest and the newest that are known here: both alike."""

_BEGIN = Struct(">ib")
_WANTED = Struct(">iiq")
_TOLD = Struct(">ihqqi")


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
    """Return a question for one offset, without its length. ``epoch`` is the leader's, -1: any."""
    begin = _BEGIN.pack(NO_REPLICA, isolation)
    wanted = [(place[0], (_WANTED.pack(place[1], epoch, timestamp),))]
    return wire.request((API_KEY, version), correlation_id, client_id, begin, wanted)


def answer(correlation_id: int, frame: bytes) -> tuple[int, int]:
    """Return an answer's error code, 0 for none, and its offset.

    Raises ``ValueError`` for bytes that are no answer for one partition.
    """
    return wire.answered(correlation_id, frame, _told)


def _told(frame: bytes) -> tuple[tuple[int, int], int]:
    """Return what an answer tells, and where it ends."""
    topics, at = list_at(frame, 2 * NUMBER_BYTES)  # Behind its number, and how long it was held up.
    _, at = text_at(frame, at)
    partitions, at = list_at(frame, at)
    if (topics, partitions) != (1, 1):
        raise ValueError(f"an answer for {topics} topics, {partitions} partitions of the first")
    _partition, code, _timestamp, offset, _epoch = _TOLD.unpack_from(frame, at)
    return (code, offset), at + _TOLD.size
