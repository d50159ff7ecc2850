"""What a write does: expectations, column conditions, increments, assigned keys, returned rows."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Change, Delete, Increment, Put, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_write,
    delete,
    get_range,
    key,
    outcomes,
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

FAILED = "403 OTSConditionCheckFail Condition check failed."
INVALID = "400 OTSParameterInvalid "
INT64_MAX = 2**63 - 1
ABSENT = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
PRESENT = pb.Condition(row_existence=pb.EXPECT_EXIST)
VALUES: dict[str, Any] = {
    "integer": 5,
    "integer_min": -(2**63),
    "integer_max": INT64_MAX,
    "double": -1.5e300,
    "double_zero": -0.0,
    "double_max": 1.7976931348623157e308,
    "double_least": 5e-324,
    "true": True,
    "false": False,
    "text": "Grüße, 你好 \U0001f30a \0 end",
    "text_empty": "",
    "bytes": bytes(range(256)),
    "bytes_empty": b"",
}
_numbers = count()


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER."""
    return make_table(options=pb.TableOptions(max_versions=3))


@pytest.fixture
def row() -> Any:
    """Return a key that no other test uses."""
    return key("row", next(_numbers))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_read_as_it_was_written(
    client: ProtocolClient, table: str, row: Any, name: str
) -> None:
    value = VALUES[name]
    ask(client, put(table, row, [Put("c", value)]))
    found = read_row(client, table, row)
    assert found is not None
    (column,) = found.columns
    assert variant.encode(column.value) == variant.encode(value), "type and bits"


KEY_VALUES = [
    ("", -(2**63)),
    ("", INT64_MAX),
    ("\0", 0),
    ("é" * 512, -1),
    ("你\U0001f30a", 1),
]


@pytest.mark.parametrize("values", KEY_VALUES)
def test_a_key_may_be_at_its_edges(
    client: ProtocolClient, table: str, values: tuple[Any, ...]
) -> None:
    ask(client, put(table, key(*values), puts(c=1)))
    found = read_row(client, table, key(*values))
    assert found is not None
    assert [value for _, value in found.key] == list(values)


def test_one_name_holds_another_type_in_the_next_version(
    client: ProtocolClient, table: str, row: Any
) -> None:
    for value in (1, "one", b"one"):
        ask(client, update(table, row, [Put("c", value)]))
    found = read_row(client, table, row, max_versions=3)
    assert found is not None
    assert {type(column.value) for column in found.columns} <= {int, str, bytes}
    assert shown(found) == {"c": b"one"}


def test_put_replaces_and_update_merges(client: ProtocolClient, table: str, row: Any) -> None:
    ask(client, put(table, row, puts(a=1, b=2)))
    ask(client, update(table, row, puts(b=3, c=4)))
    assert shown(read_row(client, table, row)) == {"a": 1, "b": 3, "c": 4}
    ask(client, put(table, row, puts(d=5)))
    assert shown(read_row(client, table, row, max_versions=3)) == {"d": 5}


def test_a_row_may_have_no_columns(client: ProtocolClient, table: str, row: Any) -> None:
    ask(client, put(table, row))
    assert shown(read_row(client, table, row)) == {}
    assert outcomes(ask(client, batch_write([(table, [put(table, row)])]))) == [["ok"]]


def test_columns_come_in_the_order_of_their_bytes(
    client: ProtocolClient, table: str, row: Any
) -> None:
    names = ["b", "a", "Z", "é", "z", "aa", "你", "_", "1"]
    ask(client, put(table, row, [Put(name, 1) for name in names]))
    found = read_row(client, table, row)
    assert found is not None
    assert [column.name for column in found.columns] == sorted(names, key=str.encode)


def test_a_row_of_1024_columns_takes_more_by_updates(
    client: ProtocolClient, table: str, row: Any
) -> None:
    for part in range(3):
        cells = [Put(f"c{part}_{n:04}", n) for n in range(1024)]
        ask(client, update(table, row, cells))
    found = read_row(client, table, row)
    assert found is not None
    assert len(found.columns) == 3072


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("write", [put, update, delete])
def test_an_expectation_is_met_or_nothing_is_written(
    client: ProtocolClient, table: str, row: Any, write: Any, there: bool
) -> None:
    before = {"c": 1} if there else None
    if there:
        ask(client, put(table, row, puts(c=1)))
    wrong = ABSENT if there else PRESENT
    cells = () if write is delete else (puts(c=2),)
    assert refusal(client, write(table, row, *cells, condition=wrong)) == FAILED
    assert shown(read_row(client, table, row)) == before
    right = PRESENT if there else ABSENT
    assert refusal(client, write(table, row, *cells, condition=right)) == "ok"
    assert shown(read_row(client, table, row)) == (None if write is delete else {"c": 2})


