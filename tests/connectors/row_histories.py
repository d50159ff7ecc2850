"""Histories of a table's rows as sinks get them, and a model for comparison.

A history is a list of batches: changes with one stamp each, and pages of a snapshot,
which have all rows of a range as of a stamp. Any batch may come again later, as from a
process that was paused. The model does what every sink must do: set this row unless it
has a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from rowtide.connectors.rows import Key, SinkBatch, SinkRow, TableShape
from rowtide.core.records.change import DELETE, PUT_ROW, ROW
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.key_ranges import Range, holds
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = ["MIXED", "Model", "delete", "histories", "put", "row_key", "shape"]

MIXED = (KeyColumn("id", INTEGER), KeyColumn("name", STRING), KeyColumn("raw", BINARY))
FIRST_STAMP = 1_700_000_000_000_000
TRICKY = ("", "a", "A", "a ", "ä", "\x00", "'", "\\", "😀", "%s", "b\nc")


def shape(*columns: KeyColumn) -> TableShape:
    """Return a table of these key columns."""
    return TableShape("things", columns)


def row_key(columns: Sequence[KeyColumn], values: Sequence[Scalar]) -> tuple[Key, bytes]:
    """Return a key as sinks get it, and its bytes."""
    key = tuple((column.name, value) for column, value in zip(columns, values, strict=True))
    return key, key_order.encode([variant.encode(value) for value in values])


def put(
    stamp: int,
    values: Sequence[Scalar],
    columns: Mapping[str, Scalar],
    key_columns: Sequence[KeyColumn] = MIXED[:1],
    *,
    before: Mapping[str, Scalar] | None = None,
    sequence: int = -1,
) -> SinkRow:
    """Return a row that was put."""
    key, key_bytes = row_key(key_columns, values)
    return SinkRow(key, key_bytes, stamp, columns, PUT_ROW, before, sequence)


def delete(
    stamp: int,
    values: Sequence[Scalar],
    key_columns: Sequence[KeyColumn] = MIXED[:1],
    *,
    sequence: int = -1,
) -> SinkRow:
    """Return a row that is gone."""
    key, key_bytes = row_key(key_columns, values)
    return SinkRow(key, key_bytes, stamp, None, DELETE, None, sequence)


class Model:
    """What a sink must hold after the batches that it was given."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, Mapping[str, Scalar] | None]] = {}
        self._covered: list[tuple[Range, int]] = []

    def apply(self, batch: SinkBatch) -> None:
        """Take a batch over."""
        if batch.covers is not None:
            there = {row.key_bytes for row in batch.rows}
            for key, (stamp, _columns) in list(self.rows.items()):
                if holds((batch.covers,), key) and stamp < batch.stamp and key not in there:
                    self.rows[key] = (batch.stamp, None)
        for row in batch.rows:
            if row.stamp >= self._stamp(row.key_bytes):
                self.rows[row.key_bytes] = (row.stamp, row.columns)
        if batch.covers is not None:
            self._covered.append((batch.covers, batch.stamp))

    def living(self) -> list[tuple[bytes, int, Mapping[str, Scalar]]]:
        """Return (key, stamp, columns) of every row there is, in keys' order."""
        return [
            (key, stamp, columns)
            for key, (stamp, columns) in sorted(self.rows.items())
            if columns is not None
        ]

    def _stamp(self, key: bytes) -> int:
        held = self.rows[key][0] if key in self.rows else 0
        covered = [stamp for range_, stamp in self._covered if holds((range_,), key)]
        return max([held, *covered])


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, -1.0, 1e300, 1e16, 0.1]),
    st.booleans(),
    st.sampled_from(TRICKY),
    st.text(max_size=8),
    st.binary(max_size=8),
)


@st.composite
def histories(
    draw: st.DrawFn, *, pages: bool, values: st.SearchStrategy[Scalar] = VALUES
) -> tuple[tuple[KeyColumn, ...], list[SinkBatch]]:
    """Draw key columns, and batches in the order in which they are delivered."""
    columns = draw(st.sampled_from([MIXED[:1], MIXED[1:2], MIXED[2:], MIXED[:2], MIXED]))
    parts = {
        INTEGER: st.integers(-2, 2),
        STRING: st.sampled_from(TRICKY),
        BINARY: st.binary(max_size=2),
    }
    keys = draw(
        st.lists(st.tuples(*(parts[c.type] for c in columns)), min_size=1, max_size=6, unique=True)
    )
    names = draw(st.lists(st.sampled_from(["a", "A", "b b", "ä`", "😀"]), min_size=1, unique=True))
    cells = st.dictionaries(st.sampled_from(names), values, max_size=3)
    truth: dict[bytes, SinkRow] = {}
    batches: list[SinkBatch] = []
    stamp, sequence = FIRST_STAMP, 0
    for _ in range(draw(st.integers(1, 6))):
        if pages and draw(st.integers(0, 3)) == 0:
            batches.append(_page(draw, truth, stamp))
            continue
        rows: list[SinkRow] = []
        for _ in range(draw(st.integers(1, 5))):
            stamp += draw(st.integers(1, 1000))
            sequence += 1
            values_ = draw(st.sampled_from(keys))
            if draw(st.integers(0, 2)) == 0:
                row = delete(stamp, values_, columns, sequence=sequence)
            else:
                row = put(stamp, values_, draw(cells), columns, sequence=sequence)
            truth[row.key_bytes] = row
            rows.append(row)
        batches.append(SinkBatch("things", "shard-1", rows))
    return columns, _deliver_again(draw, batches)


def _page(draw: st.DrawFn, truth: Mapping[bytes, SinkRow], stamp: int) -> SinkBatch:
    """Return all that a range holds as of ``stamp``."""
    bounds = sorted(draw(st.lists(st.sampled_from([b"", *truth]), max_size=2, unique=True)))
    begin = bounds[0] if bounds else b""
    end = bounds[1] if len(bounds) == 2 else b""
    rows = [
        SinkRow(row.key, key, stamp, row.columns, ROW)
        for key, row in sorted(truth.items())
        if row.columns is not None and holds(((begin, end),), key)
    ]
    return SinkBatch("things", "shard-1", rows, (begin, end), stamp)


def _deliver_again(draw: st.DrawFn, batches: Sequence[SinkBatch]) -> list[SinkBatch]:
    """Return the batches in order, some of them again later, and each at least once."""
    order: list[SinkBatch] = []
    for at, batch in enumerate(batches):
        order.append(batch)
        again = draw(st.lists(st.integers(0, at), max_size=2))
        order += [batches[earlier] for earlier in again]
    return order
