"""What Delta tables and Parquet files share: rows and floors in one table, as Arrow.

A floor (``connectors/floors.py``) is a row of its own kind. It has ``_rowtide_from`` and
``_rowtide_until``, and no key column. It counts as deleted, so a query for rows that are
not deleted never returns one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rowtide.connectors.floors import Floor
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.columnar.arrow_rows import DELETED, KEY, STAMP, key_types, type_of
from rowtide.connectors.sinks.columnar.layout import Layout, first_come

__all__ = [
    "FROM",
    "NAMING",
    "OWN",
    "UNTIL",
    "floor_rows",
    "floors_of_rows",
    "is_row",
    "schema_of",
    "turn_row",
    "widen_rows",
    "within",
]

FROM, UNTIL = "_rowtide_from", "_rowtide_until"
OWN = (KEY, STAMP, DELETED, FROM, UNTIL)

NAMING = first_come(lambda name: re.sub(r"[ ,;{}()\n\t=\0.`\"\\]", "_", name))
"""Spark refuses most of these characters in column names of a Delta table."""

# No encoded key begins with one of these bytes.
_TURN, _FLOOR_MARK = b"\xfd", b"\xfe"


def schema_of(layout: Layout, table: TableShape) -> Any:
    """Return the Arrow schema of all columns of a table."""
    own = [
        (KEY, pa.binary()),
        (STAMP, pa.int64()),
        (DELETED, pa.bool_()),
        (FROM, pa.binary()),
        (UNTIL, pa.binary()),
    ]
    keys = list(zip(layout.keys, key_types(table), strict=True))
    return pa.schema([*own, *keys, *((c.place, type_of(c.kind)) for c in layout)])


def widen_rows(rows: Any, schema: Any) -> Any:
    """Return rows with every column of a schema, in its order. Missing ones are NULL."""
    there = set(rows.column_names)
    return pa.table(
        [
            rows[field.name] if field.name in there else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def floor_rows(floors: Sequence[Floor]) -> Any:
    """Return floors as rows. The key depends only on the floor's range."""
    return pa.table(
        {
            KEY: pa.array([_floor_key(floor) for floor in floors], pa.binary()),
            STAMP: pa.array([floor.stamp for floor in floors], pa.int64()),
            DELETED: pa.array([True] * len(floors), pa.bool_()),
            FROM: pa.array([floor.begin for floor in floors], pa.binary()),
            UNTIL: pa.array([floor.end for floor in floors], pa.binary()),
        }
    )


def turn_row(number: int) -> Any:
    """Return the only row that records whose turn it is to compact the table."""
    return pa.table(
        {
            KEY: pa.array([_TURN], pa.binary()),
            STAMP: pa.array([number], pa.int64()),
            DELETED: pa.array([True], pa.bool_()),
        }
    )


def floors_of_rows(found: Any) -> Iterable[Floor]:
    """Return the floors among rows that were read with these three columns."""
    columns = [found[name].to_pylist() for name in (FROM, UNTIL, STAMP)]
    return [Floor(*floor) for floor in zip(*columns, strict=True) if floor[1] is not None]


def is_row() -> Any:
    """Return the condition that excludes floors."""
    return pc.field(UNTIL).is_null()


def within(begin: bytes, end: bytes) -> Any:
    """Return the condition for rows of a range of keys."""
    condition = is_row() & (pc.field(KEY) >= pa.scalar(begin, pa.binary()))
    return condition & (pc.field(KEY) < pa.scalar(end, pa.binary())) if end else condition


def _floor_key(floor: Floor) -> bytes:
    digest = hashlib.blake2b(floor.begin + b"\x00" + floor.end, digest_size=16)
    digest.update(len(floor.begin).to_bytes(8, "big"))
    return _FLOOR_MARK + digest.digest()
