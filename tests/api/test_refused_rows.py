"""What is refused of requests on one row and on ranges: status, code and text, word for word."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Change, Delete, Increment, Put, Special, encode_row
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    delete,
    get,
    get_range,
    key,
    put,
    read_row,
    refusal,
    rows,
    update,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

Refusals = dict[str, tuple[Callable[[str], Any], str]]
PK = key("a", 1)
NO_TABLE = "404 OTSObjectNotExist Requested table does not exist."
NO_VERSION = "No version condition is specified."
TIMESTAMP = "Timestamp must be in range [0, INT64_MAX/1000)."
VERSION_END = (2**63 - 1) // 1000
MIB2 = 2 * 1024 * 1024
WRONG_KEYS = {
    "too few columns": (key("a"), "Validate PK size fail. Input: 1, Meta: 2."),
    "too many columns": (key("a", 1, 2), "Validate PK size fail. Input: 3, Meta: 2."),
    "another name": (
        key("a", 1, names=["PK1", "PK3"]),
        "Validate PK name fail. Input: PK3, Meta: PK2.",
    ),
    "the first wrong name of two": (
        key("a", 1, names=["PK2", "PK1"]),
        "Validate PK name fail. Input: PK2, Meta: PK1.",
    ),
    "a name is looked at before a type": (
        key(1, 1, names=["pk1", "PK2"]),
        "Validate PK name fail. Input: pk1, Meta: PK1.",
    ),
    "a size is looked at before a name": (
        key("a", names=["other"]),
        "Validate PK size fail. Input: 1, Meta: 2.",
    ),
    "string for integer": (
        key("a", "b"),
        "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
    ),
    "integer for string": (key(1, 1), "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING."),
    "blob for string": (key(b"a", 1), "Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING."),
}
TAKES_A_KEY: dict[str, Callable[[str, Any], Any]] = {
    "GetRow": get,
    "PutRow": put,
    "UpdateRow": lambda table, row_key: update(table, row_key, [Put("c", 1)]),
    "DeleteRow": delete,
    "GetRange start": lambda table, row_key: get_range(table, row_key, key(INF_MAX, INF_MAX)),
    "GetRange end": lambda table, row_key: get_range(table, key(INF_MIN, INF_MIN), row_key),
}


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER."""
    return make_table()


@pytest.mark.parametrize("operation", TAKES_A_KEY)
@pytest.mark.parametrize("case", WRONG_KEYS)
def test_a_wrong_key_is_refused(
    client: ProtocolClient, table: str, operation: str, case: str
) -> None:
    row_key, text = WRONG_KEYS[case]
    request = TAKES_A_KEY[operation](table, row_key)
    assert refusal(client, request) == f"400 OTSInvalidPK {text}"


@pytest.mark.parametrize("operation", TAKES_A_KEY)
def test_a_table_that_is_not_there_is_refused(client: ProtocolClient, operation: str) -> None:
    assert refusal(client, TAKES_A_KEY[operation]("absent", PK)) == NO_TABLE


@pytest.mark.parametrize("operation", TAKES_A_KEY)
@pytest.mark.parametrize("name", ["", "0", "3t", "-", "T#", "表", "a" * 256])
def test_a_bad_table_name_is_refused(client: ProtocolClient, operation: str, name: str) -> None:
    text = f"400 OTSParameterInvalid Invalid table name: '{name}'."
    assert refusal(client, TAKES_A_KEY[operation](name, PK)) == text


@pytest.mark.parametrize("operation", TAKES_A_KEY)
@pytest.mark.parametrize("values", [(), ("a", 1, 2, 3, 4), ("a", 1, 2, 3, 4, 5)])
@pytest.mark.parametrize("there", [True, False], ids=["a table", "no table"])
def test_a_key_has_one_to_four_columns_whatever_the_table(
    client: ProtocolClient, table: str, operation: str, values: tuple[Any, ...], there: bool
) -> None:
    text = "The number of primary key columns must be in range: [1, 4]."
    request = TAKES_A_KEY[operation](table if there else "absent", key(*values))
    assert refusal(client, request) == f"400 OTSParameterInvalid {text}"


