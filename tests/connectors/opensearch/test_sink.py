"""A table in a real search server: idempotent, whatever comes late, whatever types meet.

All tests with a search server are in this file: a server takes longer to start than any test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from demo.servers.search_server import SearchServer
from demo.servers.server import Answered
from rowtide.connectors.rows import SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.opensearch.cluster import ClusterRefused, ClusterSettings
from rowtide.connectors.sinks.opensearch.generation import IndexSettings
from rowtide.connectors.sinks.opensearch.sink import OpenSearchSink
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar
from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history
from tests.connectors.opensearch.busy_proxy import busy_proxy
from tests.connectors.sink_histories import TABLE, Columns, History, histories, key_bytes, row
from tests.support.searches import examples

pytestmark = pytest.mark.system

_numbers = count(1)
RETRY_S = 0.5
"""Between two attempts at a server that is away. Many writers that retry at once slow its start."""


@pytest.fixture
def alias() -> str:
    """A name that no other test has."""
    return f"things{next(_numbers)}"


def sink_of(
    search_server: SearchServer, alias: str, *, url: str = "", **given: Any
) -> OpenSearchSink:
    own = {"fields_max", "request_bytes"}
    index = IndexSettings(alias, **{name: value for name, value in given.items() if name in own})
    rest = {name: value for name, value in given.items() if name not in own}
    return OpenSearchSink(ClusterSettings(url or search_server.url), index, **rest)


@asynccontextmanager
async def open_sink(
    search_server: SearchServer, alias: str, **given: Any
) -> AsyncIterator[OpenSearchSink]:
    sink = sink_of(search_server, alias, **given)
    try:
        await sink.open(TABLE)
        yield sink
    finally:
        await sink.close()


def batch(*rows: SinkRow, covers: Range | None = None, stamp: int = 0) -> SinkBatch:
    return SinkBatch(TABLE.name, "shard", rows, covers, stamp)


async def read_sink_rows(sink: OpenSearchSink) -> dict[bytes, Columns]:
    rows = await sink.read_rows(b"", b"", limit=10_000)
    return {row.key_bytes: row.columns for row in rows}


def search_ids(search_server: SearchServer, alias: str, query: str) -> list[str]:
    """Return the ids that a user's query of the alias finds."""
    search_server.call("POST", f"/{alias}/_refresh")
    body = {"query": {"query_string": {"query": query}}, "size": 100}
    hits = search_server.call("POST", f"/{alias}/_search", body)["hits"]["hits"]
    return sorted(hit["_source"]["id"] for hit in hits)


async def test_a_row_is_found_updated_and_gone(search_server: SearchServer, alias: str) -> None:
    async with open_sink(search_server, alias) as sink:
        assert not await sink.apply(batch(row("a", 1, {"title": "Blue shoes"}), row("b", 2, {})))
        assert search_ids(search_server, alias, "shoes") == ["a"]
        await sink.apply(batch(row("a", 3, {"title": "Red hats", "n": 7}), row("b", 4, None)))
        assert search_ids(search_server, alias, "shoes") == []
        assert search_ids(search_server, alias, "title:hats AND n:>6") == ["a"]
        assert search_ids(search_server, alias, "*") == ["a"]


