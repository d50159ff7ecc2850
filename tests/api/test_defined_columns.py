"""Defined columns: created with a table or added, shown, deleted, checked against their limits."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import OK, ask, key, put, read_row, refusal, shown
from tests.api.conftest import MakeTable
from tests.support.tables import create_request

pytestmark = pytest.mark.system

ALL = [
    ("i", pb.DCT_INTEGER),
    ("d", pb.DCT_DOUBLE),
    ("o", pb.DCT_BOOLEAN),
    ("s", pb.DCT_STRING),
    ("b", pb.DCT_BLOB),
]


def schema(columns: list[tuple[str, Any]]) -> list[pb.DefinedColumnSchema]:
    return [pb.DefinedColumnSchema(name=name, type=kind) for name, kind in columns]


def many(count: int, first: int = 0) -> list[tuple[str, Any]]:
    return [(f"d{n}", pb.DCT_STRING) for n in range(first, first + count)]


def create(name: str, columns: list[tuple[str, Any]]) -> pb.CreateTableRequest:
    return create_request(name, [("PK1", pb.STRING)], defined=columns)


def add(table: str, columns: list[tuple[str, Any]]) -> pb.AddDefinedColumnRequest:
    return pb.AddDefinedColumnRequest(table_name=table, columns=schema(columns))


def drop(table: str, *names: str) -> pb.DeleteDefinedColumnRequest:
    return pb.DeleteDefinedColumnRequest(table_name=table, columns=names)


def list_defined(client: ProtocolClient, table: str) -> list[tuple[str, Any]]:
    return [(c.name, c.type) for c in client.describe_table(table).table_meta.defined_column]


def test_a_table_shows_the_columns_it_was_made_with(client: ProtocolClient) -> None:
    ask(client, create("defined_at_birth", ALL))
    try:
        assert list_defined(client, "defined_at_birth") == ALL
    finally:
        client.delete_table("defined_at_birth")


def test_columns_are_added_at_the_end_and_deleted_by_name(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, add(table, ALL[:2]))
    ask(client, add(table, ALL[2:]))
    assert list_defined(client, table) == ALL
    ask(client, drop(table, "d", "b"))
    assert list_defined(client, table) == [ALL[0], ALL[2], ALL[3]]


def test_other_changes_of_a_table_leave_its_defined_columns(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, add(table, ALL))
    client.update_table(table, options=pb.TableOptions(max_versions=5))
    assert list_defined(client, table) == ALL


def test_thirty_two_columns_are_taken_and_no_more(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    expected = "400 OTSParameterInvalid The number of defined columns must be in range: [0, 32]."
    assert refusal(client, add(table, many(33))) == expected
    ask(client, add(table, many(32)))
    assert refusal(client, add(table, [("more", pb.DCT_STRING)])) == expected
    assert len(list_defined(client, table)) == 32


def test_a_table_with_more_columns_is_not_made(client: ProtocolClient) -> None:
    expected = "400 OTSParameterInvalid The number of defined columns must be in range: [0, 32]."
    assert refusal(client, create("too_many_defined", many(33))) == expected
    assert "too_many_defined" not in client.list_table()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([("#a", pb.DCT_STRING)], "Invalid column name: '#a'."),
        ([("", pb.DCT_STRING)], "Invalid column name: ''."),
        ([("PK1", pb.DCT_STRING)], "Duplicated column name: 'PK1'."),
        ([("a", pb.DCT_STRING), ("a", pb.DCT_BLOB)], "Duplicated column name: 'a'."),
        ([("i", pb.DCT_INTEGER)], "Duplicated column name: 'i'."),
        ([], "No defined column is specified."),
    ],
)
def test_a_column_that_cannot_be_added_is_told(
    client: ProtocolClient, make_table: MakeTable, columns: list[tuple[str, Any]], text: str
) -> None:
    table = make_table()
    ask(client, add(table, ALL))
    assert refusal(client, add(table, columns)) == f"400 OTSParameterInvalid {text}"
    assert list_defined(client, table) == ALL


def test_a_column_without_a_type_is_refused(client: ProtocolClient, make_table: MakeTable) -> None:
    request = pb.AddDefinedColumnRequest(table_name=make_table())
    request.columns.add(name="a")
    expected = "400 OTSParameterInvalid Invalid type of defined column 'a': 0."
    assert refusal(client, request) == expected


def test_a_column_that_is_not_defined_cannot_be_deleted(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, add(table, ALL))
    expected = "400 OTSParameterInvalid Defined column does not exist: 'x'."
    assert refusal(client, drop(table, "i", "x")) == expected
    assert list_defined(client, table) == ALL
    assert refusal(client, drop(table)).endswith("No defined column is specified.")


def test_a_missing_table_is_told(client: ProtocolClient) -> None:
    expected = "404 OTSObjectNotExist Requested table does not exist."
    assert refusal(client, add("no_such_table", ALL)) == expected
    assert refusal(client, drop("no_such_table", "i")) == expected
    assert refusal(client, add("3t", ALL)) == "400 OTSParameterInvalid Invalid table name: '3t'."


def test_single_writes_are_not_held_to_the_types(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, add(table, ALL))
    row = key("a", 1)
    assert refusal(client, put(table, row, [Put("i", "text")])) == OK
    assert shown(read_row(client, table, row)) == {"i": "text"}
