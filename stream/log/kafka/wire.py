"""The parts that requests to a broker and its answers share, for those encoded by hand.

Numbers are big-endian. A text or bytes are preceded by their length, a list by its count;
-1 means null. Requests and answers have a list of topics, each with a list of its
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct, error
from typing import TypeVar

__all__ = ["NO_REPLICA", "NUMBER_BYTES", "decode_answer", "head", "list_at", "request", "text_at"]

NO_REPLICA = -1
"""The sender is no broker."""

NUMBER_BYTES = 4
"""Size of an answer's number, with which it begins, and of a list's count."""

_HEAD = Struct(">hhih")
_COUNT = Struct(">i")
_TEXT = Struct(">h")

Found = TypeVar("Found")


def head(kind: tuple[int, int], correlation_id: int, client_id: bytes) -> bytes:
    """Return the beginning of a request of an API key and version, after its length."""
    return _HEAD.pack(*kind, correlation_id, len(client_id)) + client_id


def request(
    kind: tuple[int, int],
    correlation_id: int,
    client_id: bytes,
    begin: bytes,
    partitions: Iterable[tuple[str, Sequence[bytes]]],
) -> bytes:
    """Return a request, without its length, of an API key and version.

    ``begin`` comes before the topics; each partition's bytes come with the name of its
    topic.
    """
    by_topic: dict[str, list[Sequence[bytes]]] = {}
    for topic, parts in partitions:
        by_topic.setdefault(topic, []).append(parts)
    whole = [head(kind, correlation_id, client_id), begin, _COUNT.pack(len(by_topic))]
    for topic, found in by_topic.items():
        name = topic.encode()
        whole += (_TEXT.pack(len(name)), name, _COUNT.pack(len(found)))
        for parts in found:
            whole += parts
    return b"".join(whole)


def decode_answer(
    correlation_id: int, frame: bytes, read: Callable[[bytes], tuple[Found, int]]
) -> Found:
    """Return what ``read`` decodes from an answer without its length.

    ``read`` also returns the end of what it decoded. Raises ``ValueError`` for any other
    bytes.
    """
    try:
        found, end = read(frame)
    except error as short:
        raise ValueError(f"an answer of {len(frame)} bytes ends early: {short}") from short
    if _COUNT.unpack_from(frame)[0] != correlation_id:
        raise ValueError("the answer belongs to another request")
    if end != len(frame):
        raise ValueError(f"an answer of {len(frame)} bytes, {end} are understood")
    return found


def list_at(frame: bytes, at: int) -> tuple[int, int]:
    """Return the count of a list, and the offset of its first element."""
    return _COUNT.unpack_from(frame, at)[0], at + NUMBER_BYTES


def text_at(frame: bytes, at: int) -> tuple[str, int]:
    """Return a text, and the offset after it."""
    begin = at + _TEXT.size
    end = begin + _TEXT.unpack_from(frame, at)[0]
    return frame[begin:end].decode(), end
