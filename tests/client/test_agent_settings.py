"""Which settings of a Faust app a change channel rejects, and which shard has which partition."""

from __future__ import annotations

from typing import Any

import faust
import pytest

from rowtide.client import AsyncClient
from rowtide.client.agents import change_channel
from rowtide.client.agents.table_partitions import (
    partition_of,
    require_exact_tables,
    table_partitions,
)

EXACT: dict[str, Any] = {"table_standby_replicas": 0, "broker": "kafka://127.0.0.1:1"}


def app_with_table(table: dict[str, Any], **settings: Any) -> faust.App:
    app = faust.App("counting", **{**EXACT, **settings})
    app.in_worker = True
    app.finalize()
    app.Table("counts", **table)
    return app


def test_an_app_with_a_table_in_memory_is_accepted() -> None:
    require_exact_tables(app_with_table({}))


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        ({}, {"table_standby_replicas": 1}, "table_standby_replicas is 1 and must be 0"),
        ({}, {"processing_guarantee": "exactly_once"}, "Use 'at_least_once'"),
        ({}, {"producer_threaded": True}, "producer_threaded must be off"),
        ({}, {"store": "rocksdb://"}, "Table counts has the store rocksdb:"),
        ({"store": "rocksdb://rows"}, {}, "Use memory://"),
        ({"recovery_buffer_size": 1}, {}, "recovery_buffer_size 1"),
    ],
)
def test_settings_that_could_lose_counts_are_rejected(
    table: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        require_exact_tables(app_with_table(table, **settings))


def test_an_app_without_tables_may_have_standbys() -> None:
    app = faust.App("passing", broker="kafka://127.0.0.1:1")
    app.finalize()
    require_exact_tables(app)


def test_tables_must_have_one_number_of_partitions() -> None:
    app = app_with_table({"partitions": 4})
    app.Table("others", partitions=6)
    with pytest.raises(ValueError, match=r"same number of partitions: .*'counts': 4, 'others': 6"):
        table_partitions(app)


def test_another_driver_is_rejected() -> None:
    app = faust.App("other", broker="confluent://127.0.0.1:1")
    app.finalize()
    client = AsyncClient(
        "http://127.0.0.1:1", instance="i", access_key_id="a", access_key_secret="s"
    )
    with pytest.raises(ValueError, match="driver is confluent"):
        change_channel(app, client, "orders", consumer="c")


def test_a_shard_has_one_partition_for_good() -> None:
    """A change of these numbers would part shards from their counts."""
    shards = ("s0", "01JH8ZK4", "orders-7")
    assert [partition_of(shard, 8) for shard in shards] == [6, 3, 3]
    assert {partition_of(f"s{number}", 8) for number in range(100)} == set(range(8))
