"""Which shard of a table holds a key, whoever asks, and however long ago the table was taken up."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.catalog import (
    ACCESS_KEY,
    COUNTERS,
    INSTANCE,
    RESHAPE,
    TABLE,
    AccessKey,
    Catalog,
    Document,
    Instance,
    document_body,
    key_content,
    reclaimer_document,
    snapshot_body,
    table_content,
    table_id,
    token_document,
    worker_document,
)
from rowtide.core.cluster.share_token import ShareToken
from rowtide.core.records import record
from rowtide.core.shard.index import count_named, find_named_key, key_names
from rowtide.core.shard.reshape import MOVE, Reshape, reshape_content
from rowtide.core.values import key, variant
from rowtide.core.values.schema import (
    GLOBAL,
    INTEGER,
    STRING,
    Index,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
)
from tests.core.shard_model import table

ROOT = Path(__file__).resolve().parents[2]
NAMES = st.text("abcdef", max_size=2)
BORDERS = st.lists(NAMES.filter(bool), unique=True, max_size=5).map(sorted)


def encode_name(name: str) -> bytes:
    return key.encode([variant.encode(name)])


def divide_table(borders: list[str], generation: int) -> Table:
    """Return the table with shards that no other generation of it has."""
    begins = [b"", *map(encode_name, borders)]
    shards = [
        ShardRange(f"s{generation}-{number}", 0, begin, end)
        for number, (begin, end) in enumerate(zip(begins, [*begins[1:], b""], strict=True))
    ]
    return replace(table(), shards=tuple(shards))


def read(catalog: Catalog, offset: int, content: dict[str, object] | None) -> None:
    """Let a catalog read what becomes of the table; None: it is dropped."""
    _, body = document_body(Document(TABLE, table_id(table()), content))
    envelope = record.Envelope(offset, 1, b"ownerid1", offset + 1, record.SINGLE)
    assert catalog.replay(offset, record.encode_record(envelope, record.encode_body(body)))


@given(st.lists(BORDERS, min_size=1, max_size=4), NAMES)
def test_a_key_is_in_the_shard_that_has_it_of_those_that_the_table_had_then(
    generations: list[list[str]], name: str
) -> None:
    """By the shards of then and the borders of now a row went to a shard that lacks its key."""
    catalog, taken_up = Catalog(), []
    for offset, borders in enumerate(generations):
        read(catalog, offset, table_content(divide_table(borders, offset)))
        taken_up.append(catalog.tables_by_id[table().table_id])
    read(catalog, len(generations), None)
    for then in taken_up:
        shard = catalog.shard_for(then, encode_name(name))
        assert shard in then.shards
        assert shard.begin <= encode_name(name)
        assert not shard.end or encode_name(name) < shard.end


NAMED = """
key of the index  named   kept as  shown by an earlier document
n p q             n       -        n
n p q             n,p     2        n
n p q             n,p,q   3        n
n q p             n,q     -        n,q
n q p             n,q,p   3        n,q
p q               p       -        p
p q               p,q     2        p
p n q             p,n     -        p,n
q p               q       -        q
"""


@pytest.mark.parametrize("line", NAMED.strip().splitlines()[1:])
def test_an_index_is_shown_with_the_key_that_was_named(line: str) -> None:
    *whole, named, kept, earlier = line.split()
    columns = (KeyColumn("p", STRING), KeyColumn("q", INTEGER))
    keyed = replace(table(), key=columns, defined_columns=(("n", 1),))
    asked = named.split(",")
    assert key_names(keyed, asked) == tuple(whole)
    made = Index("i", 2, GLOBAL, tuple(whole), (), 0, key_named=count_named(keyed, asked))
    content = table_content(replace(keyed, indexes=(made,)))
    (document,) = content["indexes"]
    assert document.get("key_named", "-") == (kept if kept == "-" else int(kept))
    catalog = Catalog()
    read(catalog, 0, content)
    assert find_named_key(*_only_index(catalog)) == tuple(asked)
    document.pop("key_named", None)
    read(catalog, 1, content)
    assert find_named_key(*_only_index(catalog)) == tuple(earlier.split(","))


def _only_index(catalog: Catalog) -> tuple[Table, Index]:
    known = catalog.tables_by_id[table().table_id]
    return known, known.indexes[0]


def _with_more(value: object) -> object:
    """Return a document as a later version may write it: every object of it has a field more."""
    if isinstance(value, dict):
        return {**{name: _with_more(item) for name, item in value.items()}, "new": [1]}
    return [_with_more(item) for item in value] if isinstance(value, list | tuple) else value


SHARDS = (ShardRange("s1", 0, b"", b"", ("s0",)),)
WHOLE = replace(
    table(),
    stream=StreamSettings("stream", 1, 24, ("a",)),
    shards=SHARDS,
    ended=(ShardRange("s0", 0),),
    defined_columns=(("n", 1),),
    indexes=(Index("i", 9, GLOBAL, ("n", "pk"), (), 0, shards=SHARDS, key_named=1),),
)
DOCUMENTS = [
    Document(TABLE, table_id(WHOLE), table_content(WHOLE)),
    Document(INSTANCE, "inst", asdict(Instance("inst", "capacity", 1))),
    Document(
        ACCESS_KEY,
        "id",
        key_content(AccessKey("id", "secret", frozenset(["inst"]), True, False, 1)),
    ),
    Document(ACCESS_KEY, "ro", key_content(AccessKey("ro", "s", None, True, True, 1, True))),
    token_document("t", ShareToken("t", "00" * 32, "feed", "inst", "t", 1, "", 1)),
    Document(RESHAPE, "r", reshape_content(Reshape(MOVE, 1, ("s1",), SHARDS, 1, 2))),
    worker_document("worker", "here:1"),
    reclaimer_document(paused=True),
    Document(COUNTERS, "cluster", {"table": 5, "shard": 6}),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.kind)
def test_a_field_that_a_later_version_added_is_ignored(document: Document) -> None:
    found = []
    for content in (document.content, _with_more(document.content)):
        catalog = Catalog()
        _, body = document_body(document._replace(content=content))  # type: ignore[arg-type]
        envelope = record.Envelope(0, 1, b"ownerid1", 1, record.SINGLE)
        assert catalog.replay(0, record.encode_record(envelope, record.encode_body(body)))
        found.append(catalog.documents())
    assert found[0] == found[1]


def test_elements_that_a_later_version_added_to_a_column_are_ignored() -> None:
    content = table_content(WHOLE)
    content["key"] = [[*column, "new"] for column in content["key"]]
    content["defined_columns"] = [[*column, "new"] for column in content["defined_columns"]]
    catalog = Catalog()
    read(catalog, 0, content)
    known = catalog.tables_by_id[WHOLE.table_id]
    assert (known.key, known.defined_columns) == (WHOLE.key, WHOLE.defined_columns)


GOLDEN = {
    name: json.loads(document)
    for name, _, document in (
        line.partition(": ")
        for line in (ROOT / "tests/core/golden/catalog.txt").read_text().splitlines()
    )
}


def fold(*documents: Document) -> Catalog:
    """Return the catalog that has read some documents, one after the other."""
    catalog = Catalog()
    for offset, document in enumerate(documents):
        _, body = document_body(document)
        envelope = record.Envelope(offset, 1, b"ownerid1", offset + 1, record.SINGLE)
        assert catalog.replay(offset, record.encode_record(envelope, record.encode_body(body)))
    return catalog


def list_contents(catalog: Catalog, kind: str) -> list[dict[str, Any] | None]:
    return [document.content for document in catalog.documents() if document.kind == kind]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_document_is_kept_as_it_was_written(name: str) -> None:
    kind = name.split()[-1]
    assert list_contents(fold(Document(kind, "id", GOLDEN[name])), kind) == [GOLDEN[name]]


def test_the_page_shows_the_golden_documents() -> None:
    page = (ROOT / "docs/internals/formats/catalog.md").read_text(encoding="utf-8")
    shown = [json.loads(line) for line in page.splitlines() if line.startswith('{"')]
    assert shown == [*GOLDEN.values()]


def test_a_key_of_an_earlier_version_is_not_read_only() -> None:
    catalog = fold(Document(ACCESS_KEY, "id", GOLDEN["key"]))
    assert not catalog.keys["id"].read_only
    assert not catalog.credentials["id"].is_read_only


def test_a_read_only_key_is_read_only_also_after_a_snapshot() -> None:
    catalog = fold(Document(ACCESS_KEY, "id", GOLDEN["read-only key"]))
    for _ in range(2):
        found = catalog.credentials["id"]
        assert (found.is_read_only, found.enabled) == (True, True)
        body = snapshot_body(catalog.documents())
        envelope = record.Envelope(0, 1, b"ownerid1", 1, record.SINGLE)
        catalog = Catalog()
        assert catalog.replay(0, record.encode_record(envelope, record.encode_body(body)))


def test_a_worker_of_an_earlier_version_never_makes_a_read_only_key_writable() -> None:
    """It drops the field that it does not know when it writes a snapshot."""
    dropped = {n: v for n, v in GOLDEN["read-only key"].items() if n != "read_only"}
    assert not fold(Document(ACCESS_KEY, "id", dropped)).credentials["id"].enabled


def test_a_revoked_token_is_gone() -> None:
    document = Document("token", "id", GOLDEN["share token"])
    assert fold(document).tokens["id"].table == "orders"
    assert fold(document, document._replace(content=None)).tokens == {}