def test_a_delete_of_nothing_succeeds(client: ProtocolClient, table: str, row: Any) -> None:
    assert refusal(client, delete(table, row)) == "ok"
    assert read_row(client, table, row) is None


def test_an_update_that_only_deletes_makes_no_row(
    client: ProtocolClient, table: str, row: Any
) -> None:
    assert refusal(client, update(table, row, [Delete("c"), Delete("d", 5)])) == "ok"
    assert read_row(client, table, row) is None


def test_a_row_stays_when_its_last_column_is_deleted(
    client: ProtocolClient, table: str, row: Any
) -> None:
    ask(client, put(table, row, puts(c=1)))
    ask(client, update(table, row, [Delete("c")]))
    assert shown(read_row(client, table, row)) == {}


# Column conditions: one comparison, as a filter of a single column.


def make_comparison(
    name: str, comparator: int, value: Any, *, missing_fails: bool = True, latest: bool = True
) -> pb.Filter:
    """Return a filter that compares one column."""
    leaf = pb.SingleColumnValueFilter(
        comparator=pb.ComparatorType.Name(comparator),
        column_name=name,
        column_value=variant.encode(value),
        filter_if_missing=missing_fails,
        latest_version_only=latest,
    )
    kind = pb.FT_SINGLE_COLUMN_VALUE
    return pb.Filter(type=kind, filter=leaf.SerializeToString())


def combine(combinator: int, *parts: pb.Filter) -> pb.Filter:
    """Return a filter that combines others."""
    node = pb.CompositeColumnValueFilter(
        combinator=pb.LogicalOperator.Name(combinator), sub_filters=parts
    )
    return pb.Filter(type=pb.FT_COMPOSITE_COLUMN_VALUE, filter=node.SerializeToString())


def on(condition: pb.Filter) -> pb.Condition:
    """Return a condition on columns alone."""
    condition_bytes = condition.SerializeToString()
    return pb.Condition(row_existence=pb.IGNORE, column_condition=condition_bytes)


CONDITIONS: dict[str, tuple[pb.Filter, bool]] = {
    "equal": (make_comparison("n", pb.CT_EQUAL, 5), True),
    "not equal": (make_comparison("n", pb.CT_NOT_EQUAL, 5), False),
    "greater": (make_comparison("n", pb.CT_GREATER_THAN, 4), True),
    "greater or equal": (make_comparison("n", pb.CT_GREATER_EQUAL, 6), False),
    "less": (make_comparison("n", pb.CT_LESS_THAN, 5), False),
    "less or equal": (make_comparison("n", pb.CT_LESS_EQUAL, 5), True),
    "another type": (make_comparison("n", pb.CT_EQUAL, "5"), False),
    "missing fails": (make_comparison("x", pb.CT_EQUAL, 5), False),
    "missing passes": (make_comparison("x", pb.CT_EQUAL, 5, missing_fails=False), True),
    "text": (make_comparison("s", pb.CT_LESS_THAN, "b"), True),
    "a key column": (make_comparison("PK1", pb.CT_EQUAL, "row"), True),
    "and": (
        combine(
            pb.LO_AND, make_comparison("n", pb.CT_EQUAL, 5), make_comparison("s", pb.CT_EQUAL, "b")
        ),
        False,
    ),
    "or": (
        combine(
            pb.LO_OR, make_comparison("n", pb.CT_EQUAL, 5), make_comparison("s", pb.CT_EQUAL, "b")
        ),
        True,
    ),
    "not": (combine(pb.LO_NOT, make_comparison("n", pb.CT_EQUAL, 5)), False),
}


@pytest.mark.parametrize("case", CONDITIONS)
@pytest.mark.parametrize("write", [put, update, delete])
def test_a_column_condition_decides_a_write(
    client: ProtocolClient, table: str, row: Any, write: Any, case: str
) -> None:
    condition, passes = CONDITIONS[case]
    ask(client, put(table, row, puts(n=5, s="a")))
    cells = () if write is delete else (puts(z=1),)
    answer = refusal(client, write(table, row, *cells, condition=on(condition)))
    assert answer == ("ok" if passes else FAILED)


def test_a_condition_on_an_absent_row_passes_where_missing_passes(
    client: ProtocolClient, table: str, row: Any
) -> None:
    strict = on(make_comparison("n", pb.CT_EQUAL, 5))
    lax = on(make_comparison("n", pb.CT_EQUAL, 5, missing_fails=False))
    assert refusal(client, put(table, row, puts(n=1), condition=strict)) == FAILED
    assert refusal(client, put(table, row, puts(n=1), condition=lax)) == "ok"
    assert refusal(client, put(table, row, puts(n=2), condition=lax)) == FAILED


