"""BulkImport and BulkExport, and GetRange answered as a matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Change, Delete, Increment, Key, Put, Special, encode_row
from rowtide.core.protocol.row_matrix import NULL, RowMatrix, decode
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
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
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER), KeyColumn("PK3", BINARY))
INVALID = "400 OTSParameterInvalid "


def at(number: int) -> Key:
    return key(str(number), number, str(number).encode())


def values(number: int) -> list[Put]:
    return puts(DC1=str(number), DC2=number, DC3=str(number).encode())


@pytest.fixture
def table(client: ProtocolClient, make_table: MakeTable) -> str:
    """A table with three key columns and three defined ones."""
    name = make_table(KEY)
    columns = [("DC1", pb.DCT_STRING), ("DC2", pb.DCT_INTEGER), ("DC3", pb.DCT_BLOB)]
    request = pb.AddDefinedColumnRequest(table_name=name)
    for column, kind in columns:
        request.columns.add(name=column, type=kind)
    ask(client, request)
    return name


Import = tuple[Any, Key, Sequence[Change]]


def imports(table: str, changes: Iterable[Import]) -> pb.BulkImportRequest:
    request = pb.BulkImportRequest(table_name=table)
    for kind, row_key, cells in changes:
        deleted = kind == pb.DELETE
        request.rows.add(type=kind, row_change=encode_row(row_key, cells, deleted=deleted))
    return request


def results(answer: pb.BulkImportResponse) -> list[str]:
    return [OK if row.is_ok else f"{row.error.code} {row.error.message}" for row in answer.rows]


# BulkImport.


def test_rows_are_put_updated_and_deleted_and_metered_by_bytes(
    client: ProtocolClient, table: str
) -> None:
    now_ms = time.time_ns() // 1_000_000
    for number in (2010, 2020):
        ask(client, put(table, at(number), puts(old=1)))
    request = imports(
        table,
        [
            (pb.PUT, at(2000), [Put("DC1", "2000", now_ms), *values(2000)[1:]]),
            (pb.UPDATE, at(2010), puts(DC4="2010", DC5=2010, DC6=b"2010")),
            (pb.DELETE, at(2020), ()),
        ],
    )
    answer = ask(client, request)
    assert answer.table_name == table
    assert results(answer) == [OK, OK, OK]
    used = [row.consumed for row in answer.rows]
    assert [(u.capacity_unit.read, u.capacity_unit.write) for u in used] == [(0, 0)] * 3
    sizes = [(u.capacity_data_size.read_size, u.capacity_data_size.write_size) for u in used]
    assert sizes == [(0, 50), (0, 50), (0, 25)]
    assert shown(read_row(client, table, at(2000))) == {"DC1": "2000", "DC2": 2000, "DC3": b"2000"}
    updated = {"old": 1, "DC4": "2010", "DC5": 2010, "DC6": b"2010"}
    assert shown(read_row(client, table, at(2010))) == updated
    assert read_row(client, table, at(2020)) is None


def test_rows_of_one_key_are_applied_in_request_order(client: ProtocolClient, table: str) -> None:
    changes: list[Import] = [
        (pb.PUT, at(1), puts(n=1)),
        (pb.UPDATE, at(1), [Increment("n", 4)]),
        (pb.DELETE, at(2), ()),
        (pb.PUT, at(2), puts(a=1, b=2)),
        (pb.UPDATE, at(2), [Delete("a")]),
    ]
    assert results(ask(client, imports(table, changes))) == [OK] * 5
    assert shown(read_row(client, table, at(1))) == {"n": 5}
    assert shown(read_row(client, table, at(2))) == {"b": 2}


def test_a_bad_row_does_not_spoil_the_others(client: ProtocolClient, table: str) -> None:
    mistyped = [*puts(DC1=""), *puts(DC2=0), Put("DC2", b"0")]
    changes: list[Import] = [
        (pb.PUT, at(10), values(10)),
        (pb.PUT, key("0", "0", b"0"), values(0)),
        (pb.PUT, key("0", 0), values(0)),
        (pb.PUT, key("0", 0, b"0", names=["PK1", "PK3", "PK2"]), values(0)),
        (pb.PUT, at(11), mistyped),
        (pb.UPDATE, at(12), [Increment("DC1", 1)]),
        (pb.UPDATE, at(10), [Delete("DC1")]),
    ]
    assert results(ask(client, imports(table, changes))) == [
        OK,
        "OTSInvalidPK Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
        "OTSInvalidPK Validate PK size fail. Input: 2, Meta: 3.",
        "OTSInvalidPK Validate PK name fail. Input: PK3, Meta: PK2.",
        "OTSParameterInvalid Invalid column type for column DC2 expect VT_INTEGER actual VT_BLOB",
        "OTSParameterInvalid Invalid column type for column DC1 expect VT_STRING actual VT_INTEGER",
        OK,
    ]
    assert shown(read_row(client, table, at(10))) == {"DC2": 10, "DC3": b"10"}
    assert read_row(client, table, at(11)) is None


def test_a_missing_table_is_each_rows_error(client: ProtocolClient) -> None:
    answer = ask(client, imports("no_such_table", [(pb.PUT, at(n), values(n)) for n in (1, 2)]))
    assert results(answer) == ["OTSObjectNotExist Requested table does not exist."] * 2


LONG = "x" * (2 * 1024 * 1024 + 1)


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([Put("#a", 1)], "Invalid column name: '#a'."),
        ([Put("", 1)], "Invalid column name: ''."),
        ([Put("a", math.nan)], "NaN can't be set to double value."),
        ([Put("a", 1.5), Put("b", -math.inf)], "Infinity can't be set to double value."),
        ([Put("PK3", 1)], "Duplicated attribute column name with primary key column"),
        (
            [Put("a", LONG)],
            "The length of attribute column: 'a' exceeds the MaxLength:2097152 with "
            "CurrentLength:2097153.",
        ),
        (
            [Put(f"a{n}", 1) for n in range(1025)],
            "The number of attribute columns exceeds the limit, limit count: 1024, column count: "
            "1025.",
        ),
    ],
)
def test_a_row_of_a_wrong_shape_refuses_the_whole_request(
    client: ProtocolClient, table: str, cells: list[Put], text: str
) -> None:
    request = imports(table, [(pb.PUT, at(20), values(20)), (pb.PUT, at(21), cells)])
    assert refusal(client, request) == INVALID + text
    assert read_row(client, table, at(20)) is None


def test_wrong_keys_of_any_table_refuse_the_whole_request(
    client: ProtocolClient, table: str
) -> None:
    infinite = imports(table, [(pb.PUT, key("a", INF_MIN, b""), [])])
    expected = "VT_INF_MIN is an invalid type for the primary key."
    assert refusal(client, infinite) == INVALID + expected
    long = imports(table, [(pb.PUT, key("x" * 1025, 1, b""), [])])
    expected = "The length of primary key column: 'PK1' exceeds the MaxLength:1024 with "
    assert refusal(client, long) == INVALID + expected + "CurrentLength:1025."


@pytest.mark.parametrize("there", [True, False], ids=["a table", "no table"])
@pytest.mark.parametrize("values", [(), ("a", 1, b"", 1, 1)])
def test_a_key_has_one_to_four_columns_whatever_the_table(
    client: ProtocolClient, table: str, values: tuple[Any, ...], there: bool
) -> None:
    name = table if there else "absent"
    expected = INVALID + "The number of primary key columns must be in range: [1, 4]."
    rows_asked: list[Import] = [(pb.PUT, at(30), []), (pb.PUT, key(*values), [])]
    assert refusal(client, imports(name, rows_asked)) == expected
    span = (key(*values), EVERYTHING[1])
    exported = exports(name, span, data_block_type_hint=pb.DBT_PLAIN_BUFFER)
    assert refusal(client, exported) == expected
    assert read_row(client, table, at(30)) is None


def test_a_value_to_be_generated_neither_deletes_nor_exports(
    client: ProtocolClient, table: str
) -> None:
    asked = key("a", Special.AUTO_INCREMENT, b"")
    expected = INVALID + "Invalid row to delete which with pk auto increment."
    assert refusal(client, imports(table, [(pb.DELETE, asked, [])])) == expected
    expected = INVALID + "PKAutoIncr can't be used for read operations."
    span = (asked, EVERYTHING[1])
    exported = exports(table, span, data_block_type_hint=pb.DBT_PLAIN_BUFFER)
    assert refusal(client, exported) == expected


def test_the_number_of_rows_is_held_to_its_limit(client: ProtocolClient, table: str) -> None:
    changes: list[Import] = [(pb.PUT, at(n), values(n)) for n in range(3000, 3201)]
    expected = INVALID + "Rows count exceeds the upper limit: 200."
    assert refusal(client, imports(table, changes)) == expected
    assert results(ask(client, imports(table, changes[:200]))) == [OK] * 200


def test_a_request_without_rows_is_refused(client: ProtocolClient, table: str) -> None:
    expected = f"{INVALID}No operation is specified for table: '{table}'."
    assert refusal(client, imports(table, [])) == expected
    assert refusal(client, imports("3t", [])) == INVALID + "Invalid table name: '3t'."


def test_the_size_of_all_rows_is_held_to_its_limit(client: ProtocolClient, table: str) -> None:
    limit, half = 4 * 1024 * 1024, 2 * 1024 * 1024
    row = key("a", 1, b"1")  # Nineteen bytes of names and values.
    cells = [Put("a", "x" * half), Put("b", "x" * (limit - half - 21))]
    assert results(ask(client, imports(table, [(pb.PUT, row, cells)]))) == [OK]
    expected = "The total data size of BulkImport request exceeds the limit, limit size: "
    more = imports(table, [(pb.PUT, row, [*cells, Put("c", "")])])
    assert refusal(client, more) == f"{INVALID}{expected}{limit}, data size: {limit + 1}."


def test_a_table_without_updates_refuses_them(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(KEY, options=pb.TableOptions(allow_update=False))
    request = imports(table, [(pb.UPDATE, at(1), values(1))])
    assert refusal(client, request) == INVALID + "Update operation is not allowed in this table"


# BulkExport.

EVERYTHING = (key(INF_MIN, INF_MIN, INF_MIN), key(INF_MAX, INF_MAX, INF_MAX))


def exports(table: str, span: tuple[Key, Key] = EVERYTHING, **fields: Any) -> Any:
    defaults = {
        "inclusive_start_primary_key": encode_row(span[0]),
        "exclusive_end_primary_key": encode_row(span[1]),
    }
    return pb.BulkExportRequest(table_name=table, **{**defaults, **fields})


def shown_matrix(buffer: bytes) -> tuple[list[str], int, list[list[Any]]]:
    """Return names, how many of them are the key's, and rows of values."""
    matrix: RowMatrix = decode(buffer)
    names = [name.decode() for name in matrix.key_names + matrix.names]
    assert matrix.entire_key == (len(matrix.key_names) == len(KEY))
    return names, len(matrix.key_names), [[_value(v) for v in row] for row in matrix.rows]


