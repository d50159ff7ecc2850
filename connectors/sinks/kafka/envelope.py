"""A row as Debezium's envelope says it: before, after, source, op, ts_ms.

``op`` is ``r`` for a snapshot's row, ``d`` where there is no row any more, ``u`` for an update, and
for a put ``u`` where the stream kept what was before it, else ``c``: whether there was a row is not
known then. ``before`` are the original columns where the stream keeps them; a delete has at least
the key, as Debezium's own of a table without old values. Values are rowtide's: a form turns them
into bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from rowtide.connectors.rows import SinkRow
from rowtide.core.records.change import DELETE, PUT_ROW, ROW
from rowtide.core.values.variant import Scalar

__all__ = ["NAME", "VERSION", "Names", "RowColumns", "after_of", "before_of", "envelope", "op_of"]

NAME = "rowtide"
"""What ``source.connector`` says."""
VERSION = "1"
"""Of what stands in ``source``."""

RowColumns = Mapping[str, Scalar]
Source = dict[str, str | int | None]
Shaped = TypeVar("Shaped")


class Names(NamedTuple):
    """Debezium's words for where a row comes from: ``topic.prefix``, database and table."""

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
    """Return the envelope of a row; ``shaped`` gives the form that columns have in it.

    ``fitting`` leaves out of ``before`` what the form can't write.
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
    """Return Debezium's letter for what was done."""
    if row.columns is None or row.kind == DELETE:
        return "d"
    if row.kind == ROW:
        return "r"
    if row.kind == PUT_ROW and not row.before:
        return "c"
    return "u"


def before_of(row: SinkRow) -> RowColumns | None:
    """Return the row before the change, as far as it is known."""
    if row.before:
        return {**dict(row.key), **row.before}
    return dict(row.key) if row.columns is None else None


def after_of(row: SinkRow) -> RowColumns | None:
    """Return the row after the change, None where there is none."""
    return None if row.columns is None else {**dict(row.key), **row.columns}


def _source(row: SinkRow, names: Names, shard: str) -> Source:
    """Return where a row comes from."""
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
