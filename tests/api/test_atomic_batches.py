"""BatchWriteRow with ``is_atomic``: every row of a table or none."""

from __future__ import annotations

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Increment
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    OK,
    ask,
    batch_write,
    delete,
    key,
    outcomes,
    put,
    puts,
    read_row,
    shown,
    update,
)
from tests.api.conftest import MakeTable
from tests.api.test_stream import Follower, enable_stream

pytestmark = pytest.mark.system

MUST_EXIST = pb.Condition(row_existence=pb.EXPECT_EXIST)
FAILED = "OTSConditionCheckFail Condition check failed."


@pytest.fixture
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER."""
    return make_table(stream=enable_stream())


def test_all_rows_are_written_in_one_piece(client: ProtocolClient, table: str) -> None:
    follower = Follower(client, table)
    batch = batch_write(
        [
            (
                table,
                [
                    put(table, key("a", 1), puts(v=1)),
                    update(table, key("a", 1), [Increment("v", 1)]),
                    delete(table, key("a", 2)),
                ],
            )
        ],
        is_atomic=True,
    )
    answer = ask(client, batch)
    assert outcomes(answer) == [[OK] * 3]
    used = [row.consumed.capacity_unit for row in answer.tables[0].rows]
    assert [(unit.read, unit.write) for unit in used] == [(0, 1), (0, 1), (0, 1)]
    assert shown(read_row(client, table, key("a", 1))) == {"v": 2}
    assert [record.action for record in follower.read()] == [1, 2, 3]


def test_one_failed_condition_fails_all_with_its_code(client: ProtocolClient, table: str) -> None:
    batch = batch_write(
        [
            (
                table,
                [
                    put(table, key("a", 1), puts(v=1)),
                    put(table, key("a", 2), puts(v=1), condition=MUST_EXIST),
                    put(table, key("a", 3), puts(v=1)),
                ],
            )
        ],
        is_atomic=True,
    )
    other = f"{FAILED[:22]}The atomic batch is not applied, its row 1 fails: {FAILED[22:]}"
    assert outcomes(ask(client, batch)) == [[other, FAILED, other]]
    assert [read_row(client, table, key("a", number)) for number in (1, 2, 3)] == [None] * 3
    assert Follower(client, table).read() == []


def test_a_condition_on_a_row_that_comes_twice_fails_all(
    client: ProtocolClient, table: str
) -> None:
    text = "Repeated rows do not support row exist expectation check in BatchModify."
    writes = [put(table, key("a", 1)), update(table, key("a", 1), puts(v=1), condition=MUST_EXIST)]
    assert outcomes(ask(client, batch_write([(table, writes)], is_atomic=True))) == [
        [
            f"OTSParameterInvalid The atomic batch is not applied, its row 1 fails: {text}",
            f"OTSParameterInvalid {text}",
        ]
    ]
    assert read_row(client, table, key("a", 1)) is None


def test_rows_of_two_partition_keys_are_out_of_scope(client: ProtocolClient, table: str) -> None:
    writes = [put(table, key(str(number), 1)) for number in range(3)]
    expected = "OTSDataOutOfRange Data out of scope of atomic. Atomic PartKey:0. Data PartKey:1"
    assert outcomes(ask(client, batch_write([(table, writes)], is_atomic=True))) == [[expected] * 3]
    assert read_row(client, table, key("0", 1)) is None


def test_a_row_with_a_wrong_key_fails_all(client: ProtocolClient, table: str) -> None:
    writes = [put(table, key("a", 1)), put(table, key("a"))]
    expected = "Validate PK size fail. Input: 1, Meta: 2."
    assert outcomes(ask(client, batch_write([(table, writes)], is_atomic=True))) == [
        [
            f"OTSInvalidPK The atomic batch is not applied, its row 1 fails: {expected}",
            f"OTSInvalidPK {expected}",
        ]
    ]
    assert read_row(client, table, key("a", 1)) is None


def test_each_table_stands_alone(client: ProtocolClient, table: str, make_table: MakeTable) -> None:
    other = make_table()
    bad = put(table, key("a", 2), condition=MUST_EXIST)
    batch = batch_write(
        [
            (table, [put(table, key("a", 1)), bad]),
            (other, [put(other, key("b", 1))]),
            ("absent", [put("absent", key("c", 1))]),
        ],
        is_atomic=True,
    )
    results = outcomes(ask(client, batch))
    assert results[1:] == [[OK], ["OTSObjectNotExist Requested table does not exist."]]
    assert OK not in results[0]
    assert read_row(client, other, key("b", 1)) is not None


def test_not_atomic_is_row_by_row(client: ProtocolClient, table: str) -> None:
    writes = [put(table, key("a", 1)), put(table, key("b", 2), condition=MUST_EXIST)]
    answer = ask(client, batch_write([(table, writes)], is_atomic=False))
    assert outcomes(answer) == [[OK, FAILED]]
