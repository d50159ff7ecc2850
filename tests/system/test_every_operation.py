"""One walk over every operation, on workers of a Kafka.

Most tests of operations run on a local log: above the seam nothing knows which log it is. This walk
asks two workers of a real Kafka in turn for every operation that a server offers, so each one
passes through Kafka's implementation of the seam, and through the hop between workers, in every run
of the tests. An operation that is added fails the walk until a step asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest

from rowtide.cli.client import ServerError
from rowtide.client.wire_row import Key, Special, encode_row
from rowtide.core.cluster.share_token import FEED, token_digest
from rowtide.core.protocol.operations import OPERATIONS, Right
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    batch_write,
    delete,
    get_range,
    key,
    outcomes,
    put,
    puts,
    read_row,
    rows,
    shown,
    update,
)
from tests.support.tables import create_request
from tests.support.waiting import until
from tests.workers.conftest import SLOTS, Retrying, Workers, repeat, workers
from tests.workers.test_forwarding import create

__all__ = ["workers"]

pytestmark = pytest.mark.system

EVERYTHING = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
TABLE = "walked"
LEASE = ("--lease-ms", "10000")


class Walk:
    """Asks workers in turn, and notes which operations succeeded or were refused as expected."""

    def __init__(self, clients: list[Retrying]) -> None:
        self.done: set[str] = set()
        self._clients = cycle(clients)

    def ask(self, request: Any) -> Any:
        """Send a message to the next worker."""
        answer = ask(next(self._clients), request)
        self.done.add(type(request).__name__.removesuffix("Request"))
        return answer

    def json(self, operation: str, fields: Mapping[str, object] | None = None) -> Any:
        """Send one of our own operations to the next worker."""
        answer = next(self._clients).call_json(operation, fields or {})
        self.done.add(operation)
        return answer

    @contextmanager
    def expect_refusal(self, operation: str, match: str) -> Iterator[Retrying]:
        """Yield a client of the next worker; what is asked of it must be refused."""
        with pytest.raises(ServerError, match=match):
            yield next(self._clients)
        self.done.add(operation)

    def read_pages(self, request: Any) -> list[Key]:
        """Return the keys of all rows of a range, page by page; a page may end with a shard."""
        found: list[Key] = []
        while request.inclusive_start_primary_key:
            page = self.ask(request)
            found += [row.key for row in rows(page.rows)]
            request.inclusive_start_primary_key = page.next_start_primary_key
        return found

    def read_row(self, row_key: Key) -> dict[str, Any] | None:
        """Return a row by GetRow."""
        self.done.add("GetRow")
        return shown(read_row(next(self._clients), TABLE, row_key))


def walk_tables(walk: Walk) -> None:
    walk.ask(create(TABLE, "h", "p"))
    assert list(walk.ask(pb.ListTableRequest()).table_names) == [TABLE]
    column = pb.DefinedColumnSchema(name="n", type=pb.DCT_INTEGER)
    more = pb.DefinedColumnSchema(name="more", type=pb.DCT_STRING)
    walk.ask(pb.AddDefinedColumnRequest(table_name=TABLE, columns=[column, more]))
    walk.ask(pb.DeleteDefinedColumnRequest(table_name=TABLE, columns=["more"]))
    options = pb.TableOptions(deviation_cell_version_in_sec=2**31)
    walk.ask(pb.UpdateTableRequest(table_name=TABLE, table_options=options))
    table = walk.ask(pb.DescribeTableRequest(table_name=TABLE))
    assert [found.name for found in table.table_meta.defined_column] == ["n"]
    assert table.table_options.deviation_cell_version_in_sec == 2**31


def walk_rows(walk: Walk) -> None:
    walk.ask(put(TABLE, key("a", 1), puts(n=1)))
    walk.ask(update(TABLE, key("a", 1), puts(n=2, m=3)))
    assert walk.read_row(key("a", 1)) == {"n": 2, "m": 3}
    many = [put(TABLE, key(letter, 1), puts(n=5)) for letter in "iqz"]
    assert outcomes(walk.ask(batch_write([(TABLE, many)]))) == [["ok"] * 3]
    keys = [key(letter, 1) for letter in "aiqz"]
    [read] = walk.ask(batch_get([(TABLE, keys)])).tables
    assert [len(rows(row.row)) for row in read.rows] == [1] * 4
    walk.ask(delete(TABLE, key("z", 1)))
    assert walk.read_pages(get_range(TABLE, *EVERYTHING)) == keys[:3]
    exact = key_order.encode([variant.encode("a"), variant.encode(1)])
    request = pb.ReadRowsRequest(table_name=TABLE, keys=[exact])
    assert walk_own(walk, "RowtideReadRows", request, pb.ReadRowsResponse).rows != [b""]


def walk_numbered_rows(walk: Walk) -> None:
    """Put a row that the server numbers, twice: the second put adds no row."""
    by_message = pb.IndexMeta(
        name="by_message", primary_key=["PK1", "message"], index_type=pb.IT_LOCAL_INDEX
    )
    numbered = create_request(
        "numbered", defined=[("message", pb.DCT_STRING)], index_metas=[by_message]
    )
    numbered.table_meta.primary_key[1].option = pb.AUTO_INCREMENT
    walk.ask(numbered)
    row = encode_row(key("a", Special.AUTO_INCREMENT), puts(message="m"))
    request = pb.PutOnceRequest(table_name="numbered", row=row, index_name="by_message")
    done = [walk_own(walk, "RowtidePutOnce", request, pb.PutOnceResponse) for _ in range(2)]
    assert [one.is_new for one in done] == [True, False]
    assert rows(done[0].row) == rows(done[1].row)
    walk.ask(pb.DeleteTableRequest(table_name="numbered"))


def walk_own(walk: Walk, operation: str, request: Any, answer: Any) -> Any:
    """Send a message of ours, whose operation is not called as its type."""
    reply = next(walk._clients).call(operation, request, answer)
    walk.done.add(operation)
    return reply


def walk_bulk(walk: Walk) -> None:
    request = pb.BulkImportRequest(table_name=TABLE)
    for letter in "bjr":
        request.rows.add(type=pb.PUT, row_change=encode_row(key(letter, 1), puts(n=7)))
    assert all(row.is_ok for row in walk.ask(request).rows)
    fields: dict[str, Any] = {
        "inclusive_start_primary_key": encode_row(EVERYTHING[0]),
        "exclusive_end_primary_key": encode_row(EVERYTHING[1]),
        "columns_to_get": ["n"],
        "data_block_type_hint": pb.DBT_PLAIN_BUFFER,
    }
    exported = walk.read_pages(pb.BulkExportRequest(table_name=TABLE, **fields))
    assert exported == [key(letter, 1) for letter in "abijqr"]
    pieces = pb.ComputeSplitPointsBySizeRequest(table_name=TABLE, split_size=1)
    assert len(walk.ask(pieces).locations) >= 1


def walk_transactions(walk: Walk) -> None:
    for end in (pb.CommitTransactionRequest, pb.AbortTransactionRequest):
        begin = pb.StartLocalTransactionRequest(table_name=TABLE, key=encode_row(key("a")))
        transaction = walk.ask(begin).transaction_id
        number = int(end is pb.CommitTransactionRequest)
        walk.ask(put(TABLE, key("a", 10 + number), transaction_id=transaction))
        walk.ask(end(transaction_id=transaction))
    assert (walk.read_row(key("a", 10)), walk.read_row(key("a", 11))) == (None, {})


def walk_indexes(walk: Walk) -> None:
    index = pb.IndexMeta(
        name="by_n",
        primary_key=["n"],
        index_type=pb.IT_GLOBAL_INDEX,
        index_update_mode=pb.IUM_ASYNC_INDEX,
    )
    asked = pb.CreateIndexRequest(main_table_name=TABLE, index_meta=index, include_base_data=True)
    walk.ask(asked)
    [index] = walk.json("RowtideListIndexes", {"table": TABLE})["indexes"]
    assert index["name"] == "by_n"
    walk.ask(pb.DropIndexRequest(main_table_name=TABLE, index_name="by_n"))


def walk_stream(walk: Walk) -> None:
    [stream] = walk.ask(pb.ListStreamRequest(table_name=TABLE)).streams
    shards = walk.ask(pb.DescribeStreamRequest(stream_id=stream.stream_id)).shards
    first = pb.GetShardIteratorRequest(stream_id=stream.stream_id, shard_id=shards[0].shard_id)
    place = walk.ask(first).shard_iterator
    assert walk.ask(pb.GetStreamRecordRequest(shard_iterator=place)).stream_records


def walk_shards(walk: Walk) -> None:
    """Split a shard, merge its children, and move the child to another slot."""
    shards = walk.json("RowtideListShards", {"table": TABLE})["shards"]
    fields = {"table": TABLE, "shard": shards[0]["shard"], "at": "b"}
    halves = walk.json("RowtideSplitShard", fields)["children"]
    [one] = walk.json("RowtideMergeShards", {"table": TABLE, "shards": halves})["children"]
    slot = (shards[0]["slot"] + 1) % SLOTS
    moved = walk.json("RowtideMoveShard", {"table": TABLE, "shard": one, "slot": slot})
    assert moved["done"]
    assert walk.read_row(key("a", 1)) == {"n": 2, "m": 3}
    with walk.expect_refusal("RowtideRepairShard", "is not closed") as client:
        client.call_json("RowtideRepairShard", {"shard": moved["children"][0]})


def walk_instances_and_keys(walk: Walk) -> None:
    walk.json("RowtideCreateInstance", {"name": "other", "kind": "capacity"})
    names = [found["name"] for found in walk.json("RowtideListInstances")["instances"]]
    assert "other" in names
    made = walk.json("RowtideCreateKey", {"instances": ["other"]})["access_key_id"]
    assert made in {found["access_key_id"] for found in walk.json("RowtideListKeys")["keys"]}
    walk.json("RowtideRevokeKey", {"access_key_id": made})
    assert walk.json("RowtideDescribeKey")["admin"]
    walk.json("RowtideDeleteInstance", {"name": "other"})


def walk_share_tokens(walk: Walk) -> None:
    made = walk.json("RowtideCreateToken", {"table": TABLE, "key": "a"})
    asked = {"token_id": made["token_id"], "digest": token_digest(made["token"]), "purpose": FEED}
    assert walk.json("RowtideCheckToken", asked)["key"] == "a"
    walk.json("RowtideRevokeToken", {"token_id": made["token_id"]})
    assert walk.json("RowtideListTokens")["tokens"] == []
    with walk.expect_refusal("RowtideCheckToken", "revoked") as client:
        client.call_json("RowtideCheckToken", asked)


def walk_workers(walk: Walk) -> None:
    address = walk.json("RowtideStatus")["address"]
    assert len(walk.json("RowtideClusterStatus")["workers"]) == 2
    walk.json("RowtidePauseReclaimer")
    assert walk.json("RowtideReclaim", {"table": TABLE})["table"] == TABLE
    walk.json("RowtideResumeReclaimer")
    assert walk.json("RowtideConsumption", {"table": TABLE})["hours"]

    def tables() -> set[str]:
        found = walk.json("RowtideTableFigures", {"since": {address: 0}})
        assert len(found["workers"]) == 2
        return {table["table"] for of in found["workers"] for table in of["tables"]}

    until(lambda: TABLE in tables())  # The figures of a second are there when it is over.
    shards = walk.json("RowtideListShards", {"table": TABLE})["shards"]
    loads = walk.json("RowtideListLoads")["shards"]
    assert {s["shard"] for s in shards if s["state"] == "open"} <= loads.keys()
    assert all(load["end"] > 0 for load in loads.values())
    with walk.expect_refusal("RowtideForgetWorker", "is alive") as client:
        client.call_json("RowtideForgetWorker", {"worker": address})
    assert walk.json("RowtideDrain", {"worker": address})["drained"]
    assert not walk.json("RowtideUndrain", {"worker": address})["drained"]
    with walk.expect_refusal("RowtideSetClock", "clock") as client:
        client.call_json("RowtideSetClock", {"now_us": 1})
    with walk.expect_refusal("RowtideAdvanceClock", "clock") as client:
        client.call_json("RowtideAdvanceClock", {"by_us": 1})


def walk_unbuilt(walk: Walk) -> None:
    for operation in ("ListSearchIndex", "ListTimeseriesTable"):
        walk_own(walk, operation, pb.ListTableRequest(), pb.ListTableResponse)
    for operation in (name for name, spec in OPERATIONS.items() if not spec.is_built):
        with walk.expect_refusal(operation, f"Unsupported operation: {operation}") as client:
            client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)


def test_every_operation_is_answered_by_workers_of_a_kafka(workers: Workers) -> None:
    for _ in range(2):
        workers.start(*LEASE)
    workers.wait_until_divided()
    clients = [client for client in workers.clients if isinstance(client, Retrying)]
    walk = Walk(clients)
    repeat(clients[0].list_table)
    for step in (
        *(walk_tables, walk_rows, walk_bulk, walk_transactions, walk_indexes, walk_stream),
        *(
            walk_numbered_rows,
            walk_shards,
            walk_instances_and_keys,
            walk_share_tokens,
            walk_unbuilt,
            walk_workers,
        ),
    ):
        step(walk)
    walk.ask(pb.DeleteTableRequest(table_name=TABLE))
    assert list(walk.ask(pb.ListTableRequest()).table_names) == []
    assert walk.done == {s.name for s in OPERATIONS.values() if s.right is not Right.WORKER}
