"""The demo follows streams as a client does that retries, and replays the departures of flights.

``tests/system/test_demo_board.py`` shows them on a dashboard of a real server.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, cast

import pytest
import tablestore

from demo import follow, load
from demo.departures import Departures, Step, plan_days
from demo.follow import Copy
from demo.load import Loader
from demo.source import Change, Key, Row, Table
from rowtide.cli.client import ServerError, StreamPage, StreamRecord
from rowtide.client.wire_row import Changed, Put
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.support.waiting import until

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


# Departures.


def flight(number: int, due: int, delay: int | None, **more: Any) -> Row:
    columns: dict[str, Any] = {"sched_dep_time": due, "dest": "BOS", **more}
    if delay is not None:
        columns |= {"dep_delay": delay, "dep_time": due + delay}
    return Row(("AA", "2013-02-01", number, "JFK"), columns)


def describe_step(step: Step) -> tuple[int, int, str]:
    """Return minute, flight and status of a step."""
    return step.minute, int(step.write.key[2]), step.status


def test_flights_are_scheduled_delayed_and_leave_or_are_cancelled() -> None:
    first = [flight(1, 800, 40), flight(2, 805, None), flight(3, 730, -5), flight(4, 2359, 90)]
    steps = list(plan_days(iter([first, [flight(5, 130, 0)], []])))
    assert [describe_step(step) for step in steps] == [
        (330, 3, "scheduled"),
        (360, 1, "scheduled"),
        (365, 2, "scheduled"),
        (445, 3, "departed"),
        (480, 1, "delayed"),
        (515, 2, ""),
        (520, 1, "departed"),
        (1319, 4, "scheduled"),
        (1439, 4, "delayed"),
        (1440, 5, "scheduled"),
        (1529, 4, "departed"),
        (1530, 5, "departed"),
    ]
    known, delayed, left = (step.write for step in steps if step.write.key[2] == 1)
    assert known == Row(first[0].key, {"sched_dep_time": 800, "dest": "BOS", "status": "scheduled"})
    assert isinstance(delayed, Change)
    assert delayed.puts == {"dep_delay": 15, "status": "delayed"}
    assert isinstance(left, Change)
    assert left.puts == {"dep_delay": 40, "dep_time": 840, "status": "departed"}


class Writes:
    """Takes the steps of the replay; ``fails`` makes it fail like a server that is gone."""

    def __init__(self) -> None:
        self.statuses: dict[Key, str] = {}
        self.fails = False

    def write_step(self, table: Table, write: Row | Change) -> None:
        assert table.name == "flights"
        if self.fails:
            raise ZeroDivisionError
        columns = write.columns if isinstance(write, Row) else write.puts
        if columns:
            self.statuses[write.key] = str(columns["status"])
        else:
            del self.statuses[write.key]


def test_the_replay_knows_what_it_has_written() -> None:
    writes = Writes()
    departures = Departures(cast(Loader, writes), minutes_per_s=1e9, until=12 * 60)
    with departures:
        until(lambda: not departures.is_running)
    departures.require_sound()
    assert departures.count() == Counter(writes.statuses.values())
    assert departures.count().keys() == {"scheduled", "delayed", "departed"}
    assert departures.cancelled > 0, "a day of a storm"
    assert {key[1] for key in writes.statuses} == {"2013-02-08"}
    assert not any(thread.name == "departures" for thread in threading.enumerate())


def test_a_replay_that_failed_says_so() -> None:
    writes = Writes()
    writes.fails = True
    departures = Departures(cast(Loader, writes), minutes_per_s=1e9)
    with departures:
        until(lambda: not departures.is_running)
    with pytest.raises(ZeroDivisionError):
        departures.require_sound()


class Sdk:
    """Fails a number of calls as the official SDK does when a worker is gone."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) <= self.failures:
            raise tablestore.OTSServiceError(503, "OTSServerUnavailable", "Gone.")

    def update_row(self, *_: Any) -> None:
        self._call("update")

    def delete_row(self, *_: Any) -> None:
        self._call("delete")


def test_a_step_is_repeated_until_it_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    loader = Loader(Ready("http://127.0.0.1:1", "demo", "id", "secret"), counted.append)
    sdk = Sdk(failures=2)
    monkeypatch.setattr(loader, "_sdk", sdk)
    monkeypatch.setattr(load, "RETRY_S", 0.0)
    loader.write_step(TABLE, Change(("p1",), {"n": 1}, ()))
    assert (sdk.calls, counted) == (["update"] * 3, [1])
    loader.write_step(TABLE, Change(("p1",), {}, ()))
    assert sdk.calls[3:] == ["delete"]
    monkeypatch.setattr(load, "ANSWERED_S_MAX", -1.0)
    monkeypatch.setattr(loader, "_sdk", Sdk(failures=1))
    with pytest.raises(tablestore.OTSServiceError):
        loader.write_step(TABLE, Change(("p1",), {"n": 1}, ()))
