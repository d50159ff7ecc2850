"""The bytes of a fetch and of its answer, in Kafka's version 9.

They are encoded by hand because every worker follows the leases of all others: ten and
more fetches of many partitions a second. Six partitions take the client library 80 us of
schemas, and 9 us here. Version 9 is the first in which a request has the known epoch (the
leader's term). A broker that was cut off and deposed then rejects the request.

This module knows nothing of connections, and of errors only their codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from rowtide.stream.log.kafka import wire
from rowtide.stream.log.kafka.wire import NO_REPLICA, NUMBER_BYTES, list_at, text_at

__all__ = ["ANY", "API_KEY", "VERSIONS", "FetchRequest", "PartitionAnswer", "answer", "request"]

API_KEY = 1
VERSIONS = (9, 9)
"""The oldest and the newest version that this module knows."""

ANY = -1
"""In place of an epoch: any leader may answer."""
BYTES_MIN = 1
"""The broker answers with the first available byte."""

_BEGIN = Struct(">iiiibii")
_NO_SESSION = (0, -1)
_WANTED = Struct(">iiqqi")
_NO_LOG_START = -1
"""Only replicas send the start of their logs."""
_NOTHING_FORGOTTEN = Struct(">i").pack(0)
_PARTITION = Struct(">ihqqqi")
_ABORTED = Struct(">qq")
_CODE = Struct(">h")
_CODE_AT = 2 * NUMBER_BYTES
"""After the answer's number and its throttle time."""
_TOPICS_AT = _CODE_AT + _CODE.size + NUMBER_BYTES
"""After the session's number."""


class FetchRequest(NamedTuple):
    """The next offset by topic and partition, and bounds on the answer.

    ``bytes_max`` bounds the whole answer, which is filled in the order of ``offsets``.
    ``epochs`` are the known epochs of the leaders; without one, any leader may answer.
    """

    offsets: Mapping[tuple[str, int], int]
    wait_s: float
    bytes_each: int
    bytes_max: int
    isolation: int
    epochs: Mapping[tuple[str, int], int] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """The part of a fetch for one partition, as of the answer.

    ``end`` is its next offset, ``stable`` the last stable one: transactions below it have
    ended. ``aborted`` lists (producer id, first offset) of the aborted ones among
    ``batches``, if only committed entries were requested.
    """

    error: int
    end: int
    stable: int
    aborted: Sequence[tuple[int, int]]
    batches: bytes


def request(version: int, correlation_id: int, client_id: bytes, wanted: FetchRequest) -> bytes:
    """Return a request, without its length."""
    offsets, wait_s, bytes_each, bytes_max, isolation, epochs = wanted
    wait_ms = int(wait_s * 1000)
    begin = _BEGIN.pack(NO_REPLICA, wait_ms, BYTES_MIN, bytes_max, isolation, *_NO_SESSION)
    epoch_of, pack = epochs.get, _WANTED.pack
    partitions = (
        (place[0], (pack(place[1], epoch_of(place, ANY), offset, _NO_LOG_START, bytes_each),))
        for place, offset in offsets.items()
    )
    kind = API_KEY, version
    asked = wire.request(kind, correlation_id, client_id, begin, partitions)
    return asked + _NOTHING_FORGOTTEN


def answer(correlation_id: int, frame: bytes) -> dict[tuple[str, int], PartitionAnswer]:
    """Decode an answer without its length. Raises ``ValueError`` for any other bytes."""
    return wire.decode_answer(correlation_id, frame, _decode_partitions)


def _decode_partitions(frame: bytes) -> tuple[dict[tuple[str, int], PartitionAnswer], int]:
    """Return an answer's content, and the offset after it."""
    found: dict[tuple[str, int], PartitionAnswer] = {}
    (code,) = _CODE.unpack_from(frame, _CODE_AT)
    if code:
        raise ValueError(f"a fetch was refused whole: error {code}")
    topics, at = list_at(frame, _TOPICS_AT)
    for _ in range(topics):
        topic, at = text_at(frame, at)
        partitions, at = list_at(frame, at)
        for _ in range(partitions):
            partition, code, end, stable, _log_start, count = _PARTITION.unpack_from(frame, at)
            at += _PARTITION.size
            aborted: list[tuple[int, int]] = []
            for _ in range(count):  # -1 if everything was requested.
                aborted.append(_ABORTED.unpack_from(frame, at))
                at += _ABORTED.size
            size, at = list_at(frame, at)
            batches = frame[at : at + max(0, size)]
            at += max(0, size)
            found[topic, partition] = PartitionAnswer(code, end, stable, aborted, batches)
    return found, at