def _value(field: bytes) -> Any:
    return None if field == NULL else variant.decode(field)


@pytest.fixture
def full_table(client: ProtocolClient, table: str) -> str:
    """The table with rows 150 to 299; every tenth lacks DC2."""
    changes: list[Import] = []
    for number in range(150, 300):
        cells = values(number)
        if number % 10 == 0:
            del cells[1]
        changes.append((pb.PUT, at(number), cells))
    assert results(ask(client, imports(table, changes))) == [OK] * 150
    return table


@pytest.mark.parametrize(
    ("asked", "names", "keys", "first"),
    [
        (["DC2", "DC1"], ["DC1", "DC2"], 0, ["150", None]),
        (["PK3", "DC2", "PK1"], ["PK1", "PK3", "DC2"], 2, ["150", b"150", None]),
        (["PK3", "PK2", "PK1"], ["PK1", "PK2", "PK3"], 3, ["150", 150, b"150"]),
        (["zz", "DC1", "DC1"], ["DC1", "zz"], 0, ["150", None]),
    ],
)
def test_a_matrix_has_the_columns_asked_for_the_keys_first(
    client: ProtocolClient,
    full_table: str,
    asked: list[str],
    names: list[str],
    keys: int,
    first: list[Any],
) -> None:
    answer = ask(client, exports(full_table, columns_to_get=asked))
    assert answer.data_block_type == pb.DBT_SIMPLE_ROW_MATRIX
    assert not answer.HasField("next_start_primary_key")
    found_names, found_keys, found = shown_matrix(answer.rows)
    assert (found_names, found_keys, len(found)) == (names, keys, 150)
    assert found[0] == first


