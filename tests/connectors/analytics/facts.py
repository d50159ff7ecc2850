"""Random histories of a table, what a sink gets of them, and what it must hold then.

A history is states of keys with rising stamps. A delivery is a slice of it, as the stream gives it,
or a page of a snapshot: all there is in a range as of a stamp. Deliveries come in any order and any
number of times, as after rewinds and from processes that stood still. Whatever the order, the sink
holds of each key the newest that it got: a row, or by a page that there is none.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from rowtide.connectors.rows import Key, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.records.change import DELETE, PUT_ROW
from rowtide.core.values import key as key_order
from rowtide.core.values import schema, variant
from rowtide.core.values.schema import KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = [
    "KEYS",
    "SHAPE",
    "Delivery",
    "Model",
    "State",
    "batch_of",
    "comparable",
    "encode_key",
    "histories",
    "row_of",
]

SHAPE = TableShape(
    "Orders",
    (
        KeyColumn("customer", schema.STRING),
        KeyColumn("Number", schema.INTEGER),
        KeyColumn("order", schema.BINARY),
    ),
)
KEYS: list[Key] = [
    (("customer", customer), ("Number", number), ("order", mark))
    for customer, number, mark in [
        ("", 0, b""),
        ("a", -(2**63), b"\x00"),
        ("a", 2**63 - 1, b"\xff'\\"),
        ("a\x00b", 7, b"x"),
        ('it\'s \\ "q" `b`', 7, b""),
        ("东", 0, b"\xfe\x00"),
    ]
]
STAMP_FIRST = 1_700_000_000_000_000

NAMES = (
    *("amount", "Amount", "amount__double", "select", "a.b", "it's", 'q"uo`te', "sp ace, (x)"),
    *(
        "ключ",
        "订单",
        "_rowtide_key",
        "_rowtide_deleted",
        "back\\slash",
        "line\nbreak",
        "customer2",
    ),
)
VALUES: tuple[Scalar, ...] = (
    *(0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1.5, 1e300, float("inf"), float("nan")),
    *(True, False),
    *("", "text", "nul\x00nul", "quote ' \" ` \\", "行\n\t", "😀"),
    *(b"", b"\x00\xff", b"it's\\"),
)


class State(NamedTuple):
    """The state of a key as of a stamp. None means that there is no row."""

    key: Key
    stamp: int
    columns: Mapping[str, Scalar] | None


class Delivery(NamedTuple):
    """A batch, and whether the next one may be applied at the same time."""

    batch: SinkBatch
    together: bool
    reopened: bool


def encode_key(key: Key) -> bytes:
    """Return a key in the keys' order."""
    return key_order.encode([variant.encode(value) for _, value in key])


def row_of(state: State) -> SinkRow:
    """Return the sink row of a state."""
    kind = DELETE if state.columns is None else PUT_ROW
    return SinkRow(state.key, encode_key(state.key), state.stamp, state.columns, kind)


def batch_of(*states: State, shard: str = "s1") -> SinkBatch:
    """Return states as the stream gives them."""
    return SinkBatch(SHAPE.name, shard, [row_of(state) for state in states])


def page_of(history: Sequence[State], stamp: int, begin: bytes, end: bytes) -> SinkBatch:
    """Return all there is in a range as of a stamp."""
    rows: dict[bytes, State] = {}
    for state in history:
        at = encode_key(state.key)
        if state.stamp <= stamp and begin <= at and (not end or at < end):
            rows[at] = state
    living = [
        SinkRow(state.key, at, stamp, state.columns, "row")
        for at, state in sorted(rows.items())
        if state.columns is not None
    ]
    return SinkBatch(SHAPE.name, "s1", living, covers=(begin, end), stamp=stamp)


@dataclass(slots=True)
class Model:
    """What a sink must hold. It stores the facts and computes the answer on request."""

    newest: dict[bytes, State] = field(default_factory=dict)
    pages: list[tuple[bytes, bytes, int]] = field(default_factory=list)

    def deliver(self, batch: SinkBatch) -> None:
        """Take note of a batch."""
        for row in batch:
            held = self.newest.get(row.key_bytes)
            if held is None or held.stamp <= row.stamp:
                self.newest[row.key_bytes] = State(row.key, row.stamp, row.columns)
        if batch.covers is not None:
            self.pages.append((*batch.covers, batch.stamp))

    def living(self) -> list[HeldRow]:
        """Return the rows there are, in order."""
        return [
            HeldRow(at, state.stamp, state.columns)
            for at, state in sorted(self.newest.items())
            if state.columns is not None
            if not any(
                begin <= at and (not end or at < end) and state.stamp < stamp
                for begin, end, stamp in self.pages
            )
        ]


def comparable(rows: Sequence[HeldRow]) -> list[object]:
    """Return rows in a form that is equal exactly when they are: types, signs of zeros, NaN."""
    return [
        (row.key_bytes, row.stamp, {name: _exact(value) for name, value in row.columns.items()})
        for row in rows
    ]


def _exact(value: Scalar) -> object:
    bits = struct.pack("<d", value) if isinstance(value, float) else value
    return type(value).__name__, bits


@st.composite
def histories(draw: st.DrawFn) -> list[Delivery]:
    """Draw a history and its deliveries."""
    columns = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=4)
    changes = draw(
        st.lists(st.tuples(st.sampled_from(KEYS), st.none() | columns), min_size=1, max_size=12)
    )
    history = [
        State(key, STAMP_FIRST + 1000 * at, columns) for at, (key, columns) in enumerate(changes)
    ]
    borders = [b"", *sorted(map(encode_key, KEYS)), b"\xf0"]
    count = draw(st.integers(1, 8))
    return [_delivery(draw, history, borders) for _ in range(count)]


def _delivery(draw: st.DrawFn, history: list[State], borders: list[bytes]) -> Delivery:
    first = draw(st.integers(0, len(history) - 1))
    last = draw(st.integers(first, len(history) - 1))
    if draw(st.integers(0, 3)) == 0:
        begin, end = sorted(draw(st.tuples(st.sampled_from(borders), st.sampled_from(borders))))
        # Below the next change, so that a page is not as of the very stamp of a change at times.
        stamp = history[last].stamp + draw(st.sampled_from([0, 500]))
        batch = page_of(history, stamp, begin, b"" if begin == end else end)
    else:
        batch = batch_of(*history[first : last + 1], shard=draw(st.sampled_from(["s1", "s2"])))
    return Delivery(batch, draw(st.booleans()), draw(st.integers(0, 7)) == 0)
