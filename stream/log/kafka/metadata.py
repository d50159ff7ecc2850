"""The bytes of a metadata request and of its answer, in Kafka's version 7.

Version 7 is the first with the epoch (term) of each leader. Without it the answer of a
broker that was cut off from the others looks like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from rowtide.stream.log.kafka import wire
from rowtide.stream.log.kafka.wire import NUMBER_BYTES, list_at, text_at

__all__ = ["API_KEY", "VERSIONS", "Metadata", "PartitionFound", "TopicFound", "answer", "request"]

API_KEY = 3
VERSIONS = (7, 7)
"""The oldest and the newest version that this module knows."""

_NULL = Struct(">i").pack(-1)
_TEXT = Struct(">h")
_NUMBER = Struct(">i")
_TOPIC = Struct(">h")
_PARTITION = Struct(">hiii")
_NO_TOPIC_IS_MADE = b"\0"
_FLAG_BYTES = 1


class PartitionFound(NamedTuple):
    """One partition: an error code, its leader (-1: none), the epoch and the number of replicas."""

    error: int
    partition: int
    leader: int
    epoch: int
    replicas: int


class TopicFound(NamedTuple):
    """One topic: an error code, its name and its partitions."""

    error: int
    name: str
    partitions: Sequence[PartitionFound]


class Metadata(NamedTuple):
    """The knowledge of one broker: the brokers' addresses by their ids, and topics."""

    brokers: dict[int, tuple[str, int]]
    topics: Sequence[TopicFound]


def request(correlation_id: int, client_id: bytes, topics: Sequence[str] | None) -> bytes:
    """Return a request for some topics (None: for all), without its length."""
    if topics is None:
        wanted = _NULL
    else:
        names = [name.encode() for name in topics]
        wanted = _NUMBER.pack(len(names))
        wanted += b"".join([_TEXT.pack(len(name)) + name for name in names])
    head = wire.head((API_KEY, VERSIONS[1]), correlation_id, client_id)
    return head + wanted + _NO_TOPIC_IS_MADE


def answer(correlation_id: int, frame: bytes) -> Metadata:
    """Decode an answer without its length. Raises ``ValueError`` for any other bytes."""
    return wire.decode_answer(correlation_id, frame, _metadata)


def _metadata(frame: bytes) -> tuple[Metadata, int]:
    """Return an answer's content, and the offset after it."""
    count, at = list_at(frame, 2 * NUMBER_BYTES)  # After its number and throttle time.
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(count):
        (node,) = _NUMBER.unpack_from(frame, at)
        host, at = text_at(frame, at + _NUMBER.size)
        (port,) = _NUMBER.unpack_from(frame, at)
        at = _skip_text(frame, at + _NUMBER.size)  # Its rack.
        brokers[node] = host, port
    at = _skip_text(frame, at) + _NUMBER.size  # The cluster's id, and its controller.
    topics: list[TopicFound] = []
    count, at = list_at(frame, at)
    for _ in range(count):
        (error,) = _TOPIC.unpack_from(frame, at)
        name, at = text_at(frame, at + _TOPIC.size)
        partitions, at = _partitions(frame, at + _FLAG_BYTES)
        topics.append(TopicFound(error, name, partitions))
    return Metadata(brokers, topics), at


def _partitions(frame: bytes, at: int) -> tuple[list[PartitionFound], int]:
    found: list[PartitionFound] = []
    count, at = list_at(frame, at)
    for _ in range(count):
        error, partition, leader, epoch = _PARTITION.unpack_from(frame, at)
        replicas, at = list_at(frame, at + _PARTITION.size)
        at += replicas * NUMBER_BYTES
        for _list in ("in sync", "offline"):
            nodes, at = list_at(frame, at)
            at += nodes * NUMBER_BYTES
        found.append(PartitionFound(error, partition, leader, epoch, replicas))
    return found, at


def _skip_text(frame: bytes, at: int) -> int:
    """Return the offset after a text that may be null."""
    (size,) = _TEXT.unpack_from(frame, at)
    return at + _TEXT.size + max(0, int(size))
