"""Local transactions: what is seen inside and outside, what is refused, what the stream shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Increment, Key, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
    batch_write,
    delete,
    get,
    get_range,
    key,
    outcomes,
    put,
    puts,
    read_row,
    refusal,
    rows,
    shown,
    units,
    update,
)
from tests.api.conftest import MakeTable
from tests.api.test_stream import Follower, enable_stream
from tests.support.tables import create_request

pytestmark = pytest.mark.system

CONFLICT = "409 OTSRowOperationConflict Data is being modified by the other request."
MISSING = "404 OTSSessionNotExist Session not exist or may be timeout."
INVALID = "400 OTSParameterInvalid TransactionID is invalid."
BESIDE = "OTSDataOutOfRange Data out of scope of transaction. Transaction PartKey:a. Data PartKey:b"


@pytest.fixture
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER, with the row a, 1."""
    return make_table(stream=enable_stream())


def start_request(table: str, *values: Any) -> pb.StartLocalTransactionRequest:
    """Return a request to hold a partition key."""
    return pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key(*values)))


def start(client: ProtocolClient, table: str, value: Any = "a") -> str:
    """Open a transaction."""
    answer = ask(client, start_request(table, value))
    return str(answer.transaction_id)


def commit(client: ProtocolClient, transaction_id: str) -> str:
    """Commit; return ok or the refusal."""
    return refusal(client, pb.CommitTransactionRequest(transaction_id=transaction_id))


def abort(client: ProtocolClient, transaction_id: str) -> str:
    """Abort; return ok or the refusal."""
    return refusal(client, pb.AbortTransactionRequest(transaction_id=transaction_id))


@contextmanager
def open_transaction(client: ProtocolClient, table: str, value: Any = "a") -> Iterator[str]:
    """Open a transaction that is aborted at the end, so that a failure frees the key."""
    transaction_id = start(client, table, value)
    yield transaction_id
    assert abort(client, transaction_id) == OK


def read_partition(
    client: ProtocolClient, table: str, transaction_id: str | None = None
) -> list[Any]:
    """Return the second key column of the rows of partition ``a``, read forward and backward."""
    low, high = key("a", INF_MIN), key("a", INF_MAX)
    within = {"transaction_id": transaction_id}
    forward = rows(ask(client, get_range(table, low, high, **within)).rows)
    turned = get_range(table, high, low, direction=pb.BACKWARD, **within)
    backward = rows(ask(client, turned).rows)
    assert forward == backward[::-1]
    return [row.key[1][1] for row in forward]


def read_values(
    client: ProtocolClient, table: str, row: Key, transaction_id: str | None = None
) -> Any:
    """Return a row's values, as the transaction or as everybody reads it."""
    return shown(read_row(client, table, row, transaction_id=transaction_id))


def test_what_is_written_shows_inside_at_once_and_outside_at_the_commit(
    client: ProtocolClient, table: str
) -> None:
    one, two = key("a", 1), key("a", 2)
    ask(client, put(table, one, puts(v=1)))
    transaction_id = start(client, table)
    answer = ask(client, put(table, one, puts(v=2), transaction_id=transaction_id))
    assert units(answer) == (0, 1)
    ask(client, update(table, two, [Increment("n", 5)], transaction_id=transaction_id))
    assert read_values(client, table, one, transaction_id) == {"v": 2}
    assert read_values(client, table, two, transaction_id) == {"n": 5}
    assert read_partition(client, table, transaction_id) == [1, 2]
    assert read_values(client, table, one) == {"v": 1}
    assert read_partition(client, table) == [1]
    assert commit(client, transaction_id) == OK
    assert read_values(client, table, one) == {"v": 2}
    assert read_values(client, table, two) == {"n": 5}
    assert commit(client, transaction_id) == OK, "an answer may have been lost"


def test_what_is_aborted_never_shows(client: ProtocolClient, table: str) -> None:
    row = key("a", 1)
    ask(client, put(table, row, puts(v=1)))
    transaction_id = start(client, table)
    ask(client, delete(table, row, transaction_id=transaction_id))
    assert read_partition(client, table, transaction_id) == []
    assert read_partition(client, table) == [1]
    assert abort(client, transaction_id) == OK
    assert read_partition(client, table) == [1]


def test_a_range_within_goes_on_where_its_page_ended(client: ProtocolClient, table: str) -> None:
    for number in range(0, 20, 2):
        ask(client, put(table, key("a", number), puts(v=number)))
    with open_transaction(client, table) as transaction_id:
        for number in range(1, 20, 2):
            ask(client, put(table, key("a", number), transaction_id=transaction_id))
        ask(client, delete(table, key("a", 4), transaction_id=transaction_id))
        found: list[Any] = []
        start_key: Any = encode_row(key("a", INF_MIN))
        while start_key:
            asked = get_range(table, key("a", 0), key("a", INF_MAX), limit=3)
            asked.transaction_id = transaction_id
            asked.inclusive_start_primary_key = start_key
            answer = ask(client, asked)
            found += [row.key[1][1] for row in rows(answer.rows)]
            start_key = answer.next_start_primary_key
        assert found == [number for number in range(20) if number != 4]


