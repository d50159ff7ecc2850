"""Histories of a table as a sink may get them: in pieces, repeated, late, in any order.

A history has the changes of a few keys, one per stamp, and batches: pieces of the stream,
and pages of snapshots as of some stamp. Every change is in a batch. So a sink that got
all batches, in any order, must hold the table at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from rowtide.connectors.rows import SinkBatch, SinkRow, TableShape
from rowtide.core.records.change import DELETE, PUT_ROW, ROW
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.key_ranges import Range, holds
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = ["TABLE", "Columns", "History", "columns", "histories", "key_bytes", "page_of", "row"]

TABLE = TableShape("things", (KeyColumn("id", STRING),))
KEYS = "abcdef"

Columns = Mapping[str, Scalar]

NAMES = st.sampled_from(["kind", "size", "a.b", "a", "na me", "_id", "ü", "x@integer", "*"])
VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.binary(max_size=4),
)
columns = st.dictionaries(NAMES, VALUES, max_size=4)


def key_bytes(name: str) -> bytes:
    return key_order.encode([variant.encode(name)])


def row(name: str, stamp: int, columns: Columns | None, *, page: bool = False) -> SinkRow:
    kind = ROW if page else DELETE if columns is None else PUT_ROW
    return SinkRow((("id", name),), key_bytes(name), stamp, columns, kind)


@dataclass
class History:
    """``changes[i]`` has the stamp i + 1. ``batches`` are as they come to the sink."""

    changes: list[tuple[str, Columns | None]]
    batches: list[SinkBatch]

    def as_of(self, stamp: int) -> dict[bytes, Columns]:
        """Return the rows that the table has at a stamp."""
        rows: dict[bytes, Columns] = {}
        for name, columns in self.changes[:stamp]:
            rows.pop(key_bytes(name), None)
            if columns is not None:
                rows[key_bytes(name)] = columns
        return rows

    @property
    def end(self) -> dict[bytes, Columns]:
        return self.as_of(len(self.changes))


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return a history with each of its changes in at least one batch."""
    change = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), columns))
    history = History(draw(st.lists(change, min_size=1, max_size=20)), [])
    stream = _pieces(history, draw(st.sets(st.integers(1, len(history.changes)))))
    pages = [
        page_of(history, draw(st.integers(1, len(history.changes))), draw(_ranges()))
        for _ in range(draw(st.integers(0, 3)))
    ]
    batches = [*stream, *pages]
    again = draw(st.lists(st.sampled_from(batches), max_size=4))
    history.batches = list(draw(st.permutations([*batches, *again])))
    return history


def _ranges() -> st.SearchStrategy[Range]:
    bounds = st.lists(st.sampled_from(KEYS), min_size=2, max_size=2, unique=True).map(sorted)
    inner = bounds.map(lambda pair: (key_bytes(pair[0]), key_bytes(pair[1])))
    return st.one_of(st.just((b"", b"")), inner)


def _pieces(history: History, cuts: set[int]) -> list[SinkBatch]:
    rows = [row(name, at, columns) for at, (name, columns) in enumerate(history.changes, 1)]
    bounds = [0, *sorted(cuts), len(rows)]
    pieces = [rows[a:b] for a, b in pairwise(bounds)]
    return [_batch(piece) for piece in pieces if piece]


def page_of(history: History, stamp: int, covered: Range) -> SinkBatch:
    """Return a snapshot's page: the rows of a range as of a stamp."""
    names = {key_bytes(name): name for name in KEYS}
    rows = [
        row(names[key], stamp, columns, page=True)
        for key, columns in sorted(history.as_of(stamp).items())
        if holds((covered,), key)
    ]
    return SinkBatch(TABLE.name, "shard", rows, covered, stamp)


def _batch(rows: Sequence[SinkRow]) -> SinkBatch:
    return SinkBatch(TABLE.name, "shard", rows)