async def test_a_late_row_does_not_come_back_long_after_its_delete(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as sink:
        search_server.call("PUT", f"/{alias}-r1/_settings", {"index": {"gc_deletes": "0s"}})
        await sink.apply(batch(row("a", 1, {}), row("a", 3, None)))
        _wait_until_deletes_are_forgotten(search_server, f"/{alias}-r1")
        await sink.apply(batch(row("a", 2, {"late": True})))
        assert await read_sink_rows(sink) == {}


def _wait_until_deletes_are_forgotten(search_server: SearchServer, index: str) -> None:
    """Delete a document as the cluster itself does, until a late one brings it back."""
    url = f"{index}/_doc/document?version_type=external&version="
    document = {"_rowtide": {"key": "00", "stamp": 1, "gone": True}}
    search_server.call("PUT", f"{url}1", document)
    search_server.call("DELETE", f"{url}3")
    while True:
        search_server.call("POST", f"{index}/_refresh")
        try:
            search_server.call("PUT", f"{url}2", document)
        except Answered as error:
            if error.status != 409:
                raise
        else:
            return


async def test_a_page_as_of_the_same_stamp_counts_with_what_it_says_now(
    search_server: SearchServer, alias: str
) -> None:
    """The connector's settings have changed, and nothing in the table has: it was passed over."""
    async with open_sink(search_server, alias) as sink:
        page_rows = row("a", 5, {"n": 1, "m": 2}, page=True), row("b", 5, {}, page=True)
        await sink.apply(batch(*page_rows, covers=(b"", b""), stamp=5))
        page_rows = row("a", 5, {"n": 1}, page=True), row("b", 5, None, page=True)
        await sink.apply(batch(*page_rows, covers=(b"", b""), stamp=5))
        assert await read_sink_rows(sink) == {key_bytes("a"): {"n": 1}}


async def test_a_page_of_a_snapshot_ends_rows_that_it_has_not(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(*(row(name, 1, {}) for name in "abc"), row("d", 9, {})))
        page = batch(row("b", 5, {}, page=True), covers=(key_bytes("b"), b""), stamp=5)
        await sink.apply(page)
        assert set(await read_sink_rows(sink)) == {key_bytes("a"), key_bytes("b"), key_bytes("d")}
        await sink.apply(batch(row("c", 4, {})))
        assert key_bytes("c") not in await read_sink_rows(sink)


@given(history=histories())
@settings(max_examples=examples(10, 25), suppress_health_check=list(HealthCheck))
def test_whatever_the_order_the_end_is_the_table(
    search_server: SearchServer, history: History
) -> None:
    alias = f"history{next(_numbers)}"

    async def apply_history() -> None:
        async with open_sink(search_server, alias) as sink:
            for one in history.batches:
                assert not await sink.apply(one)
            rows = {
                key: sorted(columns.items())
                for key, columns in (await read_sink_rows(sink)).items()
            }
            end = {key: sorted(columns.items()) for key, columns in history.end.items()}
            assert repr(sorted(rows.items())) == repr(sorted(end.items()))

    asyncio.run(apply_history())
    search_server.call("DELETE", f"/{alias}-r1")


async def test_types_that_clash_lose_no_row_and_stay_searchable(
    search_server: SearchServer, alias: str
) -> None:
    values: list[Columns] = [
        {"size": 5},
        {"size": "XL shirt"},
        {"size": 5.5},
        {"size": True},
        {"size": b"\x00\xff"},
        {"size": float("nan")},
        {"size": 2**63 - 1},
    ]
    async with open_sink(search_server, alias) as sink:
        rows = [row(str(i), i + 1, columns) for i, columns in enumerate(values)]
        for one in rows:
            assert not await sink.apply(batch(one))
        assert repr(list((await read_sink_rows(sink)).values())) == repr(values)
    assert search_ids(search_server, alias, "size:>4") == ["0", "6"]
    assert search_ids(search_server, alias, r"size@string:shirt") == ["1"]
    assert search_ids(search_server, alias, r"size@double:[5 TO 6]") == ["2"]


async def test_writers_that_meet_with_other_types_agree(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as one, open_sink(search_server, alias) as other:
        values: list[Scalar] = [1, "text", 1.5, True, b"b"]
        async with asyncio.TaskGroup() as tasks:
            for i, value in enumerate(values * 2):
                sink = one if i % 2 else other
                tasks.create_task(sink.apply(batch(row(str(i), 1, {"x": value, f"y{i}": value}))))
        rows = await read_sink_rows(one)
        assert [columns["x"] for columns in rows.values()] == values * 2
        assert await read_sink_rows(other) == rows


async def test_more_columns_than_fields_lose_no_row(
    search_server: SearchServer, alias: str
) -> None:
    columns: Columns = {f"column{i}": f"word{i}" for i in range(100)}
    async with open_sink(search_server, alias, fields_max=50) as sink:
        assert not await sink.apply(batch(row("a", 1, columns)))
        assert await read_sink_rows(sink) == {key_bytes("a"): columns}
    assert search_ids(search_server, alias, "word99") == ["a"]


async def test_long_keys_and_large_rows_are_taken(search_server: SearchServer, alias: str) -> None:
    async with open_sink(search_server, alias, request_bytes=100_000) as sink:
        long = [row("k" * 1000 + str(i), 1, {"text": "x" * 90_000}) for i in range(4)]
        assert not await sink.apply(batch(*long, row("a", 1, {})))
        assert len(await read_sink_rows(sink)) == 5


async def test_ranges_may_begin_and_end_at_long_keys(
    search_server: SearchServer, alias: str
) -> None:
    names = ["k" * 1000 + digit for digit in "0123456789"]
    keys = [key_bytes(name) for name in names]
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(*(row(name, 1, {}) for name in names)))
        held_rows = await sink.read_rows(keys[3], keys[7], limit=10)
        assert [one.key_bytes for one in held_rows] == keys[3:7]
        page = batch(row(names[4], 5, {}, page=True), covers=(keys[3], keys[7]), stamp=5)
        await sink.apply(page)
        assert list(await read_sink_rows(sink)) == [*keys[:3], keys[4], *keys[7:]]


async def test_what_the_cluster_will_never_take_is_refused_and_the_others_are_taken(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(row("c", 1, {})))
        # What no value of ours should meet: a field of the index that does not take it.
        mapping = {"properties": {"place": {"type": "geo_point"}}}
        search_server.call("PUT", f"/{alias}-r1/_mapping", mapping)
        sink._mine._plan._chosen["place", "string"] = "place"
        refused = await sink.apply(batch(row("a", 1, {"place": "nowhere"}), row("b", 2, {})))
        assert [one.row.key_bytes for one in refused] == [key_bytes("a")]
        assert "place" in refused[0].reason
        assert set(await read_sink_rows(sink)) == {key_bytes("b"), key_bytes("c")}


async def test_a_field_that_somebody_else_made_is_left_to_them(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as sink:
        mapping = {"properties": {"place": {"type": "geo_point"}}}
        search_server.call("PUT", f"/{alias}-r1/_mapping", mapping)
        assert not await sink.apply(batch(row("a", 1, {"place": "nowhere"})))
        assert await read_sink_rows(sink) == {key_bytes("a"): {"place": "nowhere"}}


async def test_rejected_items_alone_are_sent_again(search_server: SearchServer, alias: str) -> None:
    async with (
        busy_proxy(search_server.url, busy=3) as proxy,
        open_sink(search_server, alias, url=proxy.url) as sink,
    ):
        await sink.apply(batch(*(row(str(i), 1, {"n": i}) for i in range(100))))
        assert len(await read_sink_rows(sink)) == 100
    assert proxy.rejected > 0
    assert proxy.documents < 400  # Each came once more for each time that it was rejected.


async def test_a_cluster_that_stays_busy_is_unavailable(
    search_server: SearchServer, alias: str
) -> None:
    async with (
        busy_proxy(search_server.url, busy=1000) as proxy,
        open_sink(search_server, alias, url=proxy.url) as sink,
    ):
        rows = batch(*(row(str(i), 1, {}) for i in range(100)))
        with pytest.raises(Unavailable, match="too busy"):
            await sink.apply(rows)
        proxy.busy = 0
        await sink.apply(rows)
        assert len(await read_sink_rows(sink)) == 100


async def test_bulks_that_kill_9_cut_off_are_made_good_by_the_same_bulks(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as sink:
        batches = [
            batch(*(row(f"{i:03}-{n:03}", i + 1, {"n": n}) for n in range(100))) for i in range(20)
        ]
        done: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            for place, one in enumerate(batches):
                tasks.create_task(_apply_again(sink, one, place, done))
            tasks.create_task(_kill_when(search_server, lambda: len(done) >= 5))
        assert sorted(done) == list(range(20))
        # A bulk that was acknowledged before the kill is not sent again.
        rows = await read_sink_rows(sink)
        assert len(rows) == 2000


async def _apply_again(sink: OpenSearchSink, one: SinkBatch, place: int, done: list[int]) -> None:
    """Apply a batch as the runtime does: again, as long as the target is away."""
    while True:
        try:
            await sink.apply(one)
        except Unavailable:
            await asyncio.sleep(RETRY_S)
        else:
            done.append(place)
            return


async def _kill_when(search_server: SearchServer, ready: Callable[[], bool]) -> None:
    while not ready():  # noqa: ASYNC110 - nothing else signals a batch.
        await asyncio.sleep(0.001)
    search_server.kill()
    await asyncio.to_thread(search_server.start)


async def test_a_rebuild_fills_a_new_index_and_moves_the_alias_once_all_is_covered(
    search_server: SearchServer, alias: str
) -> None:
    middle = key_bytes("c")
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(*(row(name, 1, {"n": 1}) for name in "abcd")))
    async with (
        open_sink(search_server, alias, rebuild=2) as sink,
        open_sink(search_server, alias, rebuild=2) as other,
    ):
        page = batch(row("a", 5, {"n": 5}, page=True), covers=(b"", middle), stamp=5)
        await sink.apply(page)
        # What is searched meanwhile is the former index, kept as it should be.
        assert _indices(search_server, alias) == [f"{alias}-r1"]
        assert search_ids(search_server, alias, "*") == ["a", "c", "d"]
        await sink.apply(batch(row("d", 6, {"n": 6})))
        assert search_ids(search_server, alias, "n:6") == ["d"]
        await other.apply(batch(row("d", 7, {"n": 7}, page=True), covers=(middle, b""), stamp=7))
        assert _indices(search_server, alias) == [f"{alias}-r2"]
        assert search_ids(search_server, alias, "*") == ["a", "d"]
        # The first does not know yet that the former index is gone.
        await sink.apply(batch(row("e", 8, {"n": 8})))
        assert search_ids(search_server, alias, "*") == ["a", "d", "e"]
    sink = sink_of(search_server, alias)
    with pytest.raises(Rejected, match=f"alias {alias} shows rebuild 2"):
        await sink.open(TABLE)
    await sink.close()


async def test_a_rebuild_does_not_wait_for_a_key_that_is_parked(
    search_server: SearchServer, alias: str
) -> None:
    """Pages never covered that key, so the alias was never moved."""
    parked = key_bytes("b")
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(*(row(name, 1, {"n": 1}) for name in "abc")))
    async with open_sink(search_server, alias, rebuild=2) as sink:
        page = batch(row("a", 5, {"n": 5}, page=True), covers=(b"", parked), stamp=5)
        await sink.apply(page)
        assert _indices(search_server, alias) == [f"{alias}-r1"]
        behind = parked + b"\0"
        await sink.apply(batch(row("c", 5, {"n": 5}, page=True), covers=(behind, b""), stamp=5))
        assert _indices(search_server, alias) == [f"{alias}-r2"]
        # It comes when it is tried again.
        await sink.apply(batch(row("b", 6, {"n": 6})))
        assert search_ids(search_server, alias, "*") == ["a", "b", "c"]


def _indices(search_server: SearchServer, alias: str) -> Sequence[str]:
    return list(search_server.call("GET", f"/_alias/{alias}"))


async def test_a_writer_paused_while_its_index_was_removed_makes_none(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias) as paused:
        async with open_sink(search_server, alias, rebuild=2) as sink:
            await sink.apply(batch(covers=(b"", b""), stamp=5))
        with pytest.raises(ClusterRefused, match="no such index"):
            await paused.apply(batch(row("a", 1, {})))
    assert list(search_server.call("GET", f"/{alias}*/_alias")) == [f"{alias}-r2"]


async def test_the_former_index_may_be_kept(search_server: SearchServer, alias: str) -> None:
    async with open_sink(search_server, alias):
        pass
    async with open_sink(search_server, alias, rebuild=2, keep_former=True) as sink:
        await sink.apply(batch(covers=(b"", b""), stamp=5))
    assert sorted(search_server.call("GET", f"/{alias}*/_alias")) == [f"{alias}-r1", f"{alias}-r2"]
    assert _indices(search_server, alias) == [f"{alias}-r2"]


async def test_reading_makes_nothing(search_server: SearchServer, alias: str) -> None:
    reader = sink_of(search_server, alias)
    with pytest.raises(Rejected, match=f"There is no index {alias}-r1"):
        await reader.open_to_read(TABLE)
    async with open_sink(search_server, alias) as sink:
        await sink.apply(batch(row("a", 1, {"n": 1})))
        assert await read_sink_rows(reader) == {key_bytes("a"): {"n": 1}}
    await reader.close()


async def test_deletes_are_forgotten_after_so_many_days(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias, deletes_days=1) as sink:
        await sink._mine.apply(batch(row("a", 1, {}), row("b", 2**60, None)), TABLE)
        await sink._mine.apply(batch(row("c", 3, None)), TABLE)
        search_server.call("POST", f"/{alias}-r1/_refresh")
        assert search_server.call("GET", f"/{alias}-r1/_count")["count"] == 3
        await sink.apply(batch())
        while search_server.call("GET", f"/{alias}-r1/_count")["count"] != 2:
            search_server.call("POST", f"/{alias}-r1/_refresh")
        assert set(await read_sink_rows(sink)) == {key_bytes("a")}


async def test_an_index_of_another_table_is_left_alone(
    search_server: SearchServer, alias: str
) -> None:
    async with open_sink(search_server, alias):
        pass
    sink = sink_of(search_server, alias)
    with pytest.raises(Rejected, match="is of table things, not of others"):
        await sink.open(TableShape("others", TABLE.key))
    await sink.close()
    search_server.call("PUT", f"/{alias}x-r1")
    sink = sink_of(search_server, f"{alias}x")
    with pytest.raises(Rejected, match="not made by rowtide"):
        await sink.open(TABLE)
    await sink.close()


@pytest.mark.slow
def test_a_document_acknowledged_is_there_after_kill_9(search_server: SearchServer) -> None:
    """The bulks that were acknowledged before a kill, above, show the same in ``make test``."""
    url = search_server.url
    search_server.call("PUT", "/killed/_doc/1", {"kept": True})
    search_server.kill()
    search_server.start()
    assert search_server.url == url
    assert search_server.call("GET", "/")["version"]["number"] == search_server.distribution.version
    search_server.call("GET", "/_cluster/health/killed?wait_for_status=yellow")
    assert search_server.call("GET", "/killed/_doc/1")["_source"] == {"kept": True}
    search_server.call("DELETE", "/killed")


def test_any_history_ends_in_the_table(
    server: Ready, search_server: SearchServer, tmp_path: Path
) -> None:
    settings = {"kind": "opensearch", "url": search_server.url, "index": tmp_path.name.lower()}
    check_history(server, tmp_path, settings, mixed=True, processes_max=3, steps=15)