def test_others_cannot_write_the_partition_key_but_read_it(
    client: ProtocolClient, table: str
) -> None:
    row, beside = key("a", 1), key("b", 1)
    ask(client, put(table, row, puts(v=1)))
    with open_transaction(client, table):
        assert refusal(client, put(table, row, puts(v=2))) == CONFLICT
        assert refusal(client, update(table, key("a", 7), puts(v=2))) == CONFLICT
        assert refusal(client, delete(table, row)) == CONFLICT
        assert refusal(client, start_request(table, "a")) == CONFLICT
        both = batch_write([(table, [put(table, row), put(table, beside, puts(v=1))])])
        assert outcomes(ask(client, both)) == [[CONFLICT[4:], OK]]
        assert read_values(client, table, row) == {"v": 1}
        assert start(client, table, "b") != ""
    ask(client, put(table, row, puts(v=3)))


def test_a_batch_within_writes_its_rows_one_by_one(client: ProtocolClient, table: str) -> None:
    transaction_id = start(client, table)
    failing = put(table, key("a", 1), condition=pb.Condition(row_existence=pb.EXPECT_EXIST))
    batch = batch_write(
        [(table, [put(table, key("a", 2), puts(v=2)), failing, put(table, key("b", 1))])],
        transaction_id=transaction_id,
    )
    assert outcomes(ask(client, batch)) == [
        [OK, "OTSConditionCheckFail Condition check failed.", BESIDE]
    ]
    assert read_partition(client, table) == []
    assert commit(client, transaction_id) == OK
    assert read_partition(client, table) == [2]


def test_an_atomic_batch_within_is_refused_row_by_row(client: ProtocolClient, table: str) -> None:
    text = "An atomic BatchWriteRow is not supported in a local transaction."
    writes = [
        (table, [put(table, key("a", 1)), delete(table, key("b", 1)), put(table, key("a"))]),
        ("absent", [put("absent", key("a", 1))]),
    ]
    with open_transaction(client, table) as transaction_id:
        fields = {"transaction_id": transaction_id, "is_atomic": True}
        expected = f"OTSParameterInvalid {text}"
        assert outcomes(ask(client, batch_write(writes, **fields))) == [[expected] * 3, [expected]]
        assert read_partition(client, table, transaction_id) == []
        fields["is_atomic"] = False
        assert outcomes(ask(client, batch_write(writes[:1], **fields)))[0][0] == OK
        assert read_partition(client, table, transaction_id) == [1]


