"""Types whose values are written differently after an ALTER TYPE.

``ALTER TYPE .. RENAME VALUE``, and attributes that a composite type gains or loses,
change how old rows are read, and the stream does not show it. So the labels and
attributes are recorded for each table, also those within domains, arrays, ranges and
composite types.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.sources.postgres.server import PostgresServer

__all__ = ["TypeParts", "note_types", "read_type_parts", "same_values"]


class TypeParts(NamedTuple):
    """An enum with its labels, or a composite type with its attributes, by number."""

    oid: int
    is_enum: bool
    numbers: Sequence[int]
    texts: Sequence[str]

    def digest(self, last: int | None) -> int:
        """Return a digest of the parts; of an enum's labels only up to ``last``."""
        parts = zip(self.numbers, self.texts, strict=True)
        kept = [part for part in parts if last is None or part[0] <= last]
        return zlib.crc32(repr(kept).encode())


def read_type_parts(server: PostgresServer, oids: Sequence[int]) -> dict[int, list[TypeParts]]:
    """Return the types that columns of some tables use, by table."""
    found: dict[int, list[TypeParts]] = {}
    for table, *parts in server.rows(_PARTS, (list(oids),)):
        found.setdefault(table, []).append(TypeParts(*parts))
    return found


def note_types(types: Sequence[TypeParts]) -> dict[str, list[int]]:
    """Return what a checkpoint stores of types.

    An added label changes no existing row. So an enum is stored with its last label.
    """
    return {
        str(known.oid): [last, known.digest(last)]
        if known.is_enum and (last := max(known.numbers))
        else [known.digest(None)]
        for known in types
    }


def same_values(kept: Mapping[str, Sequence[int]], types: Sequence[TypeParts]) -> bool:
    """True if values are still written as they were when ``note_types`` returned ``kept``."""
    for known in types:
        former = kept.get(str(known.oid))
        if former is not None:
            *last, digest = former
            if known.digest(last[0] if last else None) != digest:
                return False
    return True


_PARTS = """
WITH RECURSIVE used (relation, type) AS (
    SELECT attrelid, atttypid FROM pg_attribute
     WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped AND atttypid >= 16384
    UNION
    SELECT used.relation, part.type
      FROM used
     CROSS JOIN LATERAL (
        SELECT typbasetype FROM pg_type WHERE oid = used.type AND typtype = 'd'
        UNION ALL
        SELECT typelem FROM pg_type WHERE oid = used.type AND typcategory = 'A' AND typelem <> 0
        UNION ALL
        SELECT a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
         WHERE t.oid = used.type AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT rngsubtype FROM pg_range WHERE used.type IN (rngtypid, rngmultitypid)
     ) AS part (type)
)
SELECT relation::int8, type::int8, true,
       array_agg(e.oid::int8 ORDER BY e.oid), array_agg(e.enumlabel::text ORDER BY e.oid)
  FROM used JOIN pg_enum e ON e.enumtypid = type
 GROUP BY relation, type
UNION ALL
SELECT relation::int8, type::int8, false,
       array_agg(a.attnum::int8 ORDER BY a.attnum), array_agg(a.atttypid::text ORDER BY a.attnum)
  FROM used JOIN pg_type t ON t.oid = type AND t.typtype = 'c'
  JOIN pg_attribute a ON a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
 GROUP BY relation, type
"""
