"""The demo follows streams as a client does that retries, and puts flights while it waits."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from demo import follow
from demo.follow import Copy
from demo.load import Loader
from demo.source import Row, Table
from demo.traffic import Traffic
from rowtide.cli.client import ServerError, StreamPage, StreamRecord
from rowtide.client.wire_row import Changed, Put
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.core.protocol.wire import ots_pb2 as pb

TABLE = Table("parcels", (("id", "STRING"),))


class Server:
    """A stream of one shard with one record, which fails the first ``failures`` times."""

    def __init__(self, code: str, failures: int) -> None:
        self._code = code
        self._failures = failures

    def list_stream(self, _table: str) -> list[pb.Stream]:
        return [pb.Stream(stream_id="stream", table_name=TABLE.name, creation_time=0)]

    def describe_stream(self, _stream_id: str) -> pb.DescribeStreamResponse:
        answer = pb.DescribeStreamResponse()
        answer.shards.add(shard_id="s1")
        return answer

    def get_shard_iterator(self, _stream_id: str, _shard_id: str) -> str:
        return "begin"

    def get_stream_record(self, _iterator: str) -> StreamPage:
        if self._failures:
            self._failures -= 1
            raise ServerError(self._code, "Not now.", 503, "r1")
        row = Changed((("id", "p1"),), (Put("n", 1),), SequenceInfo(1, 1, 0))
        return StreamPage([StreamRecord("PUT", row, None)], "end")


def copy_of(server: Any) -> Copy:
    return Copy(server, TABLE)


@pytest.mark.parametrize("code", sorted(follow.PASSING))
def test_a_stream_that_is_not_available_for_a_moment_is_read_again(code: str) -> None:
    copy = copy_of(Server(code, failures=3))
    assert copy.read() == 1
    assert list(copy.rows()) == [Row(("p1",), {"n": 1})]


def test_a_stream_that_is_refused_or_away_for_long_ends_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ServerError):
        copy_of(Server("OTSTrimmedDataAccess", failures=1)).read()
    monkeypatch.setattr(follow, "UNAVAILABLE_S_MAX", 0.0)
    with pytest.raises(ServerError):
        copy_of(Server("OTSPartitionUnavailable", failures=10**9)).read()


class Loads:
    """Takes the rows that are put, and reports when there are some."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.some = threading.Event()

    def load(self, table: Table, rows: list[Row]) -> None:
        assert table.name == "flights"
        self.rows += rows
        if len(self.rows) == 3:
            self.some.set()


def test_flights_arrive_for_as_long_as_the_demo_waits() -> None:
    loads = Loads()
    with Traffic(cast(Loader, loads)):
        assert loads.some.wait(60)
    arrived = len(loads.rows)
    assert [row.key[1] for row in loads.rows[:3]] == ["2013-02-01"] * 3
    assert not any(thread.name == "traffic" for thread in threading.enumerate())
    assert len(loads.rows) == arrived
