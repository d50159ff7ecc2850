"""Which shard of a table holds a key, whoever asks, and however long ago the table was taken up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core import key, record, variant
from rowtide.core.catalog import TABLE, Catalog, Document, document_body, table_content, table_id
from rowtide.core.index import count_named, key_names, named_key
from rowtide.core.schema import GLOBAL, INTEGER, STRING, Index, KeyColumn, ShardRange, Table
from tests.core.shard_model import table

NAMES = st.text("abcdef", max_size=2)
BORDERS = st.lists(NAMES.filter(bool), unique=True, max_size=5).map(sorted)


def encoded(name: str) -> bytes:
    return key.encode([variant.encode(name)])


def divided(borders: list[str], generation: int) -> Table:
    """Return the table with shards that no other generation of it has."""
    begins = [b"", *map(encoded, borders)]
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
        read(catalog, offset, table_content(divided(borders, offset)))
        taken_up.append(catalog.tables_by_id[table().table_id])
    read(catalog, len(generations), None)
    for then in taken_up:
        shard = catalog.shard_for(then, encoded(name))
        assert shard in then.shards
        assert shard.begin <= encoded(name)
        assert not shard.end or encoded(name) < shard.end


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
    assert named_key(*_only_index(catalog)) == tuple(asked)
    document.pop("key_named", None)
    read(catalog, 1, content)
    assert named_key(*_only_index(catalog)) == tuple(earlier.split(","))


def _only_index(catalog: Catalog) -> tuple[Table, Index]:
    known = catalog.tables_by_id[table().table_id]
    return known, known.indexes[0]