@pytest.mark.parametrize("operation", TAKES_A_KEY)
def test_a_table_name_is_looked_at_before_a_key(client: ProtocolClient, operation: str) -> None:
    request = TAKES_A_KEY[operation]("3t", key("a", 1, 2, 3, 4))
    assert refusal(client, request) == "400 OTSParameterInvalid Invalid table name: '3t'."


# Values and names of attribute columns.

NOT_A_NUMBER = "NaN can't be set to double value."
INFINITE = "Infinity can't be set to double value."
NAMED_AS_KEY = "Duplicated attribute column name with primary key column"
WRONG_CELLS: dict[str, tuple[list[Change], str]] = {
    "NaN": ([Put("c", math.nan)], NOT_A_NUMBER),
    "NaN with its sign": ([Put("c", -math.nan)], NOT_A_NUMBER),
    "NaN behind others": ([Put("a", 1.5), Put("b", "x"), Put("c", math.nan)], NOT_A_NUMBER),
    "NaN at a version": ([Put("c", math.nan, 1_800_000_000_000)], NOT_A_NUMBER),
    "Infinity": ([Put("c", math.inf)], INFINITE),
    "minus Infinity": ([Put("c", -math.inf)], INFINITE),
    "Infinity beside a long text": ([Put("b", "x" * 2000), Put("c", math.inf)], INFINITE),
    "the first key column's name": ([Put("PK1", "x")], NAMED_AS_KEY),
    "the second key column's name": ([Put("a", 1), Put("PK2", 2)], NAMED_AS_KEY),
    "a key column's name at a version": ([Put("PK2", 2, 1_800_000_000_000)], NAMED_AS_KEY),
}
WRONG_CHANGES: dict[str, tuple[list[Change], str]] = {
    **WRONG_CELLS,
    "a delete of a key column": ([Delete("PK1")], NAMED_AS_KEY),
    "a delete of a key column's version": ([Put("a", 1), Delete("PK2", 5)], NAMED_AS_KEY),
    "an increment of a key column": ([Increment("PK2", 1)], NAMED_AS_KEY),
}


@pytest.mark.parametrize("case", WRONG_CELLS)
def test_a_put_of_wrong_cells_is_refused(client: ProtocolClient, table: str, case: str) -> None:
    cells, text = WRONG_CELLS[case]
    row_key = key("wrong", 1)
    assert refusal(client, put(table, row_key, cells)) == f"400 OTSParameterInvalid {text}"
    absent = NO_TABLE if text == NAMED_AS_KEY else f"400 OTSParameterInvalid {text}"
    assert refusal(client, put("absent", row_key, cells)) == absent
    assert read_row(client, table, row_key) is None


@pytest.mark.parametrize("case", WRONG_CHANGES)
def test_an_update_of_wrong_cells_is_refused(client: ProtocolClient, table: str, case: str) -> None:
    cells, text = WRONG_CHANGES[case]
    row_key = key("wrong", 1)
    assert refusal(client, update(table, row_key, cells)) == f"400 OTSParameterInvalid {text}"
    assert read_row(client, table, row_key) is None


def test_a_double_is_looked_at_in_rows_that_are_like_earlier_ones(
    client: ProtocolClient, table: str
) -> None:
    for number in [*range(20), math.inf, 1, math.nan, 2]:
        answer = refusal(client, put(table, key("like", 1), [Put("a", 1), Put("c", float(number))]))
        assert answer == {
            math.inf: f"400 OTSParameterInvalid {INFINITE}",
            math.nan: f"400 OTSParameterInvalid {NOT_A_NUMBER}",
        }.get(number, "ok")


def test_a_column_may_have_the_name_of_a_key_column_in_another_case(
    client: ProtocolClient, table: str
) -> None:
    assert refusal(client, put(table, PK, [Put("pk1", 1), Put("PK3", 2), Put("PK", 3)])) == "ok"


@pytest.mark.parametrize("operation", ["GetRow", "PutRow", "UpdateRow", "DeleteRow"])
@pytest.mark.parametrize(("bound", "name"), [(INF_MIN, "VT_INF_MIN"), (INF_MAX, "VT_INF_MAX")])
def test_a_bound_is_no_key(
    client: ProtocolClient, table: str, operation: str, bound: Any, name: str
) -> None:
    text = f"400 OTSParameterInvalid {name} is an invalid type for the primary key."
    assert refusal(client, TAKES_A_KEY[operation](table, key("a", bound))) == text