def test_rows_without_any_named_attribute_are_left_out_of_a_matrix(
    client: ProtocolClient, full_table: str
) -> None:
    _, _, without_key = shown_matrix(ask(client, exports(full_table, columns_to_get=["DC2"])).rows)
    _, _, with_key = shown_matrix(
        ask(client, exports(full_table, columns_to_get=["DC2", "PK1"])).rows
    )
    assert (len(without_key), len(with_key)) == (135, 150)


def test_an_export_is_metered_by_bytes_of_every_row_that_the_filter_saw(
    client: ProtocolClient, table: str
) -> None:
    numbers = range(150, 300)
    ask(client, imports(table, [(pb.PUT, at(n), values(n)) for n in numbers]))
    condition = pb.SingleColumnValueFilter(
        comparator=pb.CT_GREATER_EQUAL,
        column_name="DC1",
        column_value=variant.encode("250"),
        filter_if_missing=True,
        latest_version_only=True,
    )
    wanted = pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=condition.SerializeToString())
    fields: dict[str, Any] = {
        "columns_to_get": ["DC1", "DC2"],
        "filter": wanted.SerializeToString(),
    }
    matrix = ask(client, exports(table, **fields))
    plain = ask(client, exports(table, **fields, data_block_type_hint=pb.DBT_PLAIN_BUFFER))
    for answer in (matrix, plain):
        used = answer.consumed
        assert (used.capacity_unit.read, used.capacity_unit.write) == (0, 0)
        assert used.capacity_data_size.read_size == 150 * 40
        assert used.capacity_data_size.write_size == 0
    expected = [[str(n), n] for n in range(250, 300)]
    assert shown_matrix(matrix.rows)[2] == expected
    assert [list(shown(row).values()) for row in rows(plain.rows)] == expected  # type: ignore[union-attr]


