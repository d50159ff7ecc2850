"""Rows that a source packs by a form: what is read of them, and what is refused."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, delete_cell, put_cell
from rowtide.core.rows.source_form import (
    FORMS_KNOWN,
    LENGTHS_KNOWN_ALL,
    SAMPLE_BYTES_MAX,
    TEXT_BYTES_MAX,
    Known,
    SourceForm,
    find_form,
    first_key_value,
)
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

KEY = [(b"p", variant.encode("")), (b"n", variant.encode(0))]
CELLS = [
    put_cell(name, variant.encode(value), None)
    for name, value in ((b"a", 0), (b"b", ""), (b"c", 0.0), (b"d", b""))
]
SAMPLE = HEADER + plainbuffer.encode_row(KEY, CELLS)

VALUES = st.tuples(
    st.text(max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=5),
    st.binary(max_size=3),
)


def pack(partition: str, number: int, text: str, blob: bytes) -> bytes:
    """Return a row of the form, with ``number`` as the value of each of its numbers."""
    texts = [partition.encode(), text.encode(), blob]
    data = number.to_bytes(8, "little", signed=True)
    return b"".join((*(len(t).to_bytes(2, "little") for t in texts), data * 3, *texts))


def cell(name: bytes, value: Scalar) -> Cell:
    return put_cell(name, variant.encode(value), None)


def is_finite(number: int) -> bool:
    """Return True if the bits of ``number`` are those of a finite double."""
    return math.isfinite(struct.unpack("<d", struct.pack("<q", number))[0])


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (math.nan, "NaN can't be set to double value."),
        (math.inf, "Infinity can't be set to double value."),
        (-math.inf, "Infinity can't be set to double value."),
    ],
)
def test_a_packed_double_is_finite(number: float, text: str) -> None:
    bits = struct.unpack("<q", struct.pack("<d", number))[0]
    with pytest.raises(Rejected, match=text):
        find_form([SAMPLE], 1).read(pack("p", bits, "", b""))


@given(VALUES)
def test_a_packed_row_is_the_row_that_was_packed(values: tuple[str, int, str, bytes]) -> None:
    partition, number, text, blob = values
    assume(is_finite(number))
    key, cells = find_form([SAMPLE], 1).read(pack(*values))
    data = number.to_bytes(8, "little", signed=True)
    double = b"\x01" + data
    expected = [cell(b"a", number), cell(b"b", text), put_cell(b"c", double, None)]
    assert list(cells) == [*expected, cell(b"d", blob)]
    assert key == [(b"p", variant.encode(partition)), (b"n", variant.encode(number))]
    assert (key.piece, key.state) == plainbuffer.key_piece(list(key))
    assert first_key_value(pack(*values), 1, [SAMPLE]) == variant.encode(partition)


ASSIGNED = [KEY[0], (b"id", variant.V_AUTO_INCREMENT), KEY[1]]


@given(VALUES)
def test_a_column_that_the_shard_assigns_takes_no_bytes(
    values: tuple[str, int, str, bytes],
) -> None:
    assume(is_finite(values[1]))
    sample = HEADER + plainbuffer.encode_row(ASSIGNED, CELLS)
    key, cells = find_form([sample], 1).read(pack(*values))
    plain_key, plain_cells = find_form([SAMPLE], 1).read(pack(*values))
    assert key == [plain_key[0], ASSIGNED[1], plain_key[1]]
    assert list(cells) == list(plain_cells)
    assert (key.piece, key.state) == plainbuffer.key_piece(list(key))
    assert first_key_value(pack(*values), 1, [sample]) == plain_key[0][1]


@given(VALUES, st.data())
def test_bytes_that_are_no_row_of_the_form_are_refused(
    values: tuple[str, int, str, bytes], data: st.DataObject
) -> None:
    row = pack(*values)
    place = data.draw(st.integers(0, len(row) - 1))
    damaged = row[:place] + bytes([data.draw(st.integers(0, 255))]) + row[place + 1 :]
    damaged = damaged[: data.draw(st.sampled_from([len(row), place]))]
    damaged += data.draw(st.binary(max_size=2))
    try:
        key, cells = find_form([SAMPLE], 1).read(damaged)
    except Rejected:
        return
    # Whatever is not refused is a row that PlainBuffer takes too.
    whole = plainbuffer.decode_row(HEADER + plainbuffer.encode_row(key, list(cells)))
    assert (whole.key, whole.cells) == (key, cells)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        pytest.param(b"", "it breaks off", id="nothing"),
        pytest.param(pack("p", 1, "t", b"")[:-1], "it has 31 bytes, not 32", id="cut off"),
        pytest.param(pack("p", 1, "t", b"") + b"x", "it has 33 bytes, not 32", id="too long"),
        pytest.param(
            pack("p", 1, "x" * (TEXT_BYTES_MAX + 1), b""),
            "more than 512 bytes",
            id="a long text",
        ),
        pytest.param(
            pack("p", 1, "é", b"").replace("é".encode(), b"\xff\xfe"), "not UTF-8", id="no text"
        ),
        pytest.param(
            pack("é", 1, "", b"").replace("é".encode(), b"\xff\xfe"),
            "UTF-8",
            id="no text in key",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(row: bytes, why: str) -> None:
    with pytest.raises(Rejected, match=re.escape(why)):
        find_form([SAMPLE], 1).read(row)


@pytest.mark.parametrize(
    ("key", "cells"),
    [
        pytest.param([], CELLS, id="no key"),
        pytest.param([(b"p", variant.V_INF_MIN)], CELLS, id="a bound in the key"),
        pytest.param([(b"p", variant.V_AUTO_INCREMENT)], CELLS, id="a key to be made"),
        pytest.param([(b"p", variant.encode(True))], CELLS, id="a boolean in the key"),
        pytest.param(KEY, [], id="no cells"),
        pytest.param(KEY, CELLS[::-1], id="another order"),
        pytest.param(KEY, [cell(b"a", 1), cell(b"a", 1)], id="a column twice"),
        pytest.param(KEY, [cell(b"a", True)], id="a boolean"),
        pytest.param(KEY, [put_cell(b"a", variant.encode(1), 5)], id="a version"),
        pytest.param(KEY, [delete_cell(b"a", None)], id="a delete of a column"),
        pytest.param(KEY, [cell(b"", 1)], id="no name"),
        pytest.param(KEY, [cell(b"x" * 256, 1)], id="a long name"),
    ],
)
def test_a_form_that_no_source_sends_is_refused(
    key: list[tuple[bytes, bytes]], cells: Sequence[Cell]
) -> None:
    sample = HEADER + plainbuffer.encode_row(key, cells)
    with pytest.raises(Rejected, match="row form"):
        find_form([sample], 1)


@pytest.mark.parametrize("number", [0, 2])
def test_a_form_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(Rejected, match=f"there is no form {number}"):
        find_form([SAMPLE], number)


def test_a_delete_is_no_form() -> None:
    deleted = HEADER + plainbuffer.encode_row(KEY, [], deleted=True)
    with pytest.raises(Rejected, match="row form"):
        SourceForm(plainbuffer.decode_row(deleted))
    assert first_key_value(b"", 1, [deleted]) is None


def sample(name: bytes, *, value: str = "") -> bytes:
    """Return a row that gives a form of its own."""
    key = [(b"p", variant.encode(value))]
    return HEADER + plainbuffer.encode_row(key, [put_cell(name, variant.encode(0), None)])


def test_no_more_forms_are_remembered_than_allowed() -> None:
    known = Known()
    first = known.form(sample(b"first"))
    assert known.form(sample(b"first")) is first
    for number in range(FORMS_KNOWN):
        known.form(sample(b"c%d" % number))
        assert len(known.forms) <= FORMS_KNOWN
    assert known.form(sample(b"first")) is not first


def test_a_form_given_by_too_many_bytes_is_not_remembered() -> None:
    known = Known()
    known.form(sample(b"a", value="x" * SAMPLE_BYTES_MAX))
    assert not known.forms


def test_lengths_of_texts_are_remembered_for_all_forms_together() -> None:
    known = Known()
    known.form(sample(b"a"))
    for _ in range(LENGTHS_KNOWN_ALL):
        known.learns_lengths()
    assert known.forms
    known.learns_lengths()
    assert not known.forms
