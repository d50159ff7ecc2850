"""Batches: what refuses the whole request, and what is one row's own error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Delete, Increment, Put, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    batch_write,
    delete,
    key,
    outcomes,
    put,
    puts,
    read_row,
    refusal,
    rows,
    update,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

PK = key("a", 1)
NO_TABLE = "OTSObjectNotExist Requested table does not exist."
NAME = "Invalid column name: '#x'."
MIB2 = 2 * 1024 * 1024
KEY_COLUMNS = "The number of primary key columns must be in range: [1, 4]."
LONG_KEY = (
    "The length of primary key column: 'PK1' exceeds the MaxLength:1024 with CurrentLength:1025."
)


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER."""
    return make_table()


def _after_a_good_row(table: str, bad: Any, other: str = "") -> Any:
    """Return a batch of a row and ``bad``, which is of the table ``other`` where one is named."""
    good = put(table, key("before", 1), puts(c=1))
    return batch_write([(table, [good]), (other, [bad])] if other else [(table, [good, bad])])


REFUSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "no table to write": (
        lambda t: pb.BatchWriteRowRequest(),
        "No row is specified in BatchWriteRow.",
    ),
    "no table to read": (
        lambda t: pb.BatchGetRowRequest(),
        "No row specified in the request of BatchGetRow.",
    ),
    "a written table without rows": (
        lambda t: batch_write([(t, [])]),
        "No operation is specified for table: '{table}'.",
    ),
    "a written table without rows after one with": (
        lambda t: batch_write([(t, [put(t, PK)]), ("other", [])]),
        "No operation is specified for table: 'other'.",
    ),
    "201 rows to write": (
        lambda t: batch_write([(t, [put(t, key("a", n)) for n in range(201)])]),
        "Rows count exceeds the upper limit: 200.",
    ),
    "201 rows in two tables": (
        lambda t: batch_write(
            [
                (t, [put(t, key("a", n)) for n in range(101)]),
                ("other", [put(t, key("a", n)) for n in range(100)]),
            ]
        ),
        "Rows count exceeds the upper limit: 200.",
    ),
    "101 rows to read": (
        lambda t: batch_get([(t, [key("a", n) for n in range(101)])]),
        "Rows count exceeds the upper limit: 100.",
    ),
    "101 tables to read, without a row": (
        lambda t: batch_get([(t, [])] * 101),
        "Tables count exceeds the upper limit: 100.",
    ),
    "201 tables to write, without a row": (
        lambda t: batch_write([(t, [])] * 201),
        "Rows count exceeds the upper limit: 200.",
    ),
    "a bad table name to write": (
        lambda t: _after_a_good_row("3t", put("3t", PK)),
        "Invalid table name: '3t'.",
    ),
    "a bad table name to read": (
        lambda t: batch_get([(t, [PK]), ("3t", [PK])]),
        "Invalid table name: '3t'.",
    ),
    "a bad column name to write": (
        lambda t: _after_a_good_row(t, put(t, PK, [Put("#x", 1)])),
        NAME,
    ),
    "a bad column name to read": (lambda t: batch_get([(t, [PK])], columns_to_get=["#x"]), NAME),
    "no version condition": (
        lambda t: batch_get([(t, [PK])], max_versions=None),
        "No version condition is specified while querying row.",
    ),
    "an update without cells": (
        lambda t: _after_a_good_row(t, update(t, PK)),
        "Attribute column is missing.",
    ),
    "a bound as a key to write": (
        lambda t: _after_a_good_row(t, delete(t, key("a", INF_MIN))),
        "VT_INF_MIN is an invalid type for the primary key.",
    ),
    "a bound as a key to read": (
        lambda t: batch_get([(t, [PK, key(INF_MAX, 1)])]),
        "VT_INF_MAX is an invalid type for the primary key.",
    ),
    "a key value too long to write": (
        lambda t: _after_a_good_row(t, put(t, key("b" * 1025, 1))),
        LONG_KEY,
    ),
    "a key value too long to read": (
        lambda t: batch_get([(t, [PK, key("b" * 1025, 1)])]),
        LONG_KEY,
    ),
    "five key columns to write": (
        lambda t: _after_a_good_row(t, put(t, key("a", 1, 2, 3, 4))),
        KEY_COLUMNS,
    ),
    "five key columns to read": (
        lambda t: batch_get([(t, [key("a", 1, 2, 3, 4)])]),
        KEY_COLUMNS,
    ),
    "five key columns to write to no table": (
        lambda t: _after_a_good_row(t, put("absent", key("a", 1, 2, 3, 4)), "absent"),
        KEY_COLUMNS,
    ),
    "five key columns to read of no table": (
        lambda t: batch_get([(t, [PK]), ("absent", [PK, key("a", 1, 2, 3, 4)])]),
        KEY_COLUMNS,
    ),
    "no key columns to write": (lambda t: _after_a_good_row(t, put(t, ())), KEY_COLUMNS),
    "no key columns to read": (lambda t: batch_get([(t, [PK, ()])]), KEY_COLUMNS),
    "a value to be generated as a key to read": (
        lambda t: batch_get([(t, [PK, key("a", Special.AUTO_INCREMENT)])]),
        "PKAutoIncr can't be used for read operations.",
    ),
    "a value to be generated as a key to delete": (
        lambda t: _after_a_good_row(t, delete(t, key("a", Special.AUTO_INCREMENT))),
        "Invalid row to delete which with pk auto increment.",
    ),
    "a table to write named twice": (
        lambda t: batch_write([(t, [put(t, key("before", 1))]), (t, [put(t, PK)])]),
        "Duplicated table name: {table}",
    ),
    "a table to write named twice, apart": (
        lambda t: batch_write([(t, [put(t, key("before", 1))]), ("o", [put("o", PK)])] * 2),
        "Duplicated table name: {table}",
    ),
    "a table to read named twice": (
        lambda t: batch_get([(t, [PK]), (t, [])]),
        "Duplicated table name: {table}",
    ),
    "a table that is not there named twice to write": (
        lambda t: batch_write([(t, [put(t, key("before", 1))]), *[("sb", [put("sb", PK)])] * 2]),
        "Duplicated table name: sb",
    ),
    "a table that is not there named twice to read": (
        lambda t: batch_get([("sb", [PK]), ("sb", [PK])]),
        "Duplicated table name: sb",
    ),
    "a double that is no number": (
        lambda t: _after_a_good_row(t, put(t, PK, puts(c=math.nan))),
        "NaN can't be set to double value.",
    ),
    "a double that is infinite": (
        lambda t: _after_a_good_row(t, update(t, PK, puts(c=-math.inf))),
        "Infinity can't be set to double value.",
    ),
    "a column named as one of the key": (
        lambda t: _after_a_good_row(t, put(t, PK, puts(PK2=1))),
        "Duplicated attribute column name with primary key column",
    ),
    "a delete of a column named as one of the key": (
        lambda t: _after_a_good_row(t, update(t, PK, [Delete("PK1")])),
        "Duplicated attribute column name with primary key column",
    ),
    "an attribute too long": (
        lambda t: _after_a_good_row(t, put(t, PK, puts(attr=b"x" * (MIB2 + 1)))),
        f"The length of attribute column: 'attr' exceeds the MaxLength:{MIB2} with "
        f"CurrentLength:{MIB2 + 1}.",
    ),
    "1025 columns to write": (
        lambda t: _after_a_good_row(t, put(t, PK, [Put(f"c{n}", 1) for n in range(1025)])),
        "The number of attribute columns exceeds the limit, limit count: 1024, column count: 1025.",
    ),
    "1025 columns to read": (
        lambda t: batch_get([(t, [PK])], columns_to_get=[f"c{n}" for n in range(1025)]),
        "The number of columns from the request exceeds the limit, limit count: 1024, "
        "column count: 1025.",
    ),
    "a version below zero": (
        lambda t: _after_a_good_row(t, put(t, PK, [Put("c", 1, -1)])),
        "Timestamp must be in range [0, INT64_MAX/1000).",
    ),
    "a transaction that never was": (
        lambda t: batch_write([(t, [put(t, PK)])], transaction_id="nonsense"),
        "TransactionID is invalid.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_is_refused_whole(client: ProtocolClient, table: str, case: str) -> None:
    request, text = REFUSED[case]
    refused = refusal(client, request(table))
    assert refused == f"400 OTSParameterInvalid {text.format(table=table)}"
    assert read_row(client, table, key("before", 1)) is None, "a refused batch wrote a row"


@pytest.mark.parametrize(
    "bad",
    [
        pb.Condition(row_existence=pb.IGNORE, column_condition=b"\x08\x02\x12\x02\x08\x01"),
        pb.Condition(row_existence=pb.IGNORE, column_condition=b"nonsense"),
    ],
)
def test_a_condition_without_sense_refuses_the_batch(
    client: ProtocolClient, table: str, bad: pb.Condition
) -> None:
    request = _after_a_good_row(table, put(table, PK, condition=bad))
    assert refusal(client, request).startswith("400 OTSParameterInvalid ")
    assert read_row(client, table, key("before", 1)) is None


def test_a_wrong_key_is_the_rows_own_error(client: ProtocolClient, table: str) -> None:
    sizes, name, kind = key("a"), key("a", 1, names=["PK1", "PK3"]), key("a", "b")
    expected = [
        "OTSInvalidPK Validate PK size fail. Input: 1, Meta: 2.",
        "OTSInvalidPK Validate PK name fail. Input: PK3, Meta: PK2.",
        "OTSInvalidPK Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
        "ok",
    ]
    keys = [sizes, name, kind, key("good", 1)]
    written = batch_write([(table, [put(table, k, puts(c=1)) for k in keys])])
    assert outcomes(ask(client, written)) == [expected]
    assert outcomes(ask(client, batch_get([(table, keys)]))) == [expected]
    assert read_row(client, table, key("good", 1)) is not None


def test_a_missing_table_is_its_rows_error(client: ProtocolClient, table: str) -> None:
    written = batch_write(
        [("absent", [put("absent", PK)] * 2), (table, [put(table, PK), put(table, PK)])]
    )
    assert outcomes(ask(client, written)) == [[NO_TABLE, NO_TABLE], ["ok", "ok"]]
    read = batch_get([("absent", [PK, PK]), (table, [PK])])
    assert outcomes(ask(client, read)) == [[NO_TABLE, NO_TABLE], ["ok"]]


def test_answers_keep_the_order_of_tables_and_rows(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    first, second, third = make_table(), make_table(), make_table()
    wanted = [
        (second, [key("b", 2), key("b", 1), key("b", 2)]),
        (third, [key("c", 5)]),
        (first, [key("a", 9), key("a", 1)]),
    ]
    ask(client, batch_write([(t, [put(t, k, puts(t=t)) for k in ks]) for t, ks in wanted]))
    answer = ask(client, batch_get(wanted))
    assert [table.table_name for table in answer.tables] == [second, third, first]
    found = [[rows(row.row)[0].key for row in table.rows] for table in answer.tables]
    assert found == [[tuple(k) for k in keys] for _, keys in wanted]


def test_a_table_without_rows_can_be_read(client: ProtocolClient, table: str) -> None:
    answer = ask(client, batch_get([("empty", []), (table, [PK])]))
    assert [len(part.rows) for part in answer.tables] == [0, 1]


def test_a_row_written_often_is_written_in_order(client: ProtocolClient, table: str) -> None:
    row = key("often", 1)
    writes = [
        put(table, row, puts(a=1)),
        put(table, row, puts(b=2)),
        update(table, row, [Increment("b", 40), Put("c", 3)]),
    ]
    assert outcomes(ask(client, batch_write([(table, writes)]))) == [["ok"] * 3]
    found = read_row(client, table, row)
    assert found is not None
    assert [(name, value) for name, value, _ in found.columns] == [("b", 42), ("c", 3)]


def test_one_bad_row_does_not_spoil_the_rest(client: ProtocolClient, table: str) -> None:
    absent = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
    present = pb.Condition(row_existence=pb.EXPECT_EXIST)
    failed = "OTSConditionCheckFail Condition check failed."
    ask(client, put(table, key("one", 1), puts(c=1)))
    writes = [
        put(table, key("one", 1), puts(c=2), condition=absent),
        put(table, key("two", 1), puts(c=1), condition=absent),
        update(table, key("three", 1), puts(c=1), condition=present),
        delete(table, key("four", 1), condition=present),
        update(table, key("five", 1), [Put("c", 1, 1)]),
    ]
    results = outcomes(ask(client, batch_write([(table, writes)])))[0]
    assert results[:4] == [failed, "ok", failed, failed]
    assert results[4].startswith("OTSParameterInvalid "), "a version out of the table's bounds"
    assert read_row(client, table, key("two", 1)) is not None
    assert read_row(client, table, key("three", 1)) is None


# Rows that come twice.

ROW = "OTSParameterInvalid Repeated rows do not support row exist expectation check in BatchModify."
COLUMN = "OTSParameterInvalid Repeated rows do not support row condition check in BatchModify."
SIZE = "OTSInvalidPK Validate PK size fail. Input: 1, Meta: 2."
PRESENT = pb.Condition(row_existence=pb.EXPECT_EXIST)
ABSENT = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
REPEATED: dict[str, tuple[Callable[[str], list[Any]], list[str]]] = {
    "both expect something": (
        lambda t: [
            delete(t, key("r", 1), condition=PRESENT),
            update(t, key("r", 1), puts(c=1), condition=PRESENT),
        ],
        [ROW, ROW],
    ),
    "the second one expects something": (
        lambda t: [put(t, key("r", 1), puts(c=1)), put(t, key("r", 1), condition=ABSENT)],
        ["ok", ROW],
    ),
    "the first one expects something, others stand between": (
        lambda t: [
            put(t, key("r", 1), condition=PRESENT),
            put(t, key("r", 2), condition=ABSENT),
            put(t, key("s", 1)),
            put(t, key("r", 1), puts(c=1)),
        ],
        [ROW, "ok", "ok", "ok"],
    ),
    "both have a condition on a column": (
        lambda t: [
            update(t, key("r", 1), puts(c=1), condition=_on_column(pb.IGNORE)),
            update(t, key("r", 1), puts(d=1), condition=_on_column(pb.IGNORE)),
        ],
        [COLUMN, COLUMN],
    ),
    "one has both": (
        lambda t: [
            update(t, key("r", 1), puts(c=1), condition=_on_column(pb.EXPECT_EXIST)),
            put(t, key("r", 1), puts(d=1)),
        ],
        [ROW, "ok"],
    ),
    "three times": (
        lambda t: [put(t, key("r", 1), puts(c=n), condition=ABSENT) for n in range(3)],
        [ROW, ROW, ROW],
    ),
    "without any condition": (
        lambda t: [put(t, key("r", 1), puts(c=1)), delete(t, key("r", 1)), put(t, key("r", 1))],
        ["ok", "ok", "ok"],
    ),
    "a wrong key is no row": (
        lambda t: [put(t, key("r")), put(t, key("r")), put(t, key("r", 1), condition=ABSENT)],
        [SIZE, SIZE, "ok"],
    ),
}


def _on_column(expectation: Any) -> pb.Condition:
    compared = pb.SingleColumnValueFilter(
        comparator=pb.CT_EQUAL,
        column_name="c",
        column_value=variant.encode(1),
        filter_if_missing=False,
        latest_version_only=True,
    )
    test = pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=compared.SerializeToString())
    return pb.Condition(row_existence=expectation, column_condition=test.SerializeToString())


@pytest.mark.parametrize("case", REPEATED)
def test_a_row_that_comes_twice_has_no_condition(
    client: ProtocolClient, make_table: MakeTable, case: str
) -> None:
    table = make_table()
    writes, expected = REPEATED[case]
    assert outcomes(ask(client, batch_write([(table, writes(table))]))) == [expected]


def test_a_key_of_two_tables_is_two_rows(client: ProtocolClient, make_table: MakeTable) -> None:
    tables = make_table(), make_table()
    wanted = [(t, [put(t, key("r", 1), condition=ABSENT)]) for t in tables]
    assert outcomes(ask(client, batch_write(wanted))) == [["ok"], ["ok"]]


def test_rows_that_are_like_earlier_ones_have_no_condition_either(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    for number in range(20):
        several = [put(table, key("r", 10 * number + n), condition=ABSENT) for n in range(8)]
        assert outcomes(ask(client, batch_write([(table, several)]))) == [["ok"] * 8]
        several[7] = several[0]
        failed = "OTSConditionCheckFail Condition check failed."
        expected = [ROW, *[failed] * 6, ROW]
        assert outcomes(ask(client, batch_write([(table, several)]))) == [expected]


def test_a_double_is_looked_at_in_rows_that_are_like_earlier_ones(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    for number in range(20):
        several = [put(table, key("r", n), puts(a=1.5, b=n)) for n in range(8)]
        assert outcomes(ask(client, batch_write([(table, several)]))) == [["ok"] * 8]
        wrong = math.nan if number % 2 else math.inf
        several[5] = put(table, key("n", number), puts(a=wrong, b=1))
        text = "NaN" if number % 2 else "Infinity"
        expected = f"400 OTSParameterInvalid {text} can't be set to double value."
        assert refusal(client, batch_write([(table, several)])) == expected
        assert read_row(client, table, key("n", number)) is None


@pytest.mark.parametrize(
    ("versions", "over"), [((None, None), 0), ((None, None), 1), ((1, 2), 0), ((1, 2), 1)]
)
def test_a_batch_has_four_mebibytes_at_most(
    client: ProtocolClient, table: str, versions: tuple[int | None, int | None], over: int
) -> None:
    """Names and values count, and eight bytes for every version that is given."""
    now_ms = int(time.time() * 1000)
    given = [None if v is None else now_ms + v for v in versions]
    limit = 4 * 1024 * 1024
    row_key = key("k" * 10, 1)
    # Two rows: PK1 and PK2, ten bytes and eight, and a one-byte name each.
    left = limit + over - 2 * (3 + 10 + 3 + 8 + 1) - 8 * sum(v is not None for v in given)
    sizes = [left - left // 2, left // 2]
    # One cell may not exceed 2 MiB, so that the rest is in others.
    writes = [
        put(table, row_key, [Put("c", b"x" * size, v)])
        for size, v in zip(sizes, given, strict=True)
    ]
    refused = refusal(client, batch_write([(table, writes)]))
    if over:
        assert refused == (
            "400 OTSParameterInvalid The total data size of BatchWriteRow request exceeds the "
            f"limit, limit size: {limit}, data size: {limit + 1}."
        )
    else:
        assert refused == "ok"
