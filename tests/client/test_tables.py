"""Tables and indexes on a real server, in both forms."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.client import AUTO_INCREMENT, Client, Rejected, SecondaryIndex, TableDescription
from tests.client.forms import Form
from tests.support.waiting import until

pytestmark = pytest.mark.system

KEY = {"customer": str, "number": AUTO_INCREMENT}
COLUMNS = {"city": str, "total": float, "paid": bool, "count": int, "raw": bytes}
BY_CITY = SecondaryIndex("by_city", ["city"], ["total"])
BY_COUNT = SecondaryIndex("by_count", ["customer", "count"], is_local=True)


def describe_table(form: Form, table: str) -> TableDescription:
    found = form.do("describe_table", table)
    assert isinstance(found, TableDescription)
    return found


def test_a_table_is_described_as_it_was_created(form: Form) -> None:
    made = form.do(
        "create_table",
        "orders",
        KEY,
        defined_columns=COLUMNS,
        indexes=[BY_CITY, BY_COUNT],
        stream_hours=24,
    )
    assert made
    found = describe_table(form, "orders")
    assert (found.name, found.key, found.defined_columns) == ("orders", KEY, COLUMNS)
    assert list(found.key) == list(KEY)
    assert (found.max_versions, found.time_to_live_s, found.stream_hours) == (1, None, 24)
    assert {index.name: index.is_local for index in found.indexes} == {
        "by_city": False,
        "by_count": True,
    }
    assert form.do("list_tables").count("orders") == 1


def test_a_table_is_changed_and_deleted(form: Form) -> None:
    form.do("create_table", "t", {"k": bytes}, max_versions=2, time_to_live_s=86_400)
    form.do("update_table", "t", max_versions=5, stream_hours=12)
    found = describe_table(form, "t")
    assert (found.max_versions, found.time_to_live_s, found.stream_hours) == (5, 86_400, 12)
    form.do("update_table", "t", time_to_live_s=-1, stream_hours=0)
    found = describe_table(form, "t")
    assert (found.max_versions, found.time_to_live_s, found.stream_hours) == (5, None, 0)
    form.do("delete_table", "t")
    assert form.do("list_tables") == []
    with pytest.raises(Rejected) as failure:
        form.do("describe_table", "t")
    assert failure.value.code == "OTSObjectNotExist"
    assert failure.value.request_id


def test_a_table_is_made_once(form: Form) -> None:
    made = [form.do("create_table", "t", {"k": int}, if_missing=True) for _ in range(2)]
    assert made == [True, False]
    with pytest.raises(Rejected) as failure:
        form.do("create_table", "t", {"k": int})
    assert failure.value.code == "OTSObjectAlreadyExist"


def test_a_table_made_anew_with_another_key_is_used_at_once(form: Form, access: Any) -> None:
    form.do("create_table", "t", {"k": int})
    form.do("put", "t", {"k": 1})
    with Client(**access) as other:
        other.delete_table("t")
        other.create_table("t", {"name": str})
    assert form.do("put", "t", {"name": "a", "v": 1}) == {"name": "a"}
    assert form.rows("t") == [{"name": "a", "v": 1}]


def test_an_index_is_read_as_a_table(form: Form) -> None:
    form.do("create_table", "t", {"customer": str, "number": int}, defined_columns={"count": int})
    for number, count in enumerate((7, 3, 5)):
        form.do("put", "t", {"customer": "ada", "number": number, "count": count})
    form.do("create_index", "t", SecondaryIndex("by_count", ["customer", "count"], is_local=True))
    form.do("put", "t", {"customer": "ada", "number": 3, "count": 1})
    until(lambda: all(index.is_complete for index in describe_table(form, "t").indexes))
    rows = form.rows("by_count", prefix={"customer": "ada"}, reverse=True, limit=3)
    assert [row["count"] for row in rows] == [7, 5, 3]
    form.do("add_columns", "t", {"note": str})
    assert describe_table(form, "t").defined_columns == {"count": int, "note": str}
    form.do("delete_columns", "t", ["note"])
    form.do("drop_index", "t", "by_count")
    assert describe_table(form, "t").indexes == []


@pytest.mark.parametrize("key", [{"k": float}, {"k": None}])
def test_a_type_that_no_key_has_is_a_type_error(form: Form, key: Any) -> None:
    with pytest.raises(TypeError, match="column 'k' has a type"):
        form.do("create_table", "t", key)
