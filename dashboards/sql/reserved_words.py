"""Words that DuckDB does not take as the name of a column or a table unless they are quoted."""

from __future__ import annotations

__all__ = ["RESERVED"]

_WORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary
both by case cast check collate collation column columns concurrently constraint create
cross default deferrable desc describe distinct do else end except false fetch for
foreign freeze from full generated glob group having ilike in initially inner intersect
into is isnull join lambda lateral leading left like limit map natural not notnull null
offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional
primary qualify references returning right select semi show similar some struct
summarize symmetric table tablesample then to trailing true try_cast tuple union unique
unpack unpivot using variadic verbose when where window with
"""

RESERVED = frozenset(_WORDS.split())
"""Those of ``duckdb_keywords()`` that are reserved, or names of types and functions only."""
