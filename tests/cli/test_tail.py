"""Following a stream: parents before children, nothing twice, and times as they are written."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from rowtide.cli.client import StreamPage, StreamRecord
from rowtide.cli.stream import since_us
from rowtide.cli.tail import END, StreamTail
from rowtide.client.wire_row import Changed, Put
from rowtide.core.protocol.wire import ots_pb2 as pb

NOW_US = 1_800_000_000_000_000


@dataclass
class Shards:
    """A stream in memory with the client's three calls; iterators are "shard:index"."""

    parents: dict[str, tuple[str, ...]]
    records: dict[str, list[str]]
    closed: set[str] = field(default_factory=set)

    def describe_stream(self, _stream_id: str) -> pb.DescribeStreamResponse:
        answer = pb.DescribeStreamResponse()
        for shard_id, parents in self.parents.items():
            shard = answer.shards.add(shard_id=shard_id)
            if parents:
                shard.parent_id = parents[0]
            if len(parents) > 1:
                shard.parent_sibling_id = parents[1]
        return answer

    def get_shard_iterator(
        self, _stream_id: str, shard_id: str, *, timestamp_us: int | None = None
    ) -> str:
        return f"{shard_id}:{len(self.records[shard_id]) if timestamp_us == END else 0}"

    def get_stream_record(self, iterator: str) -> StreamPage:
        shard_id, _, index = iterator.partition(":")
        found = self.records[shard_id][int(index) : int(index) + 2]
        at = int(index) + len(found)
        drained = shard_id in self.closed and at == len(self.records[shard_id])
        return StreamPage([record(name) for name in found], None if drained else f"{shard_id}:{at}")


def record(name: str) -> StreamRecord:
    return StreamRecord("PUT", Changed((("pk", name),), (Put("a", 1),), None), None)


def poll_names(follower: StreamTail, rounds: int) -> list[str]:
    names: list[Any] = []
    for _ in range(rounds):
        names += [change.record.row.key[0][1] for page in follower.poll() for change in page]
    return names


def follower(shards: Shards, start_us: int | None) -> StreamTail:
    client: Any = shards
    return StreamTail(client, "t_1", start_us)


def test_a_child_is_read_once_its_parent_is_drained() -> None:
    shards = Shards(
        {"parent": (), "left": ("parent",), "right": ("parent",)},
        {"parent": ["1", "2", "3"], "left": ["4"], "right": ["5"]},
        {"parent"},
    )
    assert poll_names(follower(shards, None), 5) == ["1", "2", "3", "4", "5"]


def test_a_merged_shard_waits_for_both_its_parents() -> None:
    shards = Shards(
        {"a": (), "b": (), "merged": ("a", "b")},
        {"a": ["1"], "b": ["2", "3", "4"], "merged": ["5"]},
        {"a", "b"},
    )
    assert poll_names(follower(shards, None), 6) == ["1", "2", "3", "4", "5"]


def test_a_child_whose_parent_is_no_longer_listed_is_read_at_once() -> None:
    shards = Shards({"child": ("gone",)}, {"child": ["1"]})
    assert poll_names(follower(shards, None), 2) == ["1"]


def test_from_the_end_only_what_comes_later_is_read_in_children_too() -> None:
    shards = Shards({"parent": ()}, {"parent": ["old"], "child": ["2"]})
    following = follower(shards, END)
    assert poll_names(following, 2) == []
    shards.records["parent"].append("1")
    shards.parents["child"] = ("parent",)
    shards.closed.add("parent")
    assert poll_names(following, 3) == ["1", "2"]


def test_nothing_is_read_twice() -> None:
    shards = Shards({"s": ()}, {"s": ["1"]})
    following = follower(shards, None)
    assert poll_names(following, 3) == ["1"]
    shards.records["s"].append("2")
    assert poll_names(following, 3) == ["2"]


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("30s", NOW_US - 30_000_000),
        ("10m", NOW_US - 600_000_000),
        ("2h", NOW_US - 7_200_000_000),
        ("1d", NOW_US - 86_400_000_000),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000_000),
        ("1960-01-01", 0),
    ],
)
def test_a_time_is_a_span_or_a_moment(text: str, us: int) -> None:
    assert since_us(text, NOW_US) == us


def test_any_other_time_is_refused() -> None:
    with pytest.raises(ValueError, match="'soon' is neither a span"):
        since_us("soon", NOW_US)
