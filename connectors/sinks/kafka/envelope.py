"""A row in Debezium's envelope: before, after, source, op, ts_ms.

``op`` is ``r`` for a snapshot's row and ``d`` for a deleted row. Otherwise it is ``u`` if
the row existed before, and ``c`` if not. If that is unknown, an update is ``u`` and a put
``c``. ``before`` has the original columns if the stream keeps them. A delete has at least
the key, like Debezium's own for a table without old values. Values are rowtide's; a form
turns them into bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from rowtide.connectors.rows import SinkRow
from rowtide.core.records.change import DELETE, PUT_ROW, ROW
from rowtide.core.values.variant import Scalar

__all__ = ["NAME", "VERSION", "Names", "RowColumns", "after_of", "before_of", "envelope", "op_of"]

NAME = "rowtide"
"""Value of ``source.connector``."""
VERSION = "1"
"""Version of the fields of ``source``."""

RowColumns = Mapping[str, Scalar]
Source = dict[str, str | int | None]
Shaped = TypeVar("Shaped")


class Names(NamedTuple):
    """Debezium's names for the origin of a row: ``topic.prefix``, database and table."""

    prefix: str
    instance: str
    table: str

    @property
    def topic(self) -> str:
        return ".".join(name for name in self if name)


def envelope(
    row: SinkRow,
    names: Names,
    shard: str,
    now_ms: int,
    shaped: Callable[[RowColumns | None], Shaped],
    fitting: Callable[[RowColumns], RowColumns] = lambda columns: columns,
) -> dict[str, Shaped | Source | str | int]:
    """Return the envelope of a row. ``shaped`` converts columns to the form's.

    ``fitting`` removes from ``before`` what the form can't write.
    """
    before = before_of(row)
    return {
        "before": shaped(None if before is None else fitting(before)),
        "after": shaped(after_of(row)),
        "source": _source(row, names, shard),
        "op": op_of(row),
        "ts_ms": now_ms,
    }


def op_of(row: SinkRow) -> str:
    """Return Debezium's letter for the kind of change."""
    if row.columns is None or row.kind == DELETE:
        return "d"
    if row.kind == ROW:
        return "r"
    if row.existed is not None:
        return "u" if row.existed else "c"
    return "c" if row.kind == PUT_ROW and not row.before else "u"


def before_of(row: SinkRow) -> RowColumns | None:
    """Return the row before the change, as far as it is known."""
    if row.before or row.existed:
        return {**dict(row.key), **(row.before or {})}
    return dict(row.key) if row.columns is None else None


def after_of(row: SinkRow) -> RowColumns | None:
    """Return the row after the change, None if it was deleted."""
    return None if row.columns is None else {**dict(row.key), **row.columns}


def _source(row: SinkRow, names: Names, shard: str) -> Source:
    """Return the origin of a row."""
    return {
        "version": VERSION,
        "connector": NAME,
        "name": names.prefix,
        "ts_ms": row.stamp // 1000,
        "ts_us": row.stamp,
        "snapshot": "true" if row.kind == ROW else "false",
        "db": names.instance,
        "table": names.table,
        "shard": shard,
        "sequence": f'["{row.sequence}"]' if row.sequence >= 0 else None,
        "stamp": row.stamp,
    }
