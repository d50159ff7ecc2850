"""The page of metrics and the server agree with each other, and with what was done."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import ask, key, put
from tests.support.metrics_page import DocumentedMetric, documented_metrics
from tests.support.waiting import until

pytestmark = pytest.mark.system

Numbers = dict[tuple[str, ...], float]


@pytest.fixture
def scrape(server: Ready) -> Callable[[], Numbers]:
    """Return every number by its name and its labels' values, sorted by the labels' names."""

    def scrape() -> Numbers:
        with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    return scrape


def test_every_metric_is_documented_with_its_kind_and_labels(
    server: Ready, client: ProtocolClient, make_table: Callable[..., str]
) -> None:
    ask(client, put(make_table(), key("a", 1)))
    with pytest.raises(ServerError):
        client.describe_table("absent")
    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    served = {
        family.name + ("_total" if family.type == "counter" else ""): DocumentedMetric(
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
        )
        for family in families
        if family.name.startswith("rowtide_")
    }
    # Those of connectors are another process's: tests/connectors/runtime/test_metrics_page.py.
    documented = {n: what for n, what in documented_metrics().items() if "_connector_" not in n}
    assert served.keys() == documented.keys()
    # Without an index there is no sample of one to take labels from.
    labelled = {name: what for name, what in served.items() if what.labels}
    assert labelled == {name: documented[name] for name in labelled}


def test_a_write_and_its_refusal_are_counted(
    server: Ready,
    scrape: Callable[[], Numbers],
    client: ProtocolClient,
    make_table: Callable[..., str],
) -> None:
    table, before = make_table(), scrape()
    ask(client, put(table, key("a", 1)))
    with pytest.raises(ServerError):
        ask(client, put("absent", key("a", 1)))
    after = scrape()

    def rise(*name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert rise("rowtide_requests_total", "PutRow", "ok") == 1
    assert rise("rowtide_requests_total", "PutRow", "refused") == 1
    assert rise("rowtide_request_errors_total", "OTSObjectNotExist") == 1
    assert rise("rowtide_request_seconds_count", "write") == 2
    assert rise("rowtide_append_records_total") >= 1
    assert rise("rowtide_append_seconds_count") >= 1
    assert rise("rowtide_append_bytes_total") > 10
    assert rise("rowtide_received_bytes_total") > 100
    assert rise("rowtide_sent_bytes_total") > 100
    assert after["rowtide_consumed_units_total", server.instance, "write", table] == 1


def test_a_shard_tells_where_its_log_begins_and_ends(
    scrape: Callable[[], Numbers], client: ProtocolClient, make_table: Callable[..., str]
) -> None:
    table = make_table()
    for number in range(3):
        ask(client, put(table, key("a", number)))
    numbers = scrape()
    [(end_name, end)] = [
        (name, value)
        for name, value in numbers.items()
        if name[0] == "rowtide_log_end_offset" and name[4] == table
    ]
    assert end >= 4  # The table's options, then the rows.
    assert numbers["rowtide_log_start_offset", *end_name[1:]] == 0
    assert 0 <= numbers["rowtide_unflushed_records", *end_name[1:]] <= end


def test_a_stream_that_is_read_is_counted(
    scrape: Callable[[], Numbers], client: ProtocolClient, make_table: Callable[..., str]
) -> None:
    table = make_table(stream=pb.StreamSpecification(enable_stream=True, expiration_time=24))
    ask(client, put(table, key("a", 1)))
    before = scrape()
    [stream] = client.list_stream(table)
    [shard] = client.describe_stream(stream.stream_id).shards
    client.get_stream_record(client.get_shard_iterator(stream.stream_id, shard.shard_id))
    after = scrape()
    for name in ("rowtide_stream_reads_total", "rowtide_stream_records_total"):
        assert after[name,] - before[name,] == 1


def test_an_idle_server_is_ready_and_its_leases_are_young(scrape: Callable[[], Numbers]) -> None:
    def is_idle() -> bool:
        """True if it is ready, and no work of the tests before is left."""
        numbers = scrape()
        ages_s = [s for (name, *_), s in numbers.items() if name == "rowtide_lease_age_seconds"]
        return (
            numbers["rowtide_ready",] == 1
            and numbers["rowtide_slots", "open"] >= 1
            and numbers["rowtide_slots", "opening"] == 0
            and numbers["rowtide_shards", "closed"] == 0
            and numbers["rowtide_shards", "opening"] == 0
            and numbers["rowtide_broker_answer_age_seconds",] < 10
            and all(age_s < 4 for age_s in ages_s)
        )

    until(is_idle, scrape)
    assert scrape()["process_resident_memory_bytes",] > 1e7
