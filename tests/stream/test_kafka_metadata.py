"""Questions for metadata and for bounds, byte for byte as Kafka's schemas have them."""

from __future__ import annotations

import pytest
from aiokafka.protocol import metadata, types

from rowtide.stream.log.kafka import metadata as kafka_metadata
from rowtide.stream.log.kafka import offsets as kafka_offsets
from rowtide.stream.log.kafka.metadata import Metadata, PartitionFound, TopicFound

CLIENT = b"rowtide"
TEXT, INT16, INT32, INT64 = types.String("utf-8"), types.Int16, types.Int32, types.Int64
HEAD = types.Schema(("key", INT16), ("version", INT16), ("number", INT32), ("client", TEXT))


@pytest.mark.parametrize("topics", [None, [], ["a", "b-\u00fc"]])
def test_a_question_for_metadata_is_the_librarys_of_a_later_version(
    topics: list[str] | None,
) -> None:
    theirs = metadata.MetadataRequest_v5(topics if topics is not None else -1, False)
    wanted = theirs.encode() if topics is not None else b"\xff\xff\xff\xff\0"
    head = HEAD.encode((3, 7, 77, "rowtide"))
    assert kafka_metadata.request(77, CLIENT, topics) == head + wanted


def encode_metadata() -> bytes:
    """Return an answer of version 7: three brokers, of which one has a rack, and two topics."""
    partition = types.Schema(
        *(("error", INT16), ("partition", INT32), ("leader", INT32), ("epoch", INT32)),
        *((name, types.Array(INT32)) for name in ("replicas", "in sync", "offline")),
    )
    topic = types.Schema(
        *(("error", INT16), ("name", TEXT), ("internal", types.Boolean)),
        ("partitions", types.Array(partition)),
    )
    broker = types.Schema(("node", INT32), ("host", TEXT), ("port", INT32), ("rack", TEXT))
    whole = types.Schema(
        *(("number", INT32), ("throttled", INT32), ("brokers", types.Array(broker))),
        *(("cluster", TEXT), ("controller", INT32), ("topics", types.Array(topic))),
    )
    brokers = [(1, "one", 9092, None), (2, "zw\u00f6lf", 9093, "rack-2"), (3, "three", 1, None)]
    topics = [
        (0, "a", False, [(0, 0, 1, 12, [1, 2, 3], [1, 3], [2]), (5, 1, -1, 13, [1], [], [])]),
        (3, "b-\u00fc", True, []),
    ]
    return bytes(whole.encode((77, 0, brokers, None, 2, topics)))


def test_an_answer_for_metadata_is_read() -> None:
    brokers = {1: ("one", 9092), 2: ("zw\u00f6lf", 9093), 3: ("three", 1)}
    partitions = [PartitionFound(0, 0, 1, 12, 3), PartitionFound(5, 1, -1, 13, 1)]
    topics = [TopicFound(0, "a", partitions), TopicFound(3, "b-\u00fc", [])]
    assert kafka_metadata.answer(77, encode_metadata()) == Metadata(brokers, topics)


def test_metadata_that_ends_early_or_late_is_none() -> None:
    whole = encode_metadata()
    for frame in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        with pytest.raises(ValueError, match=r"answer of|utf-8"):
            kafka_metadata.answer(77, frame)


BOUND = types.Schema(("partition", INT32), ("epoch", INT32), ("timestamp", INT64))
FOUND = types.Schema(
    *(("partition", INT32), ("error", INT16), ("timestamp", INT64), ("offset", INT64)),
    ("epoch", INT32),
)


def test_a_question_for_a_bound_says_which_leader_it_knows_of() -> None:
    topic = types.Schema(("topic", TEXT), ("partitions", types.Array(BOUND)))
    whole = types.Schema(
        ("replica", INT32), ("isolation", types.Int8), ("topics", types.Array(topic))
    )
    ours = kafka_offsets.request(5, 77, CLIENT, ("a", 3), epoch=12, timestamp=-1, isolation=1)
    wanted = whole.encode((-1, 1, [("a", [(3, 12, -1)])]))
    assert ours == HEAD.encode((2, 5, 77, "rowtide")) + wanted


def bounds(*partitions: tuple[int, int, int, int, int]) -> bytes:
    topic = types.Schema(("topic", TEXT), ("partitions", types.Array(FOUND)))
    whole = types.Schema(("number", INT32), ("throttled", INT32), ("topics", types.Array(topic)))
    return bytes(whole.encode((77, 0, [("a", list(partitions))])))


def test_an_answer_for_a_bound_has_a_code_and_an_offset() -> None:
    assert kafka_offsets.answer(77, bounds((3, 0, -1, 2**40, 12))) == (0, 2**40)
    assert kafka_offsets.answer(77, bounds((3, 75, -1, -1, -1))) == (75, -1)


def test_an_answer_for_other_than_one_bound_is_none() -> None:
    one = (3, 0, -1, 5, 12)
    whole = bounds(one)
    for frame in (*(whole[:size] for size in range(len(whole))), whole + b"\0", bounds(one, one)):
        with pytest.raises(ValueError, match=r"answer (of|for)|utf-8"):
            kafka_offsets.answer(77, frame)
