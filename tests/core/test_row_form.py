"""Rows of a known form are read, stored and logged to the same bytes as cell by cell."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, put_cell, stamp_cells
from rowtide.core.protocol.row_form import (
    FORMS,
    FormLearner,
    Forms,
    PackedCells,
    RowForm,
    ask_form,
)
from rowtide.core.records.avro import write_cells
from rowtide.core.rows import capacity, chunk
from rowtide.core.shard.plain_write import WireCells
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected

VERSION = 1_795_000_000_000
KEY = [(b"pk", variant.encode("user1"))]

NAMES = st.lists(st.text(min_size=1, max_size=12).filter(lambda name: name[0] != "#"), unique=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(
    st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), FINITE, st.binary(max_size=20)
)


@st.composite
def new_cells(draw: st.DrawFn) -> list[Cell]:
    names = draw(NAMES.filter(bool))
    return [put_cell(name.encode(), variant.encode(draw(VALUES)), None) for name in names]


def form_of(cells: Sequence[Cell]) -> RowForm:
    form = RowForm.of(cells)
    assert form is not None
    return form


def read(form: RowForm, cells: Sequence[Cell]) -> PackedCells | None:
    return form.read(b"xyz" + plainbuffer.cells_piece(cells) + bytes(20), 3)


def pack_cells(cells: Sequence[Cell]) -> PackedCells:
    found = read(form_of(cells), cells)
    assert found is not None
    return found


def teach(row: bytes) -> None:
    """Let a row be read often enough for its form to be learnt."""
    FORMS.forget()
    for _ in range(FormLearner.PAUSE_MIN):
        plainbuffer.decode_row(row)


@given(new_cells())
def test_a_row_of_a_form_reads_as_its_cells(cells: list[Cell]) -> None:
    found = pack_cells(cells)
    assert found == cells
    assert (len(found), list(found), found[0], found[-1:]) == (
        len(cells),
        cells,
        cells[0],
        cells[-1:],
    )
    assert capacity.cells_bytes(found) == capacity.cells_bytes(cells)


@given(new_cells())
def test_what_a_form_knows_is_what_a_look_at_the_cells_finds(cells: list[Cell]) -> None:
    in_order = sorted(cells)
    size = capacity.cells_bytes(cells)
    wire = WireCells(plainbuffer.cells_piece(in_order), len(cells), size)
    form = pack_cells(cells)
    assert (ask_form(form).packed, ask_form(wire).packed) == (form, None)
    assert {*(ask_form(form).names or ())} == {cell.name for cell in cells}
    for found in (form, wire):
        assert ask_form(found).data_bytes == capacity.cells_bytes(found) == size
        assert ask_form(found).is_checked
        assert [*stamp_cells(found, VERSION)] == stamp_cells(in_order, VERSION)
    known = ask_form(cells)
    assert not any((known.packed, known.is_checked, known.names, known.data_bytes))


@given(new_cells())
def test_cells_of_a_form_are_stored_and_logged_as_others_are(cells: list[Cell]) -> None:
    found = stamp_cells(pack_cells(cells), VERSION)
    others = sorted(stamp_cells(cells, VERSION))
    assert type(found) is PackedCells
    assert list(found) == others
    assert plainbuffer.cells_piece(found) == plainbuffer.cells_piece(others)
    assert plainbuffer.encode_row(KEY, found) == plainbuffer.encode_row(KEY, others)
    assert write_cells(found) == write_cells(others)
    piece, state = plainbuffer.key_piece(KEY)
    stored = [
        chunk.encode(chunk.Chunk(7, some, key_piece=piece, key_state=state))
        for some in (found, others)
    ]
    assert stored[0] == stored[1]


@given(new_cells(), st.data())
def test_a_form_with_other_sizes_of_texts_is_as_one_made_anew(
    cells: list[Cell], data: st.DataObject
) -> None:
    cells = sorted(cells)
    form = form_of(cells)
    texts = [at for at, kind in enumerate(form.kinds) if kind in (variant.STRING, variant.BLOB)]
    places = [at for at in texts if data.draw(st.booleans())]
    before = read(form, cells)
    assert before is not None
    if data.draw(st.booleans()):
        write_cells(stamp_cells(before, VERSION))  # The log's codec knows the form then.
    for at in places:
        value = "y" if form.kinds[at] == variant.STRING else b"z"
        value *= data.draw(st.integers(0, 70))
        cells[at] = put_cell(cells[at].name, variant.encode(value), None)
    made, found = form_of(cells), form.resize(places, [form_of(cells).sizes[at] for at in places])
    for name in ("names", "kinds", "sizes", "heads", "seeds", "integers", "stored"):
        assert getattr(found, name) == getattr(made, name)
    for name in ("wire_bytes", "data_bytes", "stored_bytes"):
        assert getattr(found, name) == getattr(made, name)
    assert found.ordered is found
    of_found, of_made = read(found, cells), read(made, cells)
    assert of_found is not None
    assert of_made is not None
    logged = [write_cells(stamp_cells(some, VERSION)) for some in (of_found, of_made, cells)]
    assert logged[0] == logged[1] == logged[2]


@given(new_cells(), st.data())
def test_a_row_of_other_values_has_the_form_where_types_and_sizes_are_the_same(
    cells: list[Cell], data: st.DataObject
) -> None:
    form = form_of(cells)
    others = [
        put_cell(cell.name, variant.encode(data.draw(VALUES)), None)
        if data.draw(st.booleans())
        else cell
        for cell in cells
    ]
    same = [(c.variant[0], len(c.variant)) for c in cells] == [
        (c.variant[0], len(c.variant)) for c in others
    ]
    padded = [plainbuffer.cells_piece(row) + bytes(2000) for row in (cells, others)]
    found = form.read(padded[1], 0)
    assert (found == others) if same else (found is None)


@given(new_cells(), st.data())
def test_whatever_is_wrong_with_a_row_its_form_changes_nothing(
    cells: list[Cell], data: st.DataObject
) -> None:
    row = HEADER + plainbuffer.encode_row(KEY, cells)
    teach(row)
    assert type(plainbuffer.decode_row(row).cells) is PackedCells
    place = data.draw(st.integers(4, len(row) - 1))
    damaged = row[:place] + bytes([data.draw(st.integers(0, 255))]) + row[place + 1 :]
    damaged = damaged[: data.draw(st.sampled_from([len(row), place]))]
    with_form = read_or_refuse(damaged)
    FORMS.forget()
    assert read_or_refuse(damaged) == with_form


def read_or_refuse(row: bytes) -> object:
    try:
        return plainbuffer.decode_row(row)
    except Rejected as refused:
        return refused.message


def test_rows_of_one_form_teach_it() -> None:
    FORMS.forget()
    kinds = [type(plainbuffer.decode_row(row_of(number)).cells) for number in range(10)]
    assert kinds == [list] * 8 + [PackedCells] * 2


def row_of(number: int) -> bytes:
    return HEADER + plainbuffer.encode_row(KEY, [put_cell(b"n", variant.encode(number), None)])


def test_a_text_that_is_not_utf_8_has_no_form() -> None:
    form = form_of([put_cell(b"a", variant.encode("é"), None)])
    assert read(form, [put_cell(b"a", variant.encode("ü"), None)]) is not None
    assert read(form, [put_cell(b"a", b"\x03\x02\0\0\0\xff\xfe", None)]) is None


@pytest.mark.parametrize(
    ("number", "finite"),
    [
        (1.7976931348623157e308, True),
        (-1.7976931348623157e308, True),
        (2.0**1009, True),  # All but the last bits of its exponent are set.
        (-5e-324, True),
        (math.inf, False),
        (-math.inf, False),
        (math.nan, False),
        (-math.nan, False),
    ],
)
def test_a_double_that_is_not_finite_has_no_form(number: float, finite: bool) -> None:
    plain = put_cell(b"a", variant.encode(1.5), None)
    form = form_of([plain, plain._replace(name=b"b")])
    other = put_cell(b"b", variant.encode(number), None)
    assert (read(form, [plain, other]) is not None) is finite


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [put_cell(b"a", variant.encode(1), VERSION)],
        [plainbuffer.delete_cell(b"a", None)],
        [plainbuffer.increment_cell(b"a", variant.encode(1))],
        [put_cell(b"a", variant.encode(True), None)],
        [put_cell(b"a", variant.encode("x" * 513), None)],
        [put_cell(b"#a", variant.encode(1), None)],
        [put_cell(b"a", variant.encode(value), None) for value in (1, 2)],
        [put_cell(b"%d" % i, variant.encode(i), None) for i in range(129)],
    ],
    ids=["none", "versioned", "delete", "increment", "boolean", "long", "named", "twice", "many"],
)
def test_other_cells_have_no_form(cells: list[Cell]) -> None:
    assert RowForm.of(cells) is None


def pauses(place: FormLearner[str], rows: int) -> list[int]:
    """Return after how many rows without its form a place wants to learn one, again and again."""
    learnt = [0]
    for row in range(rows):
        place.left -= 1
        if place.left <= 0 and place.judge():
            learnt.append(row)
            place.learn("form")
    return [b - a for a, b in pairwise(learnt)]


def test_forms_that_never_help_are_learnt_ever_more_seldom() -> None:
    found = pauses(FormLearner(), 4 * FormLearner.PAUSE_MAX)
    assert found == sorted(found)
    assert found[-1] > FormLearner.PAUSE_MAX


def test_a_form_that_helps_is_kept() -> None:
    place: FormLearner[str] = FormLearner()
    place.learn("form")
    for _ in range(100):
        place.hits += FormLearner.PAUSE_MIN
        assert pauses(place, FormLearner.PAUSE_MIN) == []
    assert place.form == "form"


def test_forms_are_bounded() -> None:
    forms: Forms[str] = Forms()
    for found_by in range(3 * Forms.PLACES_MAX):
        assert forms.place(found_by) is forms.find(found_by)
    assert sum(forms.find(n) is not None for n in range(3 * Forms.PLACES_MAX)) <= Forms.PLACES_MAX
