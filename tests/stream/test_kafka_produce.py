"""Produce requests and answers, byte for byte as the client library has them."""

from __future__ import annotations

import pytest
from aiokafka.protocol import produce

from rowtide.stream.log.kafka import produce as kafka_produce
from rowtide.stream.log.kafka.produce import ProduceResult

CLIENT = "rowtide"
BATCHES = {("a", 0): b"first", ("b-\u00fc", 7): b"", ("a", 3): b"third" * 99}
VERSIONS = range(kafka_produce.VERSIONS[0], kafka_produce.VERSIONS[1] + 1)


@pytest.mark.parametrize("transaction", [None, "slot-é"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_the_librarys(version: int, transaction: str | None) -> None:
    theirs = produce.ProduceRequest(
        transaction,
        -1,
        1234,
        [("a", [(0, b"first"), (3, b"third" * 99)]), ("b-\u00fc", [(7, b"")])],
    ).prepare({kafka_produce.API_KEY: (0, version)})
    head = theirs.build_request_header(77, CLIENT)
    ours = kafka_produce.request(
        version, 77, CLIENT.encode(), BATCHES, timeout_ms=1234, transactional_id=transaction
    )
    assert ours == head.encode() + theirs.encode()


def answer(version: int) -> bytes:
    """Return an answer as the client library has it, for three partitions of two topics."""
    rest = (-1, 5) if version >= 5 else (-1,)
    topics = [
        ("a", [(0, 0, 2**40, *rest), (3, 6, -1, *rest)]),
        ("b-\u00fc", [(7, -1, 12, *rest)]),
    ]
    kind = getattr(produce, f"ProduceResponse_v{version}")
    return (77).to_bytes(4) + bytes(kind(topics, 9).encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_of_the_librarys_is_read(version: int) -> None:
    assert kafka_produce.answer(version, 77, answer(version)) == [
        ProduceResult("a", 0, 0, 2**40),
        ProduceResult("a", 3, 6, -1),
        ProduceResult("b-\u00fc", 7, -1, 12),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_ends_early_or_late_is_none(version: int) -> None:
    whole = answer(version)
    for frame in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        with pytest.raises(ValueError, match=r"answer of|utf-8"):
            kafka_produce.answer(version, 77, frame)


def test_the_answer_to_another_request_is_none() -> None:
    with pytest.raises(ValueError, match="another request"):
        kafka_produce.answer(7, 78, answer(7))
