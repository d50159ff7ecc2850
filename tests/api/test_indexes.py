"""Secondary indexes: a local one agrees with every row at once, a global one follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Change, Delete, Increment, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
    batch_get,
    batch_write,
    delete,
    get,
    get_range,
    key,
    put,
    puts,
    read_row,
    refusal,
    rows,
    shown,
    update,
)
from tests.support.indexes import wait_until_followed
from tests.support.tables import create_request

pytestmark = pytest.mark.system

LOCAL, GLOBAL = pb.IT_LOCAL_INDEX, pb.IT_GLOBAL_INDEX
KINDS = pytest.mark.parametrize("kind", [LOCAL, GLOBAL], ids=["local", "global"])
INVALID = "400 OTSParameterInvalid "
_numbers = count()


class Indexed:
    """A table keyed PK1 STRING, PK2 INTEGER with defined columns n, s, b, d, and its indexes."""

    def __init__(self, client: ProtocolClient, *indexes: pb.IndexMeta, **fields: Any) -> None:
        self.client = client
        self.name = f"indexed_{next(_numbers)}"
        ask(client, self.request(*indexes, **fields))

    def request(self, *indexes: pb.IndexMeta, **fields: Any) -> pb.CreateTableRequest:
        options = pb.TableOptions(max_versions=1, time_to_live=-1)
        return create_request(
            self.name,
            defined=[
                *(("n", pb.DCT_INTEGER), ("s", pb.DCT_STRING)),
                *(("b", pb.DCT_BLOB), ("d", pb.DCT_DOUBLE)),
            ],
            **{"index_metas": indexes, "table_options": options, **fields},
        )

    def put(self, first: str, second: int, **values: Any) -> None:
        ask(self.client, put(self.name, key(first, second), puts(**values)))

    def update(self, first: str, second: int, *changes: Change) -> None:
        ask(self.client, update(self.name, key(first, second), changes))

    def delete(self, first: str, second: int) -> None:
        ask(self.client, delete(self.name, key(first, second)))

    def create(self, index: pb.IndexMeta, *, base: bool = True) -> str:
        request = pb.CreateIndexRequest(
            main_table_name=self.name, index_meta=index, include_base_data=base
        )
        return refusal(self.client, request)

    def drop_index(self, name: str) -> str:
        return refusal(self.client, pb.DropIndexRequest(main_table_name=self.name, index_name=name))


@pytest.fixture
def table(client: ProtocolClient, index: pb.IndexMeta) -> Iterator[Indexed]:
    made = Indexed(client, index)
    yield made
    client.delete_table(made.name)


def meta(
    kind: int, *keys: str, columns: Sequence[str] = (), name: str | None = None
) -> pb.IndexMeta:
    local = kind == LOCAL
    return pb.IndexMeta(
        name=name or f"index_{next(_numbers)}",
        primary_key=keys,
        defined_column=columns,
        index_type=kind,  # type: ignore[arg-type]
        index_update_mode=pb.IUM_SYNC_INDEX if local else pb.IUM_ASYNC_INDEX,
    )


def by_n(kind: int, **fields: Any) -> pb.IndexMeta:
    """Return an index by the column n, of either kind."""
    return meta(kind, *(["PK1", "n"] if kind == LOCAL else ["n"]), **fields)


def read(client: ProtocolClient, index: pb.IndexMeta) -> list[dict[str, Any]]:
    """Return an index's rows in its order: its whole key, then its columns, as one dictionary."""
    names = [c.name for c in client.describe_table(index.name).table_meta.primary_key]
    low = key(*[INF_MIN] * len(names), names=names)
    high = key(*[INF_MAX] * len(names), names=names)
    found = rows(ask(client, get_range(index.name, low, high)).rows)
    return [{**dict(row.key), **(shown(row) or {})} for row in found]


def read_settled(client: ProtocolClient, index: pb.IndexMeta, main: str) -> list[dict[str, Any]]:
    """Return an index's rows once it is behind nothing and has every row."""
    wait_until_followed(client, main, index.name)
    return read(client, index)


@pytest.fixture(params=[LOCAL, GLOBAL], ids=["local", "global"])
def index(request: pytest.FixtureRequest) -> pb.IndexMeta:
    """An index by n that keeps s beside."""
    return by_n(request.param, columns=["s"])