def _long(name: str, limit: int, length: int, what: str) -> str:
    return (
        f"400 OTSParameterInvalid The length of {what} column: '{name}' exceeds the "
        f"MaxLength:{limit} with CurrentLength:{length}."
    )


@pytest.mark.parametrize("operation", TAKES_A_KEY)
def test_a_key_value_has_1024_bytes_at_most(
    client: ProtocolClient, table: str, operation: str
) -> None:
    ask = TAKES_A_KEY[operation]
    assert refusal(client, ask(table, key("b" * 1024, 1))) == "ok"
    # Bytes count, not characters.
    text = _long("PK1", 1024, 1026, "primary key")
    assert refusal(client, ask(table, key("é" * 513, 1))) == text


def test_a_binary_key_value_has_1024_bytes_at_most(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table([KeyColumn("pk_0", BINARY)])
    assert refusal(client, put(table, key(b"\0" * 1024, names=["pk_0"]))) == "ok"
    text = _long("pk_0", 1024, 1025, "primary key")
    assert refusal(client, put(table, key(b"\0" * 1025, names=["pk_0"]))) == text


@pytest.mark.parametrize("value", ["x" * (MIB2 + 1), b"x" * (MIB2 + 1)], ids=["text", "bytes"])
def test_an_attribute_has_two_mebibytes_at_most(
    client: ProtocolClient, table: str, value: Any
) -> None:
    text = _long("attr", MIB2, MIB2 + 1, "attribute")
    assert refusal(client, put(table, PK, [Put("attr", value)])) == text
    assert refusal(client, update(table, PK, [Put("attr", value)])) == text
    assert refusal(client, put(table, PK, [Put("attr", value[:-1])])) == "ok"


@pytest.mark.parametrize("write", [put, update])
def test_a_write_has_1024_columns_at_most(
    client: ProtocolClient, table: str, write: Callable[..., Any]
) -> None:
    cells = [Put(f"c{n}", n) for n in range(1025)]
    assert refusal(client, write(table, PK, cells)) == (
        "400 OTSParameterInvalid The number of attribute columns exceeds the limit, "
        "limit count: 1024, column count: 1025."
    )
    assert refusal(client, write(table, PK, cells[:1024])) == "ok"


@pytest.mark.parametrize("read", ["GetRow", "GetRange"])
def test_a_read_names_1024_columns_at_most(client: ProtocolClient, table: str, read: str) -> None:
    request = TAKES_A_KEY[read if read == "GetRow" else "GetRange start"](table, PK)
    request.columns_to_get.extend(f"c{n}" for n in range(1024))
    assert refusal(client, request) == "ok"
    request.columns_to_get.append("more")
    assert refusal(client, request) == (
        "400 OTSParameterInvalid The number of columns from the request exceeds the limit, "
        "limit count: 1024, column count: 1025."
    )


GOOD_NAMES = ["公司", "a" * 255, "é" * 127, *(f"x{c}y" for c in ".:'\"$&*()/\\\n\r "), " ", "\n"]
BAD_NAMES = ["", "#", "#abc", "#公司", "# ", "a" * 256, "é" * 128]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_column_name_is_any_text(client: ProtocolClient, table: str, name: str) -> None:
    row_key = key("names", 1)
    assert refusal(client, put(table, row_key, [Put(name, 1)])) == "ok"
    assert refusal(client, update(table, row_key, [Delete(name)])) == "ok"
    assert refusal(client, get(table, row_key, columns_to_get=[name])) == "ok"


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_column_name_starts_with_no_hash_and_has_255_bytes_at_most(
    client: ProtocolClient, table: str, name: str
) -> None:
    wrong = f"400 OTSParameterInvalid Invalid column name: '{name}'."
    everywhere = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
    for request in (
        put(table, PK, [Put(name, 1)]),
        update(table, PK, [Put(name, 1)]),
        update(table, PK, [Delete(name)]),
        update(table, PK, [Delete(name, 5)]),
        update(table, PK, [Increment(name, 5)]),
        get(table, PK, columns_to_get=[name]),
        get(table, PK, start_column=name),
        get(table, PK, end_column=name),
        get_range(table, *everywhere, columns_to_get=["good", name]),
        get_range(table, *everywhere, start_column=name),
        get_range(table, *everywhere, end_column=name),
    ):
        assert refusal(client, request) == wrong, request


def _returning(kind: int, *names: str) -> pb.ReturnContent:
    return pb.ReturnContent(return_type=pb.ReturnType.Name(kind), return_column_names=names)


def _times(**bounds: int) -> pb.TimeRange:
    return pb.TimeRange(**bounds)


ODD: Refusals = {
    "GetRow without a version condition": (lambda t: get(t, PK, max_versions=None), NO_VERSION),
    "GetRange without a version condition": (
        lambda t: get_range(t, PK, key("b", 1), max_versions=None),
        NO_VERSION,
    ),
    "UpdateRow without a cell": (lambda t: update(t, PK), "Attribute column is missing."),
    "a version below zero": (lambda t: put(t, PK, [Put("c", 1, -1)]), TIMESTAMP),
    "a version too high": (lambda t: put(t, PK, [Put("c", 1, VERSION_END)]), TIMESTAMP),
    "the highest int64": (lambda t: update(t, PK, [Put("c", 1, 2**63 - 1)]), TIMESTAMP),
    "a delete of a version too high": (
        lambda t: update(t, PK, [Delete("c", VERSION_END)]),
        TIMESTAMP,
    ),
    "a read of a version below zero": (
        lambda t: get(t, PK, max_versions=None, time_range=_times(specific_time=-1)),
        TIMESTAMP,
    ),
    "a read of a version too high": (
        lambda t: get(t, PK, max_versions=None, time_range=_times(specific_time=VERSION_END)),
        TIMESTAMP,
    ),
    "a time range from below zero": (
        lambda t: get(t, PK, time_range=_times(start_time=-1, end_time=9)),
        TIMESTAMP,
    ),
    "a limit of none": (
        lambda t: get_range(t, PK, key("b", 1), limit=0),
        "The limit must be greater than 0.",
    ),
    "a limit below none": (
        lambda t: get_range(t, PK, key("b", 1), limit=-1),
        "The limit must be greater than 0.",
    ),
    "equal bounds forward": (
        lambda t: get_range(t, PK, PK),
        "Begin key must less than end key in FORWARD",
    ),
    "crossed bounds forward": (
        lambda t: get_range(t, key(INF_MAX, INF_MAX), key(INF_MIN, INF_MIN)),
        "Begin key must less than end key in FORWARD",
    ),
    "equal bounds backward": (
        lambda t: get_range(t, PK, PK, direction=pb.BACKWARD),
        "Begin key must more than end key in BACKWARD",
    ),
    "crossed bounds backward": (
        lambda t: get_range(t, key("a", 1), key("b", 1), direction=pb.BACKWARD),
        "Begin key must more than end key in BACKWARD",
    ),
    "a transaction that never was": (
        lambda t: get(t, PK, transaction_id="nonsense"),
        "TransactionID is invalid.",
    ),
    "a write in a transaction that never was": (
        lambda t: put(t, PK, transaction_id="nonsense"),
        "TransactionID is invalid.",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_request_is_refused_with_the_services_text(
    client: ProtocolClient, table: str, case: str
) -> None:
    request, text = ODD[case]
    assert refusal(client, request(table)) == f"400 OTSParameterInvalid {text}"


# The protocol gives these a code, but no text.
UNTOLD: dict[str, Callable[[str], Any]] = {
    "one version and a number of versions": lambda t: get(
        t, PK, time_range=_times(specific_time=5)
    ),
    "one version and a time range": lambda t: get(
        t, PK, max_versions=None, time_range=_times(specific_time=5, start_time=1, end_time=9)
    ),
    "one version and a start": lambda t: get(
        t, PK, max_versions=None, time_range=_times(specific_time=5, start_time=1)
    ),
    "one version and an end": lambda t: get(
        t, PK, max_versions=None, time_range=_times(specific_time=5, end_time=9)
    ),
    "one version and a time range of a range": lambda t: get_range(
        t,
        PK,
        key("b", 1),
        max_versions=None,
        time_range=_times(specific_time=5, start_time=1, end_time=9),
    ),
    "one version and a time range in a batch": lambda t: batch_get(
        [(t, [PK])],
        max_versions=None,
        time_range=_times(specific_time=5, start_time=1, end_time=9),
    ),
    "no versions": lambda t: get(t, PK, max_versions=0),
    "a time range without an end": lambda t: get(t, PK, time_range=_times(start_time=5)),
    "a time range backwards": lambda t: get(t, PK, time_range=_times(start_time=9, end_time=5)),
    "a return type with columns that it has not": lambda t: update(
        t, PK, [Increment("n", 1)], return_content=_returning(pb.RT_PK, "n")
    ),
    "a returned column that is not incremented": lambda t: update(
        t,
        PK,
        [Increment("n", 1), Put("c", 1)],
        return_content=_returning(pb.RT_AFTER_MODIFY, "n", "c"),
    ),
    "a column put and incremented": lambda t: update(t, PK, [Put("n", 1), Increment("n", 1)]),
    "an increment in PutRow": lambda t: put(t, PK, [Increment("n", 1)]),
    "a delete in PutRow": lambda t: put(t, PK, [Delete("n")]),
    "cells in DeleteRow": lambda t: delete(t, PK, primary_key=encode_row(PK, [Put("c", 1)])),
    "cells in GetRow's key": lambda t: get(t, PK, primary_key=encode_row(PK, [Put("c", 1)])),
    "no row": lambda t: put(t, PK, row=b""),
    "a row without its header": lambda t: put(t, PK, row=encode_row(PK)[4:]),
    "two rows": lambda t: put(t, PK, row=encode_row(PK) + encode_row(PK)[4:]),
    "a damaged row": lambda t: put(t, PK, row=encode_row(PK)[:-1] + b"\0"),
}


@pytest.mark.parametrize("case", UNTOLD)
def test_a_request_without_sense_is_refused_and_changes_nothing(
    client: ProtocolClient, table: str, case: str
) -> None:
    assert refusal(client, delete(table, PK)) == "ok"
    assert refusal(client, UNTOLD[case](table)).startswith("400 OTSParameterInvalid ")
    assert (
        refusal(client, put(table, PK, condition=pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)))
        == "ok"
    )


def test_a_version_far_from_now_is_refused(client: ProtocolClient, table: str) -> None:
    # A day either way is the default; the epoch's beginning is farther.
    assert refusal(client, put(table, PK, [Put("c", 1, 1)])).startswith("400 OTSParameterInvalid ")


def test_a_table_can_refuse_updates(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table(options=pb.TableOptions(allow_update=False))
    assert refusal(client, put(table, PK, [Put("c", 1)])) == "ok"
    assert refusal(client, update(table, PK, [Put("c", 1)])) == (
        "400 OTSParameterInvalid Update operation is not allowed in this table"
    )
    assert refusal(client, delete(table, PK)) == "ok"


@pytest.mark.parametrize("kind", [variant.DOUBLE, variant.BOOLEAN])
def test_a_key_value_is_a_text_a_number_or_bytes(
    client: ProtocolClient, table: str, kind: int
) -> None:
    value = variant.encode(1.5) if kind == variant.DOUBLE else variant.encode(True)
    row = plainbuffer.encode_row([(b"PK1", value), (b"PK2", variant.encode(1))], [])
    refused = refusal(client, put(table, PK, row=plainbuffer.HEADER + row))
    assert refused.startswith("400 OTS")
    assert variant.type_name(value) in refused


# Key columns with generated values.


@pytest.fixture(scope="module")
def automatic(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER, whose second column is generated."""
    return make_table([KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER, auto_increment=True)])


MODIFYING = {"PutRow": put, "UpdateRow": update}
GENERATED = key("a", Special.AUTO_INCREMENT)
CELLS = [Put("c", 1)]


def _when(expectation: int, column: bool = False) -> dict[str, Any]:
    compared = pb.SingleColumnValueFilter(
        comparator=pb.CT_EQUAL,
        column_name="c",
        column_value=variant.encode(1),
        filter_if_missing=True,
        latest_version_only=True,
    )
    test = pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=compared.SerializeToString())
    condition = pb.Condition(row_existence=pb.RowExistenceExpectation.Name(expectation))
    if column:
        condition.column_condition = test.SerializeToString()
    return {"condition": condition}


@pytest.mark.parametrize("operation", MODIFYING)
@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (
            _when(pb.EXPECT_NOT_EXIST),
            "Invalid expect:EXPECT_NOT_EXIST when modify row with pk auto increment",
        ),
        (
            _when(pb.EXPECT_EXIST),
            "Invalid expect:EXPECT_EXIST when modify row with pk auto increment",
        ),
        (
            _when(pb.EXPECT_EXIST, column=True),
            "Invalid expect:EXPECT_EXIST when modify row with pk auto increment",
        ),
        (
            _when(pb.IGNORE, column=True),
            "Can't set condition when modify row with pk auto increment",
        ),
    ],
)
def test_a_row_with_a_generated_value_has_no_condition(
    client: ProtocolClient, automatic: str, operation: str, condition: dict[str, Any], text: str
) -> None:
    request = MODIFYING[operation](automatic, GENERATED, CELLS, **condition)
    assert refusal(client, request) == f"400 OTSParameterInvalid {text}"


def test_a_row_with_a_chosen_value_can_only_exist(client: ProtocolClient, automatic: str) -> None:
    text = (
        "400 OTSParameterInvalid Invalid expect:EXPECT_NOT_EXIST when modify a specific row for "
        "table with pk auto increment"
    )
    for column in (False, True):
        absent = _when(pb.EXPECT_NOT_EXIST, column)
        assert refusal(client, put(automatic, PK, CELLS, **absent)) == text
        assert refusal(client, update(automatic, PK, CELLS, **absent)) == text
        assert refusal(client, delete(automatic, PK, **absent)) == text


def test_a_row_with_a_chosen_value_may_have_another_condition(
    client: ProtocolClient, automatic: str
) -> None:
    content = {"return_content": _returning(pb.RT_PK)}
    (made,) = rows(ask(client, put(automatic, GENERATED, CELLS, **content)).row)
    for condition in (
        _when(pb.IGNORE),
        _when(pb.EXPECT_EXIST),
        _when(pb.IGNORE, column=True),
        _when(pb.EXPECT_EXIST, column=True),
    ):
        assert refusal(client, put(automatic, made.key, CELLS, **condition)) == "ok"
        assert refusal(client, update(automatic, made.key, CELLS, **condition)) == "ok"
    assert refusal(client, delete(automatic, made.key, **_when(pb.EXPECT_EXIST))) == "ok"
    failed = "403 OTSConditionCheckFail Condition check failed."
    assert refusal(client, delete(automatic, made.key, **_when(pb.EXPECT_EXIST))) == failed


@pytest.mark.parametrize("operation", ["GetRow", "GetRange start", "GetRange end"])
def test_nothing_is_read_by_a_value_to_be_generated(
    client: ProtocolClient, automatic: str, table: str, operation: str
) -> None:
    text = "400 OTSParameterInvalid PKAutoIncr can't be used for read operations."
    for name in (automatic, table, "absent"):
        assert refusal(client, TAKES_A_KEY[operation](name, GENERATED)) == text


def test_a_generated_value_needs_its_column(
    client: ProtocolClient, automatic: str, table: str
) -> None:
    text = "400 OTSInvalidPK Validate PK type fail. Input: VT_AUTO_INCREMENT, Meta: VT_INTEGER."
    assert refusal(client, put(table, GENERATED)) == text
    assert refusal(client, update(table, GENERATED, CELLS)) == text
    assert refusal(client, put(automatic, GENERATED)) == "ok"


def test_a_row_has_one_generated_value_at_most(client: ProtocolClient, automatic: str) -> None:
    twice = key(Special.AUTO_INCREMENT, Special.AUTO_INCREMENT)
    text = "400 OTSParameterInvalid 2 pk auto increment exist in row."
    assert refusal(client, put(automatic, twice)) == text


def test_no_row_is_deleted_by_a_value_to_be_generated(
    client: ProtocolClient, automatic: str
) -> None:
    text = "400 OTSParameterInvalid Invalid row to delete which with pk auto increment."
    assert refusal(client, delete(automatic, GENERATED)) == text
