"""The tables of a simulated cluster, and which shard and model a row belongs to."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rowtide.core.cluster.catalog import (
    TABLE,
    AccessKey,
    Catalog,
    Document,
    table_content,
    table_id,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values import key, variant
from rowtide.core.values.schema import (
    GLOBAL,
    INTEGER,
    LOCAL,
    STRING,
    Index,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
    TableOptions,
)
from rowtide.stream.api.admin import key_document

__all__ = [
    "ADMIN",
    "ANYWHERE",
    "INDEX",
    "INDEXED",
    "INSTANCE",
    "KEPT",
    "PLACES",
    "PLAIN",
    "SHARDS",
    "TABLES",
    "Place",
    "cut",
    "documents",
    "places_in",
]

INSTANCE = "simulated"
MAX_VERSIONS = 2
INTEGER_COLUMN, STRING_COLUMN = 1, 4
"""Of DefinedColumnType."""
KEY = (KeyColumn("name", STRING), KeyColumn("number", INTEGER))
KEPT = ("c0", "c1", "c2", "c3")
INDEX = Index("by_mark", 3, LOCAL, ("name", "mark", "number"), KEPT, 0)
"""A local index. Every change gives its row another mark, so that the index's row moves."""


ANYWHERE = ("mark", "name", "number")
"""The key of a global index: rows of all shards, in the order of their marks."""


def cut(name: str) -> bytes:
    """Return where a shard may begin: an encoded partition key."""
    return key.encode([variant.encode(name)])


def tables(slots: int) -> tuple[Table, Table]:
    """Return the tables: one of two shards, and one with an index and a stream."""
    options = TableOptions(max_versions=MAX_VERSIONS, deviation_s=10**9)
    middle = cut("d")
    plain = Table(
        INSTANCE, "plain", 1, KEY, options, None, 0, 0, 0, 0,
        (ShardRange("s1", 1 % slots, b"", middle), ShardRange("s2", 2 % slots, middle, b"")),
        enable_local_txn=False,  # Its shards are so forgotten as soon as they may be.
    )  # fmt: skip
    indexed = Table(
        INSTANCE, "indexed", 2, KEY, options, StreamSettings("stream", 0, 24 * 365 * 100),
        0, 0, 0, 0, (ShardRange("s3", 0),),
        defined_columns=tuple((name, STRING_COLUMN) for name in ("mark", *KEPT)),
        indexes=(INDEX,),
    )  # fmt: skip
    return plain, indexed


SHARDS = ("s1", "s2", "s3", "s4", "s5")
"""Of the tables and of their global indexes, as they are at first."""
PLAIN, INDEXED = "plain", "indexed"
TABLES = {PLAIN: (1, "abcdef"), INDEXED: (2, "abc")}
"""The number of each table, and the rows that clients write."""


class Place(NamedTuple):
    """A row."""

    table: str
    name: str

    @property
    def table_id(self) -> int:
        """The number of its table."""
        return TABLES[self.table][0]

    @property
    def key(self) -> list[tuple[bytes, bytes]]:
        """Its primary key."""
        return [(b"name", variant.encode(self.name)), (b"number", variant.encode(1))]

    def within(self, shard: ShardRange) -> bool:
        """True if it lies in a shard of its table."""
        at = cut(self.name)
        return shard.begin <= at and (not shard.end or at < shard.end)


PLACES = [Place(table, name) for table, (_, names) in TABLES.items() for name in names]
ADMIN = Identity("admin", INSTANCE, b"")


def places_in(table_id: int, shard: ShardRange) -> list[Place]:
    """Return the rows that lie in a shard of a table."""
    return [place for place in PLACES if place.table_id == table_id and place.within(shard)]


def everywhere(slots: int, *, counted: bool) -> tuple[Table, Table]:
    """Return the tables with a global index each; a counter may be in an index only if asked."""
    plain, indexed = tables(slots)
    first = Index("marks", 4, GLOBAL, ANYWHERE, KEPT, 0, shards=(ShardRange("s4", 0),))
    second = Index("others", 5, GLOBAL, ANYWHERE, KEPT, 0, shards=(ShardRange("s5", 1 % slots),))
    columns = (*indexed.defined_columns, *((("n", INTEGER_COLUMN),) * counted))
    one = replace(plain.options, max_versions=1)  # Others have no index made of their rows.
    return (
        replace(plain, options=one, defined_columns=columns, indexes=(first,)),
        replace(indexed, indexes=(*indexed.indexes, second)),
    )


def documents(
    slots: int, catalog: Catalog, *, followed: bool = False, counted: bool = False
) -> list[Document]:
    """Return the function that creates the tables, with global indexes or not, and the keys."""
    wanted = everywhere(slots, counted=counted) if followed else tables(slots)
    made = [Document(TABLE, table_id(t), table_content(t)) for t in wanted]
    admin = AccessKey(ADMIN.access_key_id, "secret", None, True, True, 0)
    return [*made, key_document(admin), catalog.counters(tables=10, shards=10)]