def test_plain_rows_have_whole_keys_and_newest_versions(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(KEY, options=pb.TableOptions(max_versions=3))
    for number in (1, 2, 3):
        ask(client, update(table, at(1), puts(a=number)))
    plain = ask(client, exports(table, data_block_type_hint=pb.DBT_PLAIN_BUFFER))
    assert plain.data_block_type == pb.DBT_PLAIN_BUFFER
    (row,) = rows(plain.rows)
    assert row.key == at(1)
    assert [(cell.name, cell.value) for cell in row.columns] == [("a", 3)]
    assert row.columns[0].version_ms is not None
    assert shown_matrix(ask(client, exports(table, columns_to_get=["a"])).rows)[2] == [[3]]


def test_an_empty_range_is_a_matrix_without_rows(client: ProtocolClient, table: str) -> None:
    answer = ask(client, exports(table, columns_to_get=["DC1", "PK1"]))
    assert shown_matrix(answer.rows) == (["PK1", "DC1"], 1, [])
    plain = ask(client, exports(table, data_block_type_hint=pb.DBT_PLAIN_BUFFER))
    assert (plain.rows, plain.HasField("next_start_primary_key")) == (b"", False)


@pytest.mark.parametrize("hint", [pb.DBT_PLAIN_BUFFER, pb.DBT_SIMPLE_ROW_MATRIX])
def test_an_export_goes_on_page_by_page_below_four_mebibytes(
    client: ProtocolClient, table: str, hint: int
) -> None:
    big = "x" * 1_000_000
    for number in range(10, 20):
        ask(client, put(table, at(number), puts(DC1=big, DC2=number)))
    request = exports(table, columns_to_get=["DC1", "DC2"], data_block_type_hint=hint)
    seen: list[Any] = []
    pages = 0
    while True:
        answer = ask(client, request)
        assert len(answer.rows) <= 4 * 1024 * 1024
        pages += 1
        if hint == pb.DBT_PLAIN_BUFFER:
            seen += [list(shown(row).values())[1] for row in rows(answer.rows)]  # type: ignore[union-attr]
        else:
            seen += [row[1] for row in shown_matrix(answer.rows)[2]]
        if not answer.HasField("next_start_primary_key"):
            break
        request.inclusive_start_primary_key = answer.next_start_primary_key
    assert (seen, pages) == (list(range(10, 20)), 3)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((key("1", b"1"), at(2)), "400 OTSInvalidPK Validate PK size fail. Input: 2, Meta: 3."),
        ((at(2), at(1)), INVALID + "Begin key must less than end key in FORWARD"),
        ((at(2), at(2)), INVALID + "Begin key must less than end key in FORWARD"),
    ],
)
def test_the_bounds_of_an_export_are_checked(
    client: ProtocolClient, table: str, span: tuple[Key, Key], expected: str
) -> None:
    assert refusal(client, exports(table, span, columns_to_get=["PK1"])) == expected