REFUSED: dict[str, tuple[Callable[[str, str], Any], str]] = {
    "a put beside": (lambda t, i: put(t, key("b", 1), transaction_id=i), f"400 {BESIDE}"),
    "an update beside": (
        lambda t, i: update(t, key("b", 1), puts(v=1), transaction_id=i),
        f"400 {BESIDE}",
    ),
    "a delete beside": (lambda t, i: delete(t, key("b", 1), transaction_id=i), f"400 {BESIDE}"),
    "a read beside": (lambda t, i: get(t, key("b", 1), transaction_id=i), f"400 {BESIDE}"),
    "a range that ends beside": (
        lambda t, i: get_range(t, key("a", 1), key("b", 1), transaction_id=i),
        f"400 {BESIDE}",
    ),
    "a range of everything": (
        lambda t, i: get_range(t, key("a", 1), key(INF_MAX, INF_MAX), transaction_id=i),
        f"400 {BESIDE.removesuffix('b')}INF_MAX",
    ),
    "a failed condition": (
        lambda t, i: put(
            t,
            key("a", 1),
            condition=pb.Condition(row_existence=pb.EXPECT_EXIST),
            transaction_id=i,
        ),
        "403 OTSConditionCheckFail Condition check failed.",
    ),
    "a wrong key": (
        lambda t, i: put(t, key("a"), transaction_id=i),
        "400 OTSInvalidPK Validate PK size fail. Input: 1, Meta: 2.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_the_transaction_open(
    client: ProtocolClient, table: str, case: str
) -> None:
    request, expected = REFUSED[case]
    with open_transaction(client, table) as transaction_id:
        ask(client, put(table, key("a", 9), transaction_id=transaction_id))
        assert refusal(client, request(table, transaction_id)) == expected
        assert read_partition(client, table, transaction_id) == [9]


def test_another_table_is_beside_it(
    client: ProtocolClient, table: str, make_table: MakeTable
) -> None:
    other = make_table()
    with open_transaction(client, table) as transaction_id:
        answer = refusal(client, put(other, key("a", 1), transaction_id=transaction_id))
    assert answer == (
        "400 OTSDataOutOfRange Data out of scope of transaction. "
        f"Transaction Table:{table}. Data Table:{other}"
    )


IDS: dict[str, tuple[str, str]] = {
    "no id of ours": ("not existed transaction id", INVALID),
    "half an id": ("s1-0123456789abcdef", INVALID),
    "an id of no shard": (f"s999999999-{'0' * 32}", MISSING),
}


@pytest.mark.parametrize("case", IDS)
def test_an_unknown_id_is_refused_everywhere(client: ProtocolClient, table: str, case: str) -> None:
    transaction_id, expected = IDS[case]
    row = key("a", 1)
    within: dict[str, Any] = {"transaction_id": transaction_id}
    requests = [
        put(table, row, **within),
        update(table, row, puts(v=1), **within),
        delete(table, row, **within),
        get(table, row, **within),
        get_range(table, row, key("a", 2), **within),
        batch_write([(table, [put(table, row)])], **within),
        pb.CommitTransactionRequest(transaction_id=transaction_id),
        pb.AbortTransactionRequest(transaction_id=transaction_id),
    ]
    assert [refusal(client, request) for request in requests] == [expected] * len(requests)


def test_a_finished_id_is_refused(client: ProtocolClient, table: str) -> None:
    finished = [start(client, table), ""]
    assert commit(client, finished[0]) == OK
    finished[1] = start(client, table)
    assert abort(client, finished[1]) == OK
    for transaction_id in finished:
        writing = put(table, key("a", 1), transaction_id=transaction_id)
        assert refusal(client, writing) == MISSING
        assert refusal(client, get(table, key("a", 1), transaction_id=transaction_id)) == MISSING
        assert abort(client, transaction_id) == MISSING
    assert commit(client, finished[1]) == MISSING


def test_an_empty_id_is_no_id(client: ProtocolClient, table: str) -> None:
    assert commit(client, "") == INVALID
    assert abort(client, "") == INVALID


STARTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "two key columns": (
        ("a", 1),
        "400 OTSParameterInvalid StartLocalTransaction support only one primary key.",
    ),
    "a key of another type": (
        (1,),
        "400 OTSInvalidPK Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.",
    ),
    "an infinite key": (
        (INF_MIN,),
        "400 OTSParameterInvalid VT_INF_MIN is an invalid type for the primary key.",
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_a_start_is_refused(client: ProtocolClient, table: str, case: str) -> None:
    values, expected = STARTS[case]
    assert refusal(client, start_request(table, *values)) == expected


def test_a_start_on_no_table_is_refused(client: ProtocolClient) -> None:
    expected = "404 OTSObjectNotExist Requested table does not exist."
    assert refusal(client, start_request("absent", "a")) == expected
    expected = "400 OTSParameterInvalid Invalid table name: ''."
    assert refusal(client, start_request("", "a")) == expected


def test_a_table_may_disallow_transactions(client: ProtocolClient) -> None:
    name = "no_transactions"
    ask(client, create_request(name, [("PK1", pb.STRING)], enable_local_txn=False))
    try:
        assert refusal(client, start_request(name, "a")) == (
            "400 OTSParameterInvalid Try to call method using explicit transaction on "
            "explicit-transaction-disabled table."
        )
    finally:
        client.delete_table(name)


def test_a_dropped_table_ends_its_transactions(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    name = "dropped_under_a_transaction"
    request = create_request(name, [("PK1", pb.STRING)])
    ask(client, request)
    transaction_id = start(client, name)
    ask(client, put(name, key("a"), puts(v=1), transaction_id=transaction_id))
    client.delete_table(name)
    ask(client, request)
    try:
        assert commit(client, transaction_id) == MISSING
        assert refusal(client, put(name, key("a"), puts(v=2))) == OK
    finally:
        client.delete_table(name)


def test_the_stream_shows_a_transaction_at_its_commit_and_in_one_piece(
    client: ProtocolClient, table: str
) -> None:
    follower = Follower(client, table)
    transaction_id = start(client, table)
    ask(client, put(table, key("a", 1), puts(v=1), transaction_id=transaction_id))
    ask(client, put(table, key("b", 1), puts(v=1)))
    ask(client, update(table, key("a", 1), [Increment("v", 4)], transaction_id=transaction_id))
    ask(client, delete(table, key("a", 2), transaction_id=transaction_id))
    dropped = start(client, table, "c")
    ask(client, put(table, key("c", 1), transaction_id=dropped))
    assert [record.key for record in follower.read()] == [("b", 1)]
    assert commit(client, transaction_id) == OK
    assert abort(client, dropped) == OK
    records = follower.read()
    assert [(record.action, record.key) for record in records] == [
        (pb.PUT_ROW, ("a", 1)),
        (pb.UPDATE_ROW, ("a", 1)),
        (pb.DELETE_ROW, ("a", 2)),
    ]
    assert records[1].cells[0].value == 5, "an increment shows as its result"
    stamps = [record.stamp_us for record in records]
    assert stamps == sorted(set(stamps))
    assert follower.read() == [], "the record that remembers the commit is hidden"