REFUSED: dict[str, tuple[pb.Filter, str]] = {
    "NOT of two": (
        combine(pb.LO_NOT, *[make_comparison("n", pb.CT_EQUAL, 5)] * 2),
        "Invalid NOT operator: the number of sub-filters must be 1.",
    ),
    "AND of one": (
        combine(pb.LO_AND, make_comparison("n", pb.CT_EQUAL, 5)),
        "Invalid AND/OR operator: the number of sub-filters must be more than 1.",
    ),
    "33 filters": (
        combine(pb.LO_OR, *[make_comparison("n", pb.CT_EQUAL, 5)] * 32),
        "The count of filter exceeds the max: 32.",
    ),
    "a bad column": (make_comparison("#abc", pb.CT_EQUAL, 5), "Invalid column name: '#abc'."),
    "a long value": (
        make_comparison("n", pb.CT_EQUAL, "x" * 2097153),
        "The length of attribute column: 'n' exceeds the MaxLength:2097152 with "
        "CurrentLength:2097153.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_condition_or_filter_without_sense_is_refused(
    client: ProtocolClient, table: str, row: Any, case: str
) -> None:
    wrong, text = REFUSED[case]
    bounds = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
    assert refusal(client, put(table, row, condition=on(wrong))) == INVALID + text
    read = get_range(table, *bounds, filter=wrong.SerializeToString())
    assert refusal(client, read) == INVALID + text


def test_a_chain_of_a_thousand_filters_is_counted(
    client: ProtocolClient, table: str, row: Any
) -> None:
    deep = make_comparison("n", pb.CT_EQUAL, 5)
    for _ in range(1000):
        deep = combine(pb.LO_NOT, deep)
    answer = refusal(client, put(table, row, condition=on(deep)))
    assert answer == INVALID + "The count of filter exceeds the max: 32."


def test_32_filters_are_taken(client: ProtocolClient, table: str, row: Any) -> None:
    most = combine(pb.LO_OR, *[make_comparison("n", pb.CT_EQUAL, 5, missing_fails=False)] * 31)
    assert refusal(client, put(table, row, condition=on(most))) == "ok"


# Increments.


def returning(kind: int, *names: str) -> pb.ReturnContent:
    """Return what asks for a row in a write's answer."""
    return pb.ReturnContent(return_type=pb.ReturnType.Name(kind), return_column_names=names)


def test_an_increment_adds_and_a_missing_column_counts_zero(
    client: ProtocolClient, table: str, row: Any
) -> None:
    ask(client, update(table, row, [Increment("n", 5)]))
    ask(client, update(table, row, [Increment("n", -7), Increment("m", INT64_MAX)]))
    assert shown(read_row(client, table, row)) == {"m": INT64_MAX, "n": -2}


def test_the_result_of_an_increment_is_returned(
    client: ProtocolClient, table: str, row: Any
) -> None:
    ask(client, put(table, row, puts(n=40, c="x")))
    changes: list[Change] = [Increment("n", 2), Increment("m", 1), Put("c", "y")]
    content = returning(pb.RT_AFTER_MODIFY, "n")
    (result,) = rows(ask(client, update(table, row, changes, return_content=content)).row)
    assert result.key == (), "the columns alone, as the Elixir client's tests expect"
    assert shown(result) == {"n": 42}
    found = read_row(client, table, row)
    assert found is not None
    assert result.columns[0] in found.columns, "the version too"


def test_no_column_named_is_the_key_alone(client: ProtocolClient, table: str, row: Any) -> None:
    content = returning(pb.RT_AFTER_MODIFY)
    (result,) = rows(
        ask(client, update(table, row, [Increment("n", 2)], return_content=content)).row
    )
    assert (result.key, result.columns) == (tuple(row), ())


def test_several_results_are_returned_in_the_order_of_their_names(
    client: ProtocolClient, table: str, row: Any
) -> None:
    content = returning(pb.RT_AFTER_MODIFY, "z", "a")
    changes = [Increment("z", 1), Increment("a", 2), Increment("b", 3)]
    (result,) = rows(ask(client, update(table, row, changes, return_content=content)).row)
    assert result.key == ()
    assert [(name, value) for name, value, _ in result.columns] == [("a", 2), ("z", 1)]


def test_an_increment_in_a_batch_is_returned(client: ProtocolClient, table: str, row: Any) -> None:
    change = update(
        table, row, [Increment("n", 2)], return_content=returning(pb.RT_AFTER_MODIFY, "n")
    )
    answer = ask(client, batch_write([(table, [change, change])]))
    results = [rows(result.row)[0] for result in answer.tables[0].rows]
    assert [(result.key, shown(result)) for result in results] == [((), {"n": 2}), ((), {"n": 4})]


@pytest.mark.parametrize("value", ["5", 5.0, True, b"5"])
def test_only_an_integer_can_be_incremented(
    client: ProtocolClient, table: str, row: Any, value: Any
) -> None:
    ask(client, put(table, row, [Put("n", value)]))
    assert refusal(client, update(table, row, [Increment("n", 1)])).startswith(INVALID)
    assert shown(read_row(client, table, row)) == {"n": value}


@pytest.mark.parametrize(("start", "by"), [(INT64_MAX, 1), (-(2**63), -1)])
def test_an_increment_does_not_overflow(
    client: ProtocolClient, table: str, row: Any, start: int, by: int
) -> None:
    ask(client, put(table, row, puts(n=start)))
    assert refusal(client, update(table, row, [Increment("n", by)])).startswith(INVALID)
    assert shown(read_row(client, table, row)) == {"n": start}


def test_increments_make_new_versions_newest_first(
    client: ProtocolClient, table: str, row: Any
) -> None:
    for _ in range(4):
        ask(client, update(table, row, [Increment("n", 1)]))
    found = read_row(client, table, row, max_versions=3)
    assert found is not None
    versions = [column.version_ms for column in found.columns]
    assert versions == sorted(versions, key=lambda at: -(at or 0))
    assert found.columns[0].value == 4


# Returned rows and assigned keys.


@pytest.mark.parametrize("write", [put, update])
def test_a_write_returns_its_key_when_asked(
    client: ProtocolClient, table: str, row: Any, write: Any
) -> None:
    assert not ask(client, write(table, row, puts(c=1))).row
    nothing = write(table, row, puts(c=1), return_content=returning(pb.RT_NONE))
    assert not ask(client, nothing).row
    asked = write(table, row, puts(c=1), return_content=returning(pb.RT_PK))
    (result,) = rows(ask(client, asked).row)
    assert (result.key, result.columns) == (tuple(row), ())


def test_a_delete_returns_its_key_when_asked(client: ProtocolClient, table: str, row: Any) -> None:
    (result,) = rows(ask(client, delete(table, row, return_content=returning(pb.RT_PK))).row)
    assert result.key == tuple(row)


@pytest.fixture(scope="module")
def auto_table(make_table: MakeTable) -> str:
    """Return a table whose second key column is assigned."""
    return make_table([KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER, auto_increment=True)])