def test_a_matrix_needs_a_column(client: ProtocolClient, table: str) -> None:
    expected = INVALID + "DBT_SIMPLE_ROW_MATRIX need at least one column to get."
    assert refusal(client, exports(table)) == expected
    assert refusal(client, exports(table, columns_to_get=["#"])).endswith("column name: '#'.")
    missing = "404 OTSObjectNotExist Requested table does not exist."
    assert refusal(client, exports("no_such_table", columns_to_get=["a"])) == missing


# GetRange.


def test_a_range_as_matrix_has_the_whole_key_on_every_page(
    client: ProtocolClient, full_table: str
) -> None:
    request = get_range(
        full_table,
        *EVERYTHING,
        columns_to_get=["DC2", "DC1"],
        limit=50,
        data_block_type_hint=pb.DBT_SIMPLE_ROW_MATRIX,
    )
    pages: list[int] = []
    seen: list[Any] = []
    while True:
        answer = ask(client, request)
        assert answer.data_block_type == pb.DBT_SIMPLE_ROW_MATRIX
        names, keys, page = shown_matrix(answer.rows)
        assert (names, keys) == (["PK1", "PK2", "PK3", "DC1", "DC2"], 3)
        pages.append(len(page))
        seen += page
        if not answer.HasField("next_start_primary_key"):
            break
        request.inclusive_start_primary_key = answer.next_start_primary_key
    assert pages == [50, 50, 50]
    assert seen == [
        [str(n), n, str(n).encode(), str(n), None if n % 10 == 0 else n] for n in range(150, 300)
    ]


def test_a_range_as_matrix_costs_what_it_costs_as_rows(
    client: ProtocolClient, full_table: str
) -> None:
    fields: dict[str, Any] = {"columns_to_get": ["DC1", "DC2", "DC3"]}
    plain = ask(client, get_range(full_table, *EVERYTHING, **fields))
    hint = pb.DBT_SIMPLE_ROW_MATRIX
    matrix = ask(client, get_range(full_table, *EVERYTHING, **fields, data_block_type_hint=hint))
    assert matrix.consumed == plain.consumed


def test_a_range_as_matrix_may_leave_key_columns_out(
    client: ProtocolClient, full_table: str
) -> None:
    fields: dict[str, Any] = {
        "columns_to_get": ["PK2", "DC1"],
        "return_entire_primary_keys": False,
        "limit": 1,
    }
    hint = pb.DBT_SIMPLE_ROW_MATRIX
    answer = ask(client, get_range(full_table, *EVERYTHING, **fields, data_block_type_hint=hint))
    assert shown_matrix(answer.rows) == (["PK2", "DC1"], 1, [[150, "150"]])


def test_a_matrix_whose_nulls_outgrow_an_answer_is_cut(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(KEY)
    for first in range(0, 4600, 200):
        numbers = range(10_000 + first, 10_200 + first)
        ask(client, imports(table, [(pb.PUT, at(n), puts(a=1)) for n in numbers]))
    names = ["a", *(f"absent{n}" for n in range(1000))]
    request = get_range(table, *EVERYTHING, columns_to_get=names)
    request.data_block_type_hint = pb.DBT_SIMPLE_ROW_MATRIX
    first_page = ask(client, request)
    assert len(first_page.rows) <= 4 * 1024 * 1024
    request.inclusive_start_primary_key = first_page.next_start_primary_key
    second_page = ask(client, request)
    seen = [row[1] for page in (first_page, second_page) for row in shown_matrix(page.rows)[2]]
    assert seen == list(range(10_000, 14_600))
    assert not second_page.HasField("next_start_primary_key")


def test_a_hint_without_columns_is_answered_with_plain_rows(
    client: ProtocolClient, full_table: str
) -> None:
    hint = pb.DBT_SIMPLE_ROW_MATRIX
    answer = ask(client, get_range(full_table, *EVERYTHING, limit=2, data_block_type_hint=hint))
    assert answer.data_block_type == pb.DBT_PLAIN_BUFFER
    assert [row.key[1][1] for row in rows(answer.rows)] == [150, 151]
