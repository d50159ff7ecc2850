"""Rows become documents and come back, whatever their columns are called and hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.rows import SinkRow
from rowtide.connectors.sinks.opensearch.documents import FieldPlan, id_of, tombstone
from tests.connectors.sink_histories import VALUES, Columns, row

OWN = ("_rowtide", "@rest", "id")
NO_NAMES = frozenset({"id"})


class Index:
    """The fields of an index that takes any; clashes are the plan's to avoid."""

    def __init__(self, fields_max: int = 1000) -> None:
        self.plan = FieldPlan(fields_max)
        self.properties: dict[str, Mapping[str, object]] = {}

    def put(self, *rows: SinkRow) -> list[dict[str, Any]]:
        while lacking := self.plan.lacking(rows):
            assert not lacking.keys() & self.properties.keys()
            self.properties.update(lacking)
            self.plan.load(self.properties)
        return [json.loads(self.plan.document(one)) for one in rows]

    def types(self) -> dict[str, object]:
        return {field: kind["type"] for field, kind in self.properties.items() if field != "id"}


def fields(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in OWN}


def test_a_column_has_a_field_of_its_name_and_one_beside_it_per_other_type() -> None:
    index = Index()
    documents = index.put(row("a", 1, {"size": 5}), row("b", 2, {"size": "XL"}))
    documents += index.put(row("c", 3, {"size": 6}), row("d", 4, {"size": True}))
    assert list(map(fields, documents)) == [
        {"size": 5},
        {"size@string": "XL"},
        {"size": 6},
        {"size@boolean": True},
    ]
    assert index.types() == {"size": "long", "size@string": "text", "size@boolean": "boolean"}


def test_the_plain_field_is_of_the_type_most_frequent_when_it_was_first_seen() -> None:
    index = Index()
    index.put(row("a", 1, {"x": 5}), row("b", 2, {"x": "one"}), row("c", 3, {"x": "two"}))
    assert index.types() == {"x": "text", "x@integer": "long"}


def test_numbers_share_a_field_where_doubles_are_seen_first() -> None:
    index = Index()
    documents = index.put(row("a", 1, {"x": 5}), row("b", 2, {"x": 0.5}), row("c", 3, {"x": 2**62}))
    assert list(map(fields, documents)) == [{"x": 5}, {"x": 0.5}, {"x": 2**62}]
    assert index.types() == {"x": "double"}


def test_names_that_mean_something_to_the_cluster_are_written_otherwise() -> None:
    index = Index()
    columns: Columns = {"a.b": 1, "_id": 2, "": 3, "x@string": 4, "100%": 5, "ü": 6, "a b": 7}
    [document] = index.put(row("a", 1, columns))
    assert fields(document) == {
        "a%2Eb": 1,
        "%5Fid": 2,
        "%": 3,
        "x%40string": 4,
        "100%25": 5,
        "ü": 6,
        "a%20b": 7,
    }


def test_beyond_the_bound_columns_are_kept_without_a_field() -> None:
    index = Index(fields_max=4)
    documents = index.put(row("a", 1, {"x": 1, "y": "long words"}), row("b", 2, {"z": 3}))
    assert index.types() == {"x": "long", "z": "long"}
    assert fields(documents[0]) == {"x": 1, "y@string": "long words"}
    assert documents[0]["@rest"] == ["long words"]
    assert dict(index.plan.row(documents[0], NO_NAMES).columns) == {"x": 1, "y": "long words"}


def test_a_long_key_has_a_digest_for_an_id() -> None:
    assert id_of(b"k" * 256) == "6b" * 256
    assert len(id_of(b"k" * 257)) == 65
    assert id_of(b"k" * 257) != id_of(b"k" * 258)


def test_a_row_that_is_gone_says_only_that() -> None:
    document = {"_rowtide": {"key": "6b", "stamp": 7, "gone": True}}
    assert json.loads(tombstone(b"k", 7)) == document


@given(
    values=st.lists(
        st.dictionaries(st.one_of(st.text(), st.sampled_from("abc")), VALUES, max_size=5),
        min_size=1,
    ),
    fields_max=st.integers(0, 12),
)
def test_every_row_comes_back_as_it_was(values: list[Columns], fields_max: int) -> None:
    rows = [row(str(i), i + 1, columns) for i, columns in enumerate(values)]
    rows = [one for one in rows if one.columns is None or "id" not in one.columns]
    index = Index(fields_max)
    documents = [document for one in rows for document in index.put(one)]
    for one, document in zip(rows, documents, strict=True):
        held = index.plan.row(document, NO_NAMES)
        assert (held.key_bytes, held.stamp) == (one.key_bytes, one.stamp)
        assert repr(sorted(held.columns.items())) == repr(sorted((one.columns or {}).items()))
