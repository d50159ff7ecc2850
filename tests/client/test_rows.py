"""Rows, ranges, batches and transactions on a real server, in both forms."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rowtide.client import (
    AUTO_INCREMENT,
    INF_MAX,
    INF_MIN,
    BatchFailed,
    ColumnPage,
    ConditionFailed,
    DeleteRow,
    Predicate,
    PutRow,
    Rejected,
    UpdateRow,
    Versioned,
    column,
)
from tests.client.forms import Form, Step

pytestmark = pytest.mark.system

ROW: dict[str, Any] = {"a": "x", "b": 1}


@pytest.fixture
def table(form: Form) -> str:
    """A table with a key of two columns, ``a`` and ``b``."""
    form.do("create_table", "t", {"a": str, "b": int}, max_versions=3)
    return "t"


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, 2**63 - 1, -(2**63)),
        *(0.0, -0.0, 1.0, 1e308, 5e-324, -2.5),
        *(True, False),
        *("", "a", "ünï\0code 漢字 🚀"),
        *(b"", b"\0\xff", bytes(range(256)) * 300),
    ],
)
def test_a_value_comes_back_as_it_was_put(form: Form, table: str, value: Any) -> None:
    form.do("put", table, {**ROW, "v": value})
    found = form.do("get", table, ROW)["v"]
    assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize(
    ("types", "key"),
    [
        ({"k": int}, {"k": -(2**63)}),
        ({"k": str}, {"k": "ü" * 500}),
        ({"k": bytes}, {"k": b"\0\x01\xff"}),
        ({"a": str, "b": int, "c": bytes, "d": str}, {"a": "", "b": 0, "c": b"", "d": "x"}),
    ],
)
def test_a_key_comes_back_as_it_was_put(form: Form, types: Any, key: Any) -> None:
    form.do("create_table", "keys", types)
    assert form.do("put", "keys", {**key, "v": 1}) == key
    assert form.do("get", "keys", key) == {**key, "v": 1}
    # The order of a dictionary does not matter.
    assert form.do("get", "keys", dict(reversed(key.items()))) == {**key, "v": 1}


def test_bytes_may_be_a_bytearray_or_a_memoryview(form: Form, table: str) -> None:
    form.do("put", table, {**ROW, "m": memoryview(b"m"), "a2": bytearray(b"b")})
    assert form.do("get", table, ROW) == {**ROW, "m": b"m", "a2": b"b"}


def test_a_put_replaces_and_an_update_merges(form: Form, table: str) -> None:
    form.do("put", table, {**ROW, "kept": 1, "gone": 2})
    form.do("update", table, {**ROW, "new": 3}, delete=["gone"])
    assert form.do("get", table, ROW) == {**ROW, "kept": 1, "new": 3}
    form.do("put", table, {**ROW, "only": 4})
    assert form.do("get", table, ROW) == {**ROW, "only": 4}
    form.do("delete", table, ROW)
    assert form.do("get", table, ROW) is None


def test_an_increment_returns_the_new_value(form: Form, table: str) -> None:
    counts = [
        form.do("update", table, ROW, increment={"n": by}, returning=["n"])["n"] for by in (1, 5)
    ]
    assert counts == [1, 6]


def test_the_server_numbers_a_key(form: Form) -> None:
    form.do("create_table", "numbered", {"a": str, "n": AUTO_INCREMENT})
    keys = [form.do("put", "numbered", {"a": "x", "v": number}) for number in range(3)]
    numbers = [key["n"] for key in keys]
    assert numbers == sorted(set(numbers))
    assert [form.do("get", "numbered", key)["v"] for key in keys] == [0, 1, 2]
    written = form.do("write", [PutRow("numbered", {"a": "x", "n": AUTO_INCREMENT, "v": 3})])
    assert form.do("get", "numbered", written[0])["v"] == 3


def test_a_read_may_ask_for_some_columns(form: Form, table: str) -> None:
    form.do("put", table, {**ROW, "v": 1, "w": 2})
    assert form.do("get", table, ROW, columns=["w"]) == {**ROW, "w": 2}
    assert form.do("get", table, ROW, columns=["absent"]) == ROW
    assert form.do("get", table, ROW, filter=ColumnPage(limit=1)) == {**ROW, "v": 1}


def test_versions_are_read_newest_first(form: Form, table: str) -> None:
    form.do("put", table, {**ROW, "v": 0})
    newest = form.do("get_versions", table, ROW)["v"][0].version_ms
    for value in (1, 2):
        form.do("update", table, {**ROW, "v": Versioned(value, newest + value)})
    found = form.do("get_versions", table, ROW)
    assert found == {"v": [Versioned(value, newest + value) for value in (2, 1, 0)]}
    assert form.do("get_versions", table, ROW, max_versions=1)["v"][0].value == 2
    assert form.do("get", table, ROW) == {**ROW, "v": 2}
    assert form.do("get_versions", table, {"a": "absent", "b": 1}) == {}


@pytest.mark.parametrize(
    ("expect", "condition", "applies"),
    [
        ("anything", None, True),
        ("exists", None, True),
        ("absent", None, False),
        ("exists", column("v") == 1, True),
        ("exists", column("v") == 1.0, False),
        ("anything", column("v") != 1, False),
        ("anything", (column("v") > 0) & (column("s") >= "m"), True),
        ("anything", (column("v") < 0) | ~(column("s") <= "m"), True),
        ("anything", column("absent") == 1, False),
        ("anything", column("absent", or_missing=True) == 1, True),
        ("anything", column("absent").is_missing() & column("s").exists(), True),
        ("anything", column("b") == 1, True),
        ("anything", column("y") == b"\0", True),
        ("anything", column("t") == True, True),  # noqa: E712 - a predicate.
    ],
)
def test_a_write_may_have_a_condition(
    form: Form, table: str, expect: str, condition: Predicate | None, applies: bool
) -> None:
    before = {**ROW, "v": 1, "s": "text", "y": b"\0", "t": True}
    form.do("put", table, before)
    options = {"expect": expect, "condition": condition}
    if applies:
        form.do("update", table, {**ROW, "done": 1}, **options)
        assert form.do("get", table, ROW) == {**before, "done": 1}
        form.do("delete", table, ROW, **options)
        assert form.do("get", table, ROW) is None
    else:
        for name in ("put", "update"):
            with pytest.raises(ConditionFailed):
                form.do(name, table, {**ROW, "done": 1}, **options)
        with pytest.raises(ConditionFailed):
            form.do("delete", table, ROW, **options)
        assert form.do("get", table, ROW) == before


KEYS = [("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2), ("z", 1)]
END = {"a": INF_MAX, "b": INF_MAX}


@pytest.mark.parametrize(
    ("bounds", "options", "found"),
    [
        ([], {}, KEYS),
        ([], {"page_rows": 2}, KEYS),
        ([], {"limit": 4, "page_rows": 3}, KEYS[:4]),
        ([], {"limit": 0}, []),
        ([], {"reverse": True}, KEYS[::-1]),
        ([{"a": "x"}], {}, KEYS),
        ([{"a": "y"}], {}, KEYS[3:]),
        ([{"a": "x"}, {"a": "y"}], {}, KEYS[:3]),
        ([{"a": "x", "b": 2}, {"a": "y", "b": 2}], {}, KEYS[1:4]),
        ([{"a": "y"}, {"a": "x"}], {"reverse": True}, [("y", 2), ("y", 1)]),
        ([{"a": "y", "b": 1}, {"a": "x", "b": 1}], {"reverse": True}, KEYS[3:0:-1]),
        ([{"a": INF_MIN, "b": INF_MIN}, END], {}, KEYS),
        ([{"a": "x", "b": INF_MAX}, END], {}, KEYS[3:]),
        ([], {"prefix": {"a": "y"}}, KEYS[3:5]),
        ([], {"prefix": {"a": "x"}, "reverse": True, "limit": 2}, [("x", 3), ("x", 2)]),
        ([], {"prefix": {"a": "absent"}}, []),
        ([], {"filter": column("b") == 1, "page_rows": 1}, [("x", 1), ("y", 1), ("z", 1)]),
    ],
)
def test_a_range_is_read_to_its_end(
    form: Form, table: str, bounds: Any, options: Any, found: Any
) -> None:
    form.do("write", [PutRow(table, {"a": a, "b": b, "v": 1}) for a, b in KEYS])
    rows = form.rows(table, *bounds, **options)
    assert [(row["a"], row["b"]) for row in rows] == found
    assert all(row["v"] == 1 for row in rows)


def test_a_row_that_fits_no_answer_is_read_whole(form: Form, table: str) -> None:
    big = {f"c{number:02}": bytes([number]) * (2 * 1024 * 1024) for number in range(6)}
    for name, value in big.items():
        form.do("update", table, {**ROW, name: value})
    form.do("put", table, {"a": "y", "b": 1})
    assert form.do("get", table, ROW) == {**ROW, **big}
    assert form.rows(table) == [{**ROW, **big}, {"a": "y", "b": 1}]


def test_rows_are_read_in_the_order_of_their_keys(form: Form, table: str) -> None:
    keys: list[dict[str, Any]] = [{"a": "x", "b": number} for number in range(250)]
    for at in range(0, 250, 200):
        form.do("write", [PutRow(table, {**key, "v": key["b"]}) for key in keys[at : at + 200]])
    wanted = [*reversed(keys), {"a": "absent", "b": 0}]
    found = form.do("get_many", table, wanted, columns=["v"])
    assert found == [*({**key, "v": key["b"]} for key in reversed(keys)), None]
    assert form.do("get_many", table, []) == []


def test_a_batch_writes_rows_of_several_tables(form: Form, table: str) -> None:
    form.do("create_table", "other", {"k": int})
    form.do("put", table, {**ROW, "n": 1, "gone": 1})
    keys = form.do(
        "write",
        [
            PutRow("other", {"k": 1, "v": "one"}),
            UpdateRow(table, {**ROW, "s": "t"}, delete=["gone"], increment={"n": 2}),
            PutRow("other", {"k": 2}, expect="absent"),
            DeleteRow(table, {"a": "absent", "b": 0}),
        ],
    )
    assert keys == [{"k": 1}, ROW, {"k": 2}, {"a": "absent", "b": 0}]
    assert form.do("get", table, ROW) == {**ROW, "n": 3, "s": "t"}
    assert form.rows("other") == [{"k": 1, "v": "one"}, {"k": 2}]
    assert form.do("write", []) == []


@pytest.mark.parametrize(("atomic", "written"), [(False, [0, 2]), (True, [])])
def test_a_row_of_a_batch_fails_alone_unless_it_is_atomic(
    form: Form, table: str, atomic: bool, written: list[int]
) -> None:
    rows: list[dict[str, Any]] = [{"a": "x", "b": number} for number in range(3)]
    form.do("put", table, {**rows[1], "v": 0})
    writes = [PutRow(table, {**row, "v": 1}, expect="absent") for row in rows]
    with pytest.raises(BatchFailed) as failure:
        form.do("write", writes, atomic=atomic)
    kept = [n for n, outcome in enumerate(failure.value.outcomes) if outcome.failure is None]
    assert kept == written
    assert [row["b"] for row in form.rows(table) if row["v"] == 1] == written


def test_a_transaction_shows_whole_at_its_commit(form: Form, table: str) -> None:
    form.do("put", table, {**ROW, "n": 1})
    second: dict[str, Any] = {"a": "x", "b": 2}
    found = form.transact(
        table,
        "x",
        Step("get", [ROW]),
        Step("update", [ROW], {"increment": {"n": 4}, "returning": ["n"]}),
        Step("put", [{**second, "v": 1}], {"expect": "absent"}),
        Step("write", [[PutRow(table, {"a": "x", "b": 3})]]),
        Step("range"),
        Step("range", [{"b": 2}, {"b": 3}]),
        Step("delete", [second]),
    )
    assert found[:2] == [{**ROW, "n": 1}, {"n": 5}]
    assert [row["b"] for row in found[4]] == [1, 2, 3]
    assert found[5] == [{**second, "v": 1}]
    assert form.rows(table) == [{**ROW, "n": 5}, {"a": "x", "b": 3}]


def test_a_transaction_that_fails_leaves_nothing(form: Form, table: str) -> None:
    with pytest.raises(ConditionFailed):
        form.transact(table, "x", Step("put", [ROW]), Step("put", [{**ROW}], {"expect": "absent"}))
    assert form.do("get", table, ROW) is None
    # It was aborted: the rows are free at once.
    form.transact(table, "x", Step("put", [ROW]))
    with pytest.raises(Rejected) as failure:
        form.transact(table, "x", Step("put", [{"a": "y", "b": 1}]))
    assert failure.value.code == "OTSDataOutOfRange"


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        ("put", [{"a": "x"}], "The key column 'b' is missing: the table's key is a, b."),
        ("get", [{"a": "x", "b": 1, "c": 2}], "'c' is no key column: the table's key is a, b."),
        ("put", [{**ROW, "v": 2**63}], "Column 'v': 9223372036854775808 does not fit 64 bits."),
        ("put", [{**ROW, "v": bytes(2**21 + 1)}], "exceeds the MaxLength:2097152"),
        ("put", [{"a": "ü" * 600, "b": 1}], "exceeds the MaxLength:1024 with CurrentLength:1200"),
        ("put", [{**ROW, "#": 1}], "Invalid column name: '#'."),
        ("put", [ROW | {f"c{n}": n for n in range(1025)}], "limit count: 1024, column count: 1025"),
    ],
)
def test_a_limit_is_named_before_anything_is_sent(
    form: Form, table: str, call: str, arguments: Any, message: str
) -> None:
    with pytest.raises(Rejected, match=re.escape(message)) as failure:
        form.do(call, table, *arguments)
    assert failure.value.request_id == ""


def test_a_batch_of_too_many_rows_is_not_sent(form: Form, table: str) -> None:
    writes = [PutRow(table, {"a": "x", "b": number}) for number in range(201)]
    with pytest.raises(Rejected, match="exceeds the upper limit: 200, with 201 rows"):
        form.do("write", writes)
    assert form.rows(table) == []


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, 1j])
def test_a_value_of_another_type_is_a_type_error(form: Form, table: str, value: Any) -> None:
    with pytest.raises(TypeError, match="column 'v' takes int, float, bool, str or bytes"):
        form.do("put", table, {**ROW, "v": value})


def test_a_predicate_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match=r"combine with & \| ~"):
        bool(column("a") == 1)