@pytest.mark.parametrize("write", [put, update])
def test_assigned_values_are_unique_and_increase(
    client: ProtocolClient, auto_table: str, row: Any, write: Any
) -> None:
    partition = f"p{row[1][1]}"
    asked = write(
        auto_table,
        key(partition, Special.AUTO_INCREMENT),
        puts(c=1),
        return_content=returning(pb.RT_PK),
    )
    numbers = [rows(ask(client, asked).row)[0].key[1][1] for _ in range(20)]
    batch = ask(client, batch_write([(auto_table, [asked] * 20)]))
    numbers += [rows(result.row)[0].key[1][1] for result in batch.tables[0].rows]
    assert numbers == sorted(set(numbers), key=int)
    everything = get_range(auto_table, key(partition, INF_MIN), key(partition, INF_MAX))
    assert [found.key[1][1] for found in rows(ask(client, everything).rows)] == numbers


def test_an_increment_may_go_with_an_assigned_key(client: ProtocolClient, auto_table: str) -> None:
    asked = update(
        auto_table,
        key("both", Special.AUTO_INCREMENT),
        [Increment("n", 3)],
        return_content=returning(pb.RT_PK),
    )
    (result,) = rows(ask(client, asked).row)
    assert shown(read_row(client, auto_table, result.key)) == {"n": 3}


def test_a_named_value_of_an_assigned_column_must_exist(
    client: ProtocolClient, auto_table: str
) -> None:
    assert refusal(client, put(auto_table, key("named", 5), puts(c=1))) == FAILED
    assert refusal(client, update(auto_table, key("named", 5), puts(c=1))) == FAILED
    assert refusal(client, delete(auto_table, key("named", 5))) == "ok"
    asked = put(
        auto_table,
        key("named", Special.AUTO_INCREMENT),
        puts(c=1),
        return_content=returning(pb.RT_PK),
    )
    (result,) = rows(ask(client, asked).row)
    assert refusal(client, put(auto_table, result.key, puts(c=2))) == "ok"
    assert refusal(client, update(auto_table, result.key, puts(d=2))) == "ok"
    assert shown(read_row(client, auto_table, result.key)) == {"c": 2, "d": 2}
