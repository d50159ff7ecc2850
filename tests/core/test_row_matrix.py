"""SimpleRowMatrix: golden bytes, every value there and back, and what is refused."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_matrix import (
    NULL,
    CorruptMatrix,
    MatrixWriter,
    RowMatrix,
    decode,
    fields_of,
)
from rowtide.core.values import variant
from rowtide.core.values.crc8 import crc8

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/formats/row_matrix.md"


def encode_matrix(matrix: RowMatrix) -> bytes:
    writer = MatrixWriter(matrix.key_names, matrix.names, entire_key=matrix.entire_key)
    for row in matrix.rows:
        writer.add(MatrixWriter.row_bytes(row))
    whole = writer.finish()
    assert writer.size == len(whole)
    return whole


GOLDEN = {
    "no rows": RowMatrix((b"pk1", b"pk2"), (b"a", b"b"), True, []),
    "two rows of every type": RowMatrix(
        (b"pk1", b"pk2"),
        (b"b", b"d", b"s", b"x"),
        True,
        [
            [variant.encode(v) for v in ("user1", 7, True, 3.5, "你", b"\xca\xfe")],
            [variant.encode("user2"), variant.encode(-1), NULL, NULL, NULL, NULL],
        ],
    ),
    "attributes alone": RowMatrix((), (b"n",), False, [[variant.encode(2**63 - 1)]]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_page_shows_the_bytes_of_each_example(name: str) -> None:
    shown = dict(re.findall(r"^\| ([\w ]+) \| `([0-9a-f]+)` \|$", PAGE.read_text(), re.M))
    assert shown[name] == encode_matrix(GOLDEN[name]).hex()
    assert decode(bytes.fromhex(shown[name])) == GOLDEN[name]


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
)
columns = st.lists(st.text(min_size=1, max_size=20).map(str.encode), max_size=5).map(tuple)


@st.composite
def matrices(draw: st.DrawFn) -> RowMatrix:
    keys, names = draw(columns), draw(columns)
    width = len(keys) + len(names)
    field = st.one_of(st.just(NULL), scalars.map(variant.encode))
    rows = draw(st.lists(st.lists(field, min_size=width, max_size=width), max_size=5))
    return RowMatrix(keys, names, draw(st.booleans()), rows)


@given(matrices())
def test_what_was_written_is_read(matrix: RowMatrix) -> None:
    assert decode(encode_matrix(matrix)) == matrix


@given(matrices(), st.data())
def test_a_changed_byte_is_noticed(matrix: RowMatrix, data: st.DataObject) -> None:
    whole = bytearray(encode_matrix(matrix))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptMatrix):
        decode(bytes(whole))


@given(matrices(), st.data())
def test_a_matrix_cut_short_is_noticed_unless_by_chance(
    matrix: RowMatrix, data: st.DataObject
) -> None:
    whole = encode_matrix(matrix)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        read = decode(part)
    except CorruptMatrix:
        return
    assert read != matrix


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    body = b"SRM0" + junk + b"\x01"
    with contextlib.suppress(CorruptMatrix):
        decode(body + bytes((crc8(body),)))


def test_a_row_gives_the_newest_version_of_each_column_and_null_for_none() -> None:
    one, two = variant.encode(1), variant.encode(2)
    cells = [
        plainbuffer.put_cell(b"a", two, 20),
        plainbuffer.put_cell(b"a", one, 10),
        plainbuffer.put_cell(b"c", one, 10),
    ]
    row = plainbuffer.decode_row(plainbuffer.HEADER + plainbuffer.encode_row([(b"k", one)], cells))
    assert fields_of(row, [b"k"], [b"a", b"b"]) == [one, two, NULL]
