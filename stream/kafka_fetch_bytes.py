"""The bytes of a fetch and of its answer, as Kafka's version 4 has them.

Written out because every worker follows the leases of all others with fetches of many partitions,
ten a second and more: six partitions take the client library 80 us of schemas, 9 here. Version 4 is
the oldest that brokers of generation 4 take, and knows all that is asked here.

Nothing is known here of connections, and of errors only their codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from rowtide.stream import kafka_bytes
from rowtide.stream.kafka_bytes import NUMBER_BYTES, list_at, text_at

__all__ = ["API_KEY", "VERSIONS", "Told", "Wanted", "answer", "request"]

API_KEY = 1
VERSIONS = (4, 4)
"""The oldest and the newest that are known here."""

NO_REPLICA = -1
BYTES_MIN = 1
"""The broker answers with the first byte that there is."""

_BEGIN = Struct(">iiiib")
_WANTED = Struct(">iqi")
_TOLD = Struct(">ihqqi")
_ABORTED = Struct(">qq")
_TOPICS_AT = 2 * NUMBER_BYTES
"""Behind the answer's number, and how long it was throttled."""


class Wanted(NamedTuple):
    """What is asked for: by topic and partition the next offset, and bounds on the answer.

    ``bytes_max`` bounds the whole, which is filled in the order of ``offsets``.
    """

    offsets: Mapping[tuple[str, int], int]
    wait_s: float
    bytes_each: int
    bytes_max: int
    isolation: int


class Told(NamedTuple):
    """What a fetch says of one partition, as of the answer.

    ``end`` is its next offset, ``stable`` the last stable one: transactions below it are decided.
    ``aborted`` lists (producer id, first offset) of the aborted ones among ``batches``, where only
    what is committed was asked for.
    """

    error: int
    end: int
    stable: int
    aborted: Sequence[tuple[int, int]]
    batches: bytes


def request(version: int, correlation_id: int, client_id: bytes, wanted: Wanted) -> bytes:
    """Return a request, without its length."""
    offsets, wait_s, bytes_each, bytes_max, isolation = wanted
    begin = _BEGIN.pack(NO_REPLICA, int(wait_s * 1000), BYTES_MIN, bytes_max, isolation)
    partitions = (
        (topic, (_WANTED.pack(partition, offset, bytes_each),))
        for (topic, partition), offset in offsets.items()
    )
    return kafka_bytes.request((API_KEY, version), correlation_id, client_id, begin, partitions)


def answer(correlation_id: int, frame: bytes) -> dict[tuple[str, int], Told]:
    """Take an answer apart, without its length. Raises ``ValueError`` for any other bytes."""
    return kafka_bytes.answered(correlation_id, frame, _told)


def _told(frame: bytes) -> tuple[dict[tuple[str, int], Told], int]:
    """Return what an answer tells, and where it ends."""
    found: dict[tuple[str, int], Told] = {}
    topics, at = list_at(frame, _TOPICS_AT)
    for _ in range(topics):
        topic, at = text_at(frame, at)
        partitions, at = list_at(frame, at)
        for _ in range(partitions):
            partition, code, end, stable, count = _TOLD.unpack_from(frame, at)
            at += _TOLD.size
            aborted: list[tuple[int, int]] = []
            for _ in range(count):  # -1 where everything was asked for.
                aborted.append(_ABORTED.unpack_from(frame, at))
                at += _ABORTED.size
            size, at = list_at(frame, at)
            batches = frame[at : at + max(0, size)]
            at += max(0, size)
            found[topic, partition] = Told(code, end, stable, aborted, batches)
    return found, at
