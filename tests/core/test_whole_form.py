"""Rows that are read many at a time are those that are read one by one, and no others."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, KeyColumns, RowChange, put_cell
from rowtide.core.protocol.row_form import FORMS, FormLearner, PackedCells
from rowtide.core.rows.whole_form import WholeForm
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected

BEFORE, AFTER = b"\x12\x07<", b">\x00"

Row = tuple[Sequence[variant.Scalar], Sequence[variant.Scalar]]
"""The values of a row's key and of its cells."""

TEXTS = st.text(max_size=20)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.lists(st.one_of(TEXTS, INTEGERS, st.binary(max_size=20)), min_size=1, max_size=4)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.lists(
    st.one_of(TEXTS, INTEGERS, FINITE, st.binary(max_size=20)), min_size=1, max_size=6
)
ROWS = st.tuples(KEYS, VALUES)


def wire_of(row: Row) -> bytes:
    key, values = row
    columns = [(b"key%d" % at, variant.encode(value)) for at, value in enumerate(key)]
    cells = [
        put_cell(b"column%d" % at, variant.encode(value), None) for at, value in enumerate(values)
    ]
    return HEADER + plainbuffer.encode_row(columns, cells)


def like(value: variant.Scalar) -> st.SearchStrategy[variant.Scalar]:
    """Return values of the same type and size."""
    if isinstance(value, str):
        size = len(value.encode())
        return st.text("aé€", min_size=size, max_size=size).map(lambda text: _cut(text, size))
    if isinstance(value, bytes):
        return st.binary(min_size=len(value), max_size=len(value))
    return FINITE if isinstance(value, float) else INTEGERS


def _cut(text: str, size: int) -> str:
    short = text.encode()[:size].decode(errors="ignore")
    return short + "a" * (size - len(short.encode()))


def others_like(row: Row) -> st.SearchStrategy[list[Row]]:
    key, values = row
    one = st.tuples(st.tuples(*map(like, key)), st.tuples(*map(like, values)))
    return st.lists(one, min_size=1, max_size=5)


def taught(wire: bytes) -> RowChange:
    """Return a row whose cells are known by their form."""
    FORMS.forget()
    for _ in range(FormLearner.PAUSE_MIN):
        plainbuffer.decode_row(wire)
    return plainbuffer.decode_row(wire)


def form_of(wire: bytes) -> WholeForm:
    form = WholeForm.of(taught(wire), BEFORE + wire + AFTER, before=BEFORE, after=AFTER)
    assert form is not None
    return form


def same(found: RowChange, expected: RowChange) -> bool:
    """True if two rows are one, down to what is kept beside their columns."""
    return found == expected and (of(found) == of(expected))


def of(row: RowChange) -> list[object]:
    assert isinstance(row.key, KeyColumns)
    assert isinstance(row.cells, PackedCells)
    form = row.cells.form
    kept = [row.key.piece, row.key.state, row.cells.payloads, row.cells.checksums]
    return [*kept, form.heads, form.seeds, form.sizes]


@given(ROWS, st.data())
def test_rows_of_a_form_are_those_read_one_by_one(row: Row, draw: st.DataObject) -> None:
    wires = [wire_of(other) for other in draw.draw(others_like(row))]
    form = form_of(wire_of(row))
    found = form.read([BEFORE + wire + AFTER for wire in wires])
    assert found is not None
    expected = [plainbuffer.decode_row(wire) for wire in wires]
    assert all(same(found.row(at), other) for at, other in enumerate(expected))
    assert found.first_values() == [other.key[0][1] for other in expected]


@given(ROWS, st.data())
def test_what_is_damaged_anywhere_is_not_read_or_is_what_it_says(
    row: Row, draw: st.DataObject
) -> None:
    whole = wire_of(row)
    form = form_of(whole)
    wires = [BEFORE + wire_of(other) + AFTER for other in draw.draw(others_like(row))]
    at = draw.draw(st.integers(0, len(wires) - 1))
    wire = bytearray(wires[at])
    for _ in range(draw.draw(st.integers(1, 3))):
        wire[draw.draw(st.integers(0, len(wire) - 1))] ^= draw.draw(st.integers(1, 255))
    damaged = wires[at] = bytes(wire)
    found = form.read(wires)
    inner = damaged[len(BEFORE) : -len(AFTER)]
    if found is None:
        return
    assert damaged == BEFORE + inner + AFTER
    assert same(found.row(at), plainbuffer.decode_row(inner))


@given(ROWS)
def test_no_byte_can_be_changed_alone(row: Row) -> None:
    wire = BEFORE + wire_of(row) + AFTER
    form = form_of(wire_of(row))
    for at in range(len(wire)):
        damaged = bytearray(wire)
        damaged[at] ^= 1 << at % 8
        assert form.read([wire, bytes(damaged)]) is None


@pytest.mark.parametrize("value", [b"\x03\x02\0\0\0\xff\xfe", b"\x03\x02\0\0\0\xc3a"])
@pytest.mark.parametrize("in_key", [True, False])
def test_a_text_that_is_not_utf_8_is_not_read(value: bytes, *, in_key: bool) -> None:
    def wire(text: bytes) -> bytes:
        key, cell = (text, variant.encode(1)) if in_key else (variant.encode(1), text)
        return HEADER + plainbuffer.encode_row([(b"k", key)], [put_cell(b"c", cell, None)])

    form = form_of(wire(variant.encode("é")))
    assert form.read([BEFORE + wire(variant.encode("ü")) + AFTER]) is not None
    assert form.read([BEFORE + wire(value) + AFTER]) is None
    with pytest.raises(Rejected):
        plainbuffer.decode_row(wire(value))


KEY = [(b"k", variant.encode("a"))]
CELLS = [put_cell(b"c", variant.encode(1), None)]


@pytest.mark.parametrize(
    "row",
    [
        plainbuffer.encode_row([], CELLS),
        plainbuffer.encode_row(KEY, []),
        plainbuffer.encode_row(KEY, [put_cell(b"c", variant.encode(True), None)]),
        plainbuffer.encode_row(KEY, [put_cell(b"c", variant.encode(1), 7)]),
        plainbuffer.encode_row([(b"k", variant.encode("a" * 600))], CELLS),
        plainbuffer.encode_row([*KEY, (b"n", variant.V_AUTO_INCREMENT)], CELLS),
        plainbuffer.encode_row([*KEY, (b"n", variant.V_INF_MIN)], CELLS),
        plainbuffer.encode_row(KEY, CELLS, deleted=True),
        plainbuffer.encode_row(KEY, CELLS, sequence=plainbuffer.SequenceInfo(1, 2, 3)),
        plainbuffer.encode_row(KEY, CELLS) + b"\x00",
    ],
    ids=["keyless", "cellless", "odd", "versioned", "long", "auto", "end", "dead", "seq", "zeros"],
)
def test_other_rows_have_no_form(row: bytes) -> None:
    wire = HEADER + row
    read = taught(wire)
    assert WholeForm.of(read, BEFORE + wire + AFTER, before=BEFORE, after=AFTER) is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_rows_of_which_one_has_a_double_that_is_not_finite_are_not_read(number: float) -> None:
    wires = [BEFORE + wire_of((["k"], [value, 1])) + AFTER for value in (1.5, -2.0, number)]
    form = form_of(wire_of((["k"], [0.0, 1])))
    assert form.read(wires[:2]) is not None
    assert form.read(wires) is None
