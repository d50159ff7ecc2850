"""Figures of tables on a real server: what clients sent, by table and second."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from tests.api.calls import ask, batch_get, batch_write, get, key, put, puts, refusal
from tests.api.conftest import MakeTable
from tests.support.waiting import until

pytestmark = pytest.mark.system


def sums(client: ProtocolClient, table: str, since: dict[str, int]) -> tuple[int, int]:
    """Return how many requests of a table ended since then, and how many of them failed."""
    found = client.call_json("RowtideTableFigures", {"since": since})
    assert found["silent"] == []
    of_table = [one for page in found["workers"] for one in page["tables"] if one["table"] == table]
    return sum(sum(one["requests"]) for one in of_table), sum(sum(o["errors"]) for o in of_table)


def test_each_request_counts_once_for_each_of_its_tables(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    one, other = make_table(), make_table()
    requests: list[Any] = [
        put(one, key("a", 1), puts(n=1)),
        get(one, key("a", 1)),
        batch_write([(one, [put(one, key("b", n)) for n in range(100)])]),
        batch_get([(one, [key("a", 1)]), (other, [key("a", 1)])]),
    ]
    for request in requests:
        ask(client, request)
    assert refusal(client, put(one, key("a"))).startswith("400 OTSInvalidPK")
    assert refusal(client, get("absent", key("a", 1))).startswith("404")
    # The figures of a second are there when it is over.
    until(lambda: sums(client, one, {}) == (5, 1))
    until(lambda: sums(client, other, {}) == (1, 0))
    assert sums(client, "absent", {}) == (0, 0)


def test_a_reader_that_knows_a_second_gets_only_what_is_newer(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, put(table, key("a", 1)))
    until(lambda: sums(client, table, {}) == (1, 0))
    [page] = client.call_json("RowtideTableFigures", {})["workers"]
    since = {page["address"]: page["until_s"]}
    assert sums(client, table, since) == (0, 0)
    ask(client, put(table, key("a", 2)))
    until(lambda: sums(client, table, since) == (1, 0))
    [seen] = [one for one in page["tables"] if one["table"] == table]
    assert 0 < seen["p50_us"][0] <= seen["p99_us"][0]


@pytest.mark.parametrize("since", [[], 5, {"a:1": "5"}, {"a:1": True}])
def test_a_wrong_since_is_refused(client: ProtocolClient, since: object) -> None:
    with pytest.raises(ServerError, match="a whole Unix second by worker address"):
        client.call_json("RowtideTableFigures", {"since": since})


def test_the_load_of_a_shard_has_its_worker_and_the_end_of_its_log(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    [shard] = client.call_json("RowtideListShards", {"table": table})["shards"]

    def load() -> dict[str, Any]:
        found: dict[str, Any] = client.call_json("RowtideListLoads", {})["shards"]
        load: dict[str, Any] = found.get(shard["shard"], {"end": -1})
        return load

    until(lambda: load()["end"] >= 0)
    before = load()
    ask(client, put(table, key("a", 1)))
    assert load()["end"] == before["end"] + 1
    assert load()["worker"] == client.call_json("RowtideStatus", {})["address"]
    assert load()["bytes"] >= 0
    assert (load()["instance"], load()["table"]) == (client.access.instance, table)
