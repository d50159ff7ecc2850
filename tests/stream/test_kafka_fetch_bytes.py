"""Fetches of many partitions and their answers, byte for byte as the client library has them."""

from __future__ import annotations

import pytest
from aiokafka.protocol import fetch

from rowtide.stream.log.kafka import fetch_bytes
from rowtide.stream.log.kafka.fetch_bytes import FetchRequest, PartitionAnswer

CLIENT = "rowtide"
VERSION = fetch_bytes.VERSIONS[1]


def test_a_request_is_the_librarys() -> None:
    offsets = {("a", 0): 5, ("b-\u00fc", 7): 2**40, ("a", 3): 0}
    epochs = {("a", 0): 12, ("b-\u00fc", 7): 3, ("c", 0): 4}
    first = [(0, 12, 5, -1, 1000), (3, -1, 0, -1, 1000)]
    topics = [("a", first), ("b-\u00fc", [(7, 3, 2**40, -1, 1000)])]
    theirs = fetch.FetchRequest_v9(-1, 240, 1, 4000, 0, 0, -1, topics, [])
    head = theirs.build_request_header(77, CLIENT)
    wanted = FetchRequest(
        offsets, 0.24, bytes_each=1000, bytes_max=4000, isolation=0, epochs=epochs
    )
    ours = fetch_bytes.request(VERSION, 77, CLIENT.encode(), wanted)
    assert ours == head.encode() + theirs.encode()


def answer(code: int = 0) -> bytes:
    """Return an answer as the client library has it, for four partitions of two topics."""
    topics = [
        ("a", [(0, 0, 2**40, 1, 0, None, b"batches"), (3, 1, -1, -1, -1, [], None)]),
        ("b-\u00fc", [(7, 0, 12, 9, 5, [(1, 2), (3, 4)], b""), (8, 0, 3, 3, 0, None, b"more")]),
    ]
    return (77).to_bytes(4) + bytes(fetch.FetchResponse_v9(9, code, 0, topics).encode())


def test_an_answer_of_the_librarys_is_read() -> None:
    assert fetch_bytes.answer(77, answer()) == {
        ("a", 0): PartitionAnswer(0, 2**40, 1, [], b"batches"),
        ("a", 3): PartitionAnswer(1, -1, -1, [], b""),
        ("b-\u00fc", 7): PartitionAnswer(0, 12, 9, [(1, 2), (3, 4)], b""),
        ("b-\u00fc", 8): PartitionAnswer(0, 3, 3, [], b"more"),
    }


def test_an_answer_that_ends_early_or_late_is_none() -> None:
    whole = answer()
    for frame in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        with pytest.raises(ValueError, match=r"answer of|utf-8"):
            fetch_bytes.answer(77, frame)


def test_the_answer_to_another_request_is_none() -> None:
    with pytest.raises(ValueError, match="another request"):
        fetch_bytes.answer(78, answer())


def test_an_answer_that_refuses_all_is_none() -> None:
    with pytest.raises(ValueError, match="error 71"):
        fetch_bytes.answer(77, answer(71))