class TestRowsOfAnIndex:
    def test_each_row_with_the_columns_of_its_key_has_one(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        table.put("a", 1, n=20, s="x", other=1)
        table.put("a", 2, n=10)
        table.put("b", 1, s="no n")
        assert read_settled(client, index, table.name) == [
            {"n": 10, "PK1": "a", "PK2": 2},
            {"n": 20, "PK1": "a", "PK2": 1, "s": "x"},
        ]

    @pytest.mark.parametrize(
        ("changes", "left"),
        [
            ([Put("n", 2)], [{"PK1": "a", "PK2": 1, "n": 2, "s": "x"}]),
            ([Put("s", "y")], [{"PK1": "a", "PK2": 1, "n": 1, "s": "y"}]),
            ([Put("other", 3)], [{"PK1": "a", "PK2": 1, "n": 1, "s": "x"}]),
            ([Delete("s")], [{"PK1": "a", "PK2": 1, "n": 1}]),
            ([Delete("n")], []),
            ([Increment("n", 5)], [{"PK1": "a", "PK2": 1, "n": 6, "s": "x"}]),
        ],
    )
    def test_it_changes_with_its_row(
        self,
        client: ProtocolClient,
        table: Indexed,
        index: pb.IndexMeta,
        changes: list[Change],
        left: list[dict[str, Any]],
    ) -> None:
        table.put("a", 1, n=1, s="x")
        table.update("a", 1, *changes)
        assert read_settled(client, index, table.name) == left

    def test_it_goes_with_its_row(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        table.put("a", 1, n=1)
        table.delete("a", 1)
        table.put("a", 2, n=1)
        table.put("a", 2, s="put anew, without n")
        assert read_settled(client, index, table.name) == []

    def test_a_row_is_found_by_its_key_in_the_index(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        table.put("a", 1, n=7, s="x")
        read_settled(client, index, table.name)
        names = [c.name for c in client.describe_table(index.name).table_meta.primary_key]
        wanted = {"n": 7, "PK1": "a", "PK2": 1}
        row_key = key(*(wanted[name] for name in names), names=names)
        assert shown(read_row(client, index.name, row_key)) == {"s": "x"}
        answer = ask(client, batch_get([(index.name, [row_key]), (table.name, [key("a", 1)])]))
        assert [bool(t.rows[0].row) for t in answer.tables] == [True, True]

    def test_batches_and_bulk_imports_reach_it(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        many = [put(table.name, key("a", i), puts(n=i)) for i in range(20)]
        ask(client, batch_write([(table.name, many)]))
        ask(client, batch_write([(table.name, [delete(table.name, key("a", 3))])]))
        atomic = [put(table.name, key("b", i), puts(n=100)) for i in range(3)]
        ask(client, batch_write([(table.name, atomic)], is_atomic=True))
        found = read_settled(client, index, table.name)
        assert sorted((r["PK1"], r["PK2"], r["n"]) for r in found) == sorted(
            [("a", i, i) for i in range(20) if i != 3] + [("b", i, 100) for i in range(3)]
        )

    def test_a_transaction_reaches_it_with_its_commit(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        table.put("a", 1, n=1)
        begun = pb.StartLocalTransactionRequest(
            table_name=table.name, key=put(table.name, key("a")).row
        )
        held = ask(client, begun).transaction_id
        ask(client, put(table.name, key("a", 2), puts(n=5), transaction_id=held))
        ask(client, delete(table.name, key("a", 1), transaction_id=held))
        assert [row["n"] for row in read_settled(client, index, table.name)] == [1]
        ask(client, pb.CommitTransactionRequest(transaction_id=held))
        assert [row["n"] for row in read_settled(client, index, table.name)] == [5]


class TestALocalIndex:
    def test_agrees_with_every_answered_write_at_once(self, client: ProtocolClient) -> None:
        index = by_n(LOCAL)
        table = Indexed(client, index)
        for n in range(30):
            table.put("a", n % 3, n=n)
            assert n in {row["n"] for row in read(client, index)}
        assert sorted(row["n"] for row in read(client, index)) == [27, 28, 29]
        client.delete_table(table.name)

    def test_cannot_be_read_within_a_transaction(self, client: ProtocolClient) -> None:
        index = by_n(LOCAL)
        table = Indexed(client, index)
        begun = pb.StartLocalTransactionRequest(
            table_name=table.name, key=put(table.name, key("a")).row
        )
        held = ask(client, begun).transaction_id
        row_key = key("a", 1, 1, names=["PK1", "n", "PK2"])
        asked = get(index.name, row_key, transaction_id=held)
        assert refusal(client, asked) == INVALID + "Disallow read local index"
        client.delete_table(table.name)

    def test_begins_with_the_tables_partition_key(self, client: ProtocolClient) -> None:
        table = Indexed(client)
        error = table.create(meta(LOCAL, "n", "PK1", name="wrong"))
        assert error == (
            INVALID + "The first primary key column of local index 'wrong' must be 'PK1', "
            "the table's, but is 'n'."
        )
        client.delete_table(table.name)


class TestAGlobalIndex:
    def test_orders_the_whole_table_by_its_key(self, client: ProtocolClient) -> None:
        index = meta(GLOBAL, "n", "s")
        point = b"\x03\x01\x00\x00\x00m"
        cut = [
            pb.PartitionRange(begin=b"\x09", end=point),
            pb.PartitionRange(begin=point, end=b"\x0a"),
        ]
        table = Indexed(client, index, partitions=cut)
        for place in range(20):
            table.put("az"[place % 2], place, n=20 - place, s="s")
        assert [row["n"] for row in read_settled(client, index, table.name)] == list(range(1, 21))
        client.delete_table(table.name)

    def test_tells_how_far_it_is_behind(self, client: ProtocolClient) -> None:
        index = by_n(GLOBAL)
        table = Indexed(client, index)
        table.put("a", 1, n=1)
        read_settled(client, index, table.name)
        (report,) = client.call_json("RowtideListIndexes", {"table": table.name})["indexes"]
        assert (report["name"], report["type"], report["phase"]) == (
            index.name,
            "global",
            "following",
        )
        assert (report["key"], report["behind"], report["behind_s"]) == (
            ["n", "PK1", "PK2"],
            0,
            0.0,
        )
        assert [source["position"] == source["end"] for source in report["sources"]] == [True]
        client.delete_table(table.name)


class TestAnIndexOfAnOlderTable:
    @KINDS
    def test_has_the_rows_there_were(self, client: ProtocolClient, kind: int) -> None:
        table = Indexed(client)
        for start in range(0, 4500, 150):
            many = [put(table.name, key("a", i), puts(n=i % 7)) for i in range(start, start + 150)]
            ask(client, batch_write([(table.name, many)]))
        index = by_n(kind)
        assert table.create(index) == OK
        table.put("b", 1, n=99)
        table.delete("a", 0)
        found = read_settled(client, index, table.name)
        assert len(found) == 4500
        assert found[-1] == {"PK1": "b", "PK2": 1, "n": 99}
        client.delete_table(table.name)

    @KINDS
    def test_without_base_data_has_what_is_written_from_then_on(
        self, client: ProtocolClient, kind: int
    ) -> None:
        table = Indexed(client)
        for place in range(3):
            table.put("a", place, n=place)
        index = by_n(kind)
        assert table.create(index, base=False) == OK
        table.put("a", 1, n=1)
        table.update("a", 2, Put("other", "the row is written"))
        table.delete("a", 0)
        assert [row["PK2"] for row in read_settled(client, index, table.name)] == [1, 2]
        client.delete_table(table.name)

    @KINDS
    def test_may_be_dropped_and_made_again(self, client: ProtocolClient, kind: int) -> None:
        table = Indexed(client)
        table.put("a", 1, n=1)
        index = by_n(kind)
        for n in (1, 2):
            assert table.create(index) == OK
            assert [row["n"] for row in read_settled(client, index, table.name)] == [n]
            assert table.drop_index(index.name) == OK
            gone = "404 OTSObjectNotExist Requested table does not exist."
            assert refusal(client, get(index.name, key("a", 1))) == gone
            table.put("a", 1, n=n + 1)
        client.delete_table(table.name)


def make_index(keys: int = 1, attributes: int = 0, *, name: str = "i", first: str = "d") -> Any:
    return pb.IndexMeta(
        name=name,
        primary_key=[f"{first}{n}" for n in range(keys)],
        defined_column=[f"a{n}" for n in range(attributes)],
    )


KEYS = INVALID + "The number of primary key columns must be in range: [1, 4] in index."
ATTRIBUTES = INVALID + "The number of attribute columns must be in range: [0, 32] in index."


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (make_index(keys=0), KEYS),
            (make_index(keys=5), KEYS),
            (make_index(attributes=33), ATTRIBUTES),
            (make_index(name="3i"), INVALID + "Invalid table name: '3i'."),
            (make_index(first="#"), INVALID + "Invalid column name: '#0'."),
        ],
    )
    def test_an_index_beyond_the_limits_even_of_a_table_that_is_not_there(
        self, client: ProtocolClient, asked: pb.IndexMeta, expected: str
    ) -> None:
        request = pb.CreateIndexRequest(main_table_name="no_such_table", index_meta=asked)
        assert refusal(client, request) == expected
        table = Indexed(client)
        named = _name_table(table.request(by_n(LOCAL), asked), "other")
        assert refusal(client, named) == expected
        client.delete_table(table.name)

    def test_an_index_of_a_table_that_is_not_there(self, client: ProtocolClient) -> None:
        gone = "404 OTSObjectNotExist Requested table does not exist."
        request = pb.CreateIndexRequest(main_table_name="no_such_table", index_meta=by_n(GLOBAL))
        assert refusal(client, request) == gone
        dropped = pb.DropIndexRequest(main_table_name="no_such_table", index_name="i")
        assert refusal(client, dropped) == gone

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (meta(GLOBAL, "m"), "Column 'm' of index '{name}' is not a defined column."),
            (
                meta(GLOBAL, "n", columns=["m"]),
                "Column 'm' of index '{name}' is not a defined column.",
            ),
            (meta(GLOBAL, "d"), "VT_DOUBLE is an invalid type for the primary key."),
            (meta(GLOBAL, "n", columns=["n"]), "Duplicated column name: 'n' in index '{name}'."),
            (meta(GLOBAL, "n", "n"), "Duplicated column name: 'n' in index '{name}'."),
        ],
    )
    def test_an_index_that_does_not_fit_its_table(
        self, client: ProtocolClient, asked: pb.IndexMeta, expected: str
    ) -> None:
        table = Indexed(client)
        wanted = INVALID + expected.format(name=asked.name)
        assert table.create(asked) == wanted
        assert refusal(client, _name_table(table.request(asked), "other")) == wanted
        client.delete_table(table.name)

    def test_a_name_that_is_taken(self, client: ProtocolClient) -> None:
        taken = by_n(GLOBAL)
        table = Indexed(client, taken)
        exists = "409 OTSObjectAlreadyExist Requested table already exists."
        assert table.create(by_n(LOCAL, name=taken.name)) == exists
        assert table.create(by_n(LOCAL, name=table.name)) == exists
        assert refusal(client, _name_table(table.request(), taken.name)) == exists
        client.delete_table(table.name)

    def test_more_indexes_than_five_are_refused(self, client: ProtocolClient) -> None:
        table = Indexed(client)
        for _ in range(5):
            assert table.create(by_n(LOCAL), base=False) == OK
        assert (
            table.create(by_n(LOCAL)) == INVALID + "Number of index per table exceeds the quota:5."
        )
        client.delete_table(table.name)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"max_versions": 2}, "The max_versions of a table with an index must be 1, but is 2."),
            (
                {"time_to_live": 86400},
                "The time_to_live of a table with an index must be -1, but is 86400.",
            ),
        ],
    )
    def test_options_under_which_an_index_cannot_agree(
        self, client: ProtocolClient, options: dict[str, Any], expected: str
    ) -> None:
        whole = pb.TableOptions(**{"max_versions": 1, "time_to_live": -1, **options})
        table = Indexed(client, table_options=whole)
        assert table.create(by_n(LOCAL)) == INVALID + expected
        plain = pb.TableOptions(max_versions=1, time_to_live=-1)
        ask(client, pb.UpdateTableRequest(table_name=table.name, table_options=plain))
        assert table.create(by_n(LOCAL)) == OK
        again = pb.UpdateTableRequest(table_name=table.name, table_options=whole)
        assert refusal(client, again) == INVALID + expected
        client.delete_table(table.name)

    def test_every_change_by_the_indexs_own_name(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        expected = INVALID + f"Table '{index.name}' is an index: it can only be read, and dropped."
        names = [c.name for c in client.describe_table(index.name).table_meta.primary_key]
        row_key = key(*({"PK1": "a"}.get(n, 1) for n in names), names=names)
        name = index.name
        for request in [
            put(name, row_key),
            update(name, row_key, puts(s="x")),
            delete(name, row_key),
            batch_write([(name, [put(name, row_key)])]),
            pb.UpdateTableRequest(table_name=name, table_options=pb.TableOptions(max_versions=1)),
            pb.DeleteTableRequest(table_name=name),
            pb.CreateIndexRequest(main_table_name=name, index_meta=by_n(GLOBAL)),
            pb.AddDefinedColumnRequest(
                table_name=name, columns=[pb.DefinedColumnSchema(name="x", type=pb.DCT_STRING)]
            ),
            pb.StartLocalTransactionRequest(table_name=name, key=put(name, row_key[:1]).row),
        ]:
            assert refusal(client, request) == expected, type(request).__name__

    def test_a_value_of_another_type_than_the_defined_one(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        expected = INVALID + "Invalid column type for column n expect VT_INTEGER actual VT_STRING"
        assert refusal(client, put(table.name, key("a", 1), puts(n="1"))) == expected
        table.put("a", 1, d="no index looks at it")
        assert read_settled(client, index, table.name) == []

    def test_a_value_too_long_for_a_key(self, client: ProtocolClient) -> None:
        table = Indexed(client, meta(GLOBAL, "s", columns=["b"]))
        expected = INVALID + (
            "The length of primary key column: 's' exceeds the MaxLength:1024 with "
            "CurrentLength:1025."
        )
        assert refusal(client, put(table.name, key("a", 1), puts(s="x" * 1025))) == expected
        table.put("a", 1, s="x" * 1024, b=b"y" * 2048)
        client.delete_table(table.name)

    def test_a_defined_column_in_use_stays(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        request = pb.DeleteDefinedColumnRequest(table_name=table.name, columns=["d", "s"])
        expected = INVALID + f"Defined column 's' is used by index '{index.name}'."
        assert refusal(client, request) == expected

    def test_an_index_that_is_not_there(self, client: ProtocolClient, table: Indexed) -> None:
        assert (
            table.drop_index("nothing") == "404 OTSObjectNotExist Requested table does not exist."
        )


def _name_table(request: pb.CreateTableRequest, name: str) -> pb.CreateTableRequest:
    request.table_meta.table_name = name
    return request


NAMED_KEYS = [
    *((GLOBAL, keys) for keys in ("n", "s n", "n PK1", "n PK1 PK2", "n PK2", "PK2")),
    *((LOCAL, keys) for keys in ("PK1 n", "PK1", "PK1 PK2 n", "PK1 s PK2", "PK1 n s")),
]


class TestHowItIsShown:
    @pytest.mark.parametrize("with_table", [True, False], ids=["CreateTable", "CreateIndex"])
    @pytest.mark.parametrize("case", NAMED_KEYS, ids=str)
    def test_by_its_table_with_the_key_that_was_asked_for(
        self, client: ProtocolClient, case: tuple[int, str], *, with_table: bool
    ) -> None:
        kind, keys = case
        index = meta(kind, *keys.split())
        table = Indexed(client, *([index] if with_table else []))
        if not with_table:
            assert table.create(index) == "ok"
        (description,) = client.describe_table(table.name).index_metas
        own = [c.name for c in client.describe_table(index.name).table_meta.primary_key]
        client.delete_table(table.name)
        assert list(description.primary_key) == keys.split()
        assert own == [*keys.split(), *(c for c in ("PK1", "PK2") if c not in keys.split())]

    @KINDS
    def test_by_its_table_with_all_else(self, client: ProtocolClient, kind: int) -> None:
        index = by_n(kind, columns=["s", "d"])
        table = Indexed(client, index)
        (description,) = client.describe_table(table.name).index_metas
        assert list(description.defined_column) == ["s", "d"]
        assert (description.index_type, description.index_sync_phase) == (kind, pb.ISP_INCR)
        assert description.index_update_mode == index.index_update_mode
        client.delete_table(table.name)

    def test_by_its_own_name_as_a_table(
        self, client: ProtocolClient, table: Indexed, index: pb.IndexMeta
    ) -> None:
        described = client.describe_table(index.name)
        columns = {(c.name, c.type) for c in described.table_meta.primary_key}
        assert columns == {("n", pb.INTEGER), ("PK1", pb.STRING), ("PK2", pb.INTEGER)}
        assert described.table_options.max_versions == 1
        assert index.name not in client.list_table()
        assert table.name in client.list_table()

    def test_a_stream_tells_of_rows_alone(self, client: ProtocolClient) -> None:
        spec = pb.StreamSpecification(enable_stream=True, expiration_time=24)
        table = Indexed(client, by_n(LOCAL), by_n(GLOBAL), stream_spec=spec)
        for n in range(5):
            table.put("a", 1, n=n)
        assert table.create(by_n(LOCAL)) == OK
        (stream,) = ask(client, pb.ListStreamRequest(table_name=table.name)).streams
        (shard,) = ask(client, pb.DescribeStreamRequest(stream_id=stream.stream_id)).shards
        at = ask(
            client,
            pb.GetShardIteratorRequest(stream_id=stream.stream_id, shard_id=shard.shard_id),
        ).shard_iterator
        page = ask(client, pb.GetStreamRecordRequest(shard_iterator=at))
        assert len(page.stream_records) == 5
        client.delete_table(table.name)
