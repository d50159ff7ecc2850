"""Rows in PlainBuffer: the SDKs' own bytes, both directions, and what is refused."""

import contextlib
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import (
    HEADER,
    RowChange,
    SequenceInfo,
    decode_row,
    decode_rows,
    delete_cell,
    encode_row,
    first_key_value,
    increment_cell,
    put_cell,
)
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected

ROOT = Path(__file__).resolve().parents[2]
E = variant.encode
AT = 1500000000000
PK = [(b"pk", E("a"))]
ROWS = {
    "key of a STRING and an INTEGER": RowChange(
        [(b"pk1", E("user1")), (b"pk2", E(7))], [], False, None
    ),
    "key of INF_MIN and INF_MAX": RowChange(
        [(b"pk1", variant.V_INF_MIN), (b"pk2", variant.V_INF_MAX)], [], False, None
    ),
    "key of a BLOB and AUTO_INCREMENT": RowChange(
        [(b"pk1", E(b"\x00\x01\xff")), (b"pk2", variant.V_AUTO_INCREMENT)], [], False, None
    ),
    "put of each type": RowChange(
        PK,
        [
            put_cell(b"b", E(True), None),
            put_cell(b"d", E(3.5), None),
            put_cell(b"i", E(-2), AT),
            put_cell(b"s", E("你"), None),
            put_cell(b"x", E(b"\xca\xfe"), None),
        ],
        False,
        None,
    ),
    "update with each operation": RowChange(
        PK,
        [
            put_cell(b"c1", E("v"), None),
            delete_cell(b"c2", AT),
            delete_cell(b"c3", None),
            increment_cell(b"c4", E(5)),
        ],
        False,
        None,
    ),
    "delete of a row": RowChange(PK, [], True, None),
    "stream record": RowChange(
        PK,
        [put_cell(b"c1", E(1), AT), delete_cell(b"c2", AT), delete_cell(b"c3", None)],
        False,
        SequenceInfo(2, AT * 1000, 3),
    ),
}
GOLDEN = {
    label: bytes.fromhex(digits)
    for line in (ROOT / "tests/core/golden/plainbuffer.txt").read_text().splitlines()
    if not line.startswith("#")
    for label, digits in [line.split(": ")]
}

names = st.one_of(st.text(max_size=20), st.just("n" * 600)).map(str.encode)
versions = st.integers(0, (2**63 - 1) // 1000)
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), st.text(), st.binary()
).map(E) | st.sampled_from([E("v" * 2000), E(b"\xff" * 600), E("")])
puts = st.builds(put_cell, names, values, st.none() | versions)
cells = st.one_of(
    puts,
    st.builds(delete_cell, names, st.none() | versions),
    st.builds(increment_cell, names, st.integers(-9, 9).map(E)),
)
keys = st.lists(st.tuples(names, values), max_size=4)
sequences = st.builds(
    SequenceInfo, st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.integers(0, 2**32 - 1)
)
rows = st.builds(RowChange, keys, st.lists(cells, max_size=6), st.booleans(), st.none() | sequences)


def write_rows(changes: Sequence[RowChange]) -> bytes:
    """Return a buffer of rows."""
    return HEADER + b"".join(
        encode_row(row.key, row.cells, deleted=row.deleted, sequence=row.sequence)
        for row in changes
    )


def refusal(buffer: bytes) -> str:
    """Return why a buffer is refused; anything but ``Rejected`` fails the test."""
    with pytest.raises(Rejected) as refused:
        decode_row(buffer)
    assert refused.value.code == "OTSParameterInvalid"
    return refused.value.message


@pytest.mark.parametrize("label", sorted(ROWS))
def test_a_row_has_the_bytes_of_the_sdks(label: str) -> None:
    assert write_rows([ROWS[label]]) == GOLDEN[label]
    assert decode_row(GOLDEN[label]) == ROWS[label]


def test_the_page_shows_these_bytes() -> None:
    page = (ROOT / "docs/internals/formats/plainbuffer.md").read_text(encoding="utf-8")
    lines = [line.strip("| ") for line in page.split("## Examples")[1].splitlines()]
    shown = dict(line.rstrip("`").split(" | `") for line in lines if line.endswith("`"))
    assert shown == {label: row.hex() for label, row in GOLDEN.items()}


@given(st.lists(rows, max_size=3))
def test_rows_come_back(changes: list[RowChange]) -> None:
    assert decode_rows(write_rows(changes)) == changes


@given(rows)
def test_the_first_key_value_is_found_at_a_glance_or_not_at_all(change: RowChange) -> None:
    found = first_key_value(write_rows([change]))
    first = change.key[0][1] if change.key else None
    plain = first is not None and first[0] in (variant.INTEGER, variant.STRING, variant.BLOB)
    assert found == (first if plain else None)


@given(st.builds(lambda row, cut: write_rows([row])[:cut], rows, st.integers(0, 60)))
def test_a_first_key_value_that_is_cut_off_is_none(buffer: bytes) -> None:
    found = first_key_value(buffer)
    assert found is None or buffer.find(found) > 0
    key.encode([found] if found else [])


@given(rows, st.integers(0, 30))
def test_zeros_may_follow_a_row(change: RowChange, zeros: int) -> None:
    assert decode_row(write_rows([change]) + bytes(zeros)) == change


def test_no_bytes_are_no_rows() -> None:
    assert decode_rows(b"") == []
    assert decode_rows(HEADER) == []


@given(st.lists(cells))
def test_kept_cells_come_back(kept: list[Cell]) -> None:
    piece = plainbuffer.cells_piece(kept)
    assert piece == b"".join(map(plainbuffer.cell_piece, kept))
    assert plainbuffer.parse_cells(piece) == kept


@given(keys, st.lists(cells), st.booleans())
def test_a_row_is_joined_from_kept_pieces(
    key: list[tuple[bytes, bytes]], kept: list[Cell], deleted: bool
) -> None:
    piece, state = plainbuffer.key_piece(key)
    checksums = bytes(cell.checksum for cell in kept)
    crc = plainbuffer.row_checksum(state, checksums, deleted=deleted)
    joined = b"".join(
        (
            piece,
            b"\x02",
            plainbuffer.cells_piece(kept),
            b"\x08" if deleted else b"",
            b"\x09",
            bytes((crc,)),
        )
    )
    assert decode_row(HEADER + joined) == RowChange(key, kept, deleted, None)


@given(names, values, versions)
def test_a_version_given_later_makes_the_same_cell(
    name: bytes, value: bytes, version_ms: int
) -> None:
    bare = put_cell(name, value, None)
    whole = put_cell(name, value, version_ms)
    assert plainbuffer.stamp_cell(bare, version_ms) == whole
    others = [put_cell(name, value, 5), delete_cell(name, None), increment_cell(name, E(1))]
    assert plainbuffer.stamp_cells([bare, *others], version_ms) == [whole, *others]


# A cell of name "n" in a row of key pk="a"; each line breaks one rule of the format.
N = "03 04 01000000 6e"
VALUE = "05 09000000 00 0100000000000000"
BROKEN = [
    ("no value", f"{N} 0a 00", "a cell without value and operation"),
    ("op 0", f"{N} {VALUE} 06 00 0a 00", "unknown cell operation 00"),
    ("op 2", f"{N} {VALUE} 06 02 0a 00", "unknown cell operation 02"),
    ("delete all with a value", f"{N} {VALUE} 06 01 0a 00", "a delete of all versions with"),
    (
        "delete all with a version",
        f"{N} 06 01 07 0500000000000000 0a 00",
        "a delete of all versions with",
    ),
    ("delete one without version", f"{N} 06 03 0a 00", "a delete of one version needs"),
    ("increment of a string", f"{N} 05 05000000 03 00000000 06 04 0a 00", "an increment needs"),
    ("increment without value", f"{N} 06 04 0a 00", "an increment needs"),
    ("version before op", f"{N} 07 0500000000000000 06 03 0a 00", "tag 06 instead of a cell's"),
    ("no checksum", f"{N} {VALUE} 09 00", "tag 09 instead of a cell's checksum"),
    ("wrong checksum", f"{N} {VALUE} 0a 00", "a cell's checksum is 00, not"),
    ("no name", f"03 {VALUE} 0a 00", "tag 03 instead of the row's checksum"),
    ("INTEGER of 8 bytes", f"{N} 05 08000000 00 01000000000000 0a 00", "must have 9"),
    ("BOOLEAN of 2", f"{N} 05 02000000 02 02 0a 00", "must be 0 or 1"),
    ("STRING one short", f"{N} 05 06000000 03 02000000 61 0a 00", "wrong length"),
    ("STRING not UTF-8", f"{N} 05 06000000 03 01000000 ff 0a 00", "not UTF-8"),
    ("BLOB one short", f"{N} 05 06000000 07 02000000 61 0a 00", "wrong length"),
    ("NULL", f"{N} 05 01000000 06 0a 00", "a value of type VT_NULL"),
    ("INF_MIN", f"{N} 05 01000000 09 0a 00", "a value of type VT_INF_MIN"),
    ("type 5", f"{N} 05 01000000 05 0a 00", "unknown type 5"),
    ("empty value", f"{N} 05 00000000 0a 00", "unknown type -1"),
    ("name not UTF-8", f"03 04 01000000 ff {VALUE} 0a 00", "a column name is not UTF-8"),
]


@pytest.mark.parametrize(("cell", "why"), [row[1:] for row in BROKEN], ids=[r[0] for r in BROKEN])
def test_a_malformed_cell_is_refused_with_its_place(cell: str, why: str) -> None:
    piece, _ = plainbuffer.key_piece(PK)
    message = refusal(HEADER + piece + b"\x02" + bytes.fromhex(cell) + b"\x09\x00")
    assert why in message
    assert message.startswith("Invalid row: byte ")


@pytest.mark.parametrize(
    ("buffer", "why"),
    [
        ("", "it begins with '', not '75000000'"),
        ("75000001", "it begins with '75000001'"),
        ("75000000", "tag 00 instead of the row's checksum"),
        ("75000000 00", "tag 00 instead of the row's checksum"),
        ("75000000 09 01", "the row's checksum is 01, not 00"),
        ("75000000 09", "it breaks off"),
        ("75000000 01 0901", "the row's checksum is 01, not 00"),
        ("75000000 0900 0900", "bytes follow the end of the row"),
        ("75000000 0900 000001", "bytes follow the end of the row"),
        ("75000000 01 03 04 01000000 6e 0a 00 09 00", "a primary key column without a value"),
        (
            f"75000000 01 {N} {VALUE} 07 0500000000000000 0a 00 09 00",
            "tag 07 instead of a primary key column's checksum",
        ),
        ("75000000 0b 01000000 0c 09 00", "a part of an extension is longer"),
        ("75000000 0b ffffffff", "an extension is longer than the buffer"),
        ("75000000 0b 0a000000 10 00000000", "an extension is longer than the buffer"),
        ("75000000 0b 05000000 0c 00000000 09 00", "of an unknown form"),
    ],
)
def test_a_malformed_row_is_refused(buffer: str, why: str) -> None:
    assert why in refusal(bytes.fromhex(buffer))


def test_an_unknown_part_of_an_extension_is_passed_over() -> None:
    row = decode_row(bytes.fromhex("75000000 0b 08000000 10 03000000 aabbcc 09 00"))
    assert row == RowChange([], [], False, None)


@pytest.mark.parametrize("label", sorted(ROWS))
def test_a_row_cut_anywhere_is_refused(label: str) -> None:
    for size in range(len(GOLDEN[label])):
        refusal(GOLDEN[label][:size])


@pytest.mark.parametrize("label", sorted(set(ROWS) - {"stream record"}))
def test_any_flipped_bit_is_noticed(label: str) -> None:
    row = GOLDEN[label]
    for place in range(len(row) * 8):
        damaged = bytearray(row)
        damaged[place // 8] ^= 1 << place % 8
        refusal(bytes(damaged))


@pytest.mark.parametrize("label", sorted(ROWS))
def test_a_claimed_length_costs_nothing(label: str) -> None:
    tracemalloc.start()
    try:
        for place in range(4, len(GOLDEN[label]) - 6):
            row = bytearray(GOLDEN[label])
            row[place : place + 4] = b"\xff\xff\xff\x7f"
            with contextlib.suppress(Rejected):
                decode_row(bytes(row))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


CELLS = [put_cell(b"c%d" % n, E(n), None) for n in range(4)]


@pytest.mark.parametrize("cells_max", [4, 5])
def test_a_row_of_as_many_cells_as_may_be_is_read(cells_max: int) -> None:
    assert list(decode_row(HEADER + encode_row(PK, CELLS), cells_max=cells_max).cells) == CELLS


@pytest.mark.parametrize("cells_max", [0, 3])
def test_a_row_of_more_cells_is_refused_without_reading_the_rest(cells_max: int) -> None:
    # What follows the first cell too many is never looked at: it is not even a cell.
    buffer = HEADER + encode_row(PK, CELLS[: cells_max + 1])[:-2] + b"\x03\x04"
    with pytest.raises(Rejected, match=f"more than {cells_max} attribute columns"):
        decode_row(buffer + bytes(10), cells_max=cells_max)


def test_a_key_of_very_many_columns_is_refused_without_reading_the_rest() -> None:
    key_of_33 = [(b"k%d" % n, E(n)) for n in range(33)]
    with pytest.raises(Rejected, match="more than 32 primary key columns"):
        decode_row(HEADER + encode_row(key_of_33, [])[:-2] + b"\x03\x04" + bytes(10))


@st.composite
def broken_buffers(draw: st.DrawFn) -> bytes:
    """Draw a buffer near a well-formed one: some bytes replaced, left out or put in."""
    buffer = bytearray(write_rows(draw(st.lists(rows, min_size=1, max_size=2))))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(buffer)))
        end = min(len(buffer), start + draw(st.sampled_from([0, 1, 4, 9])))
        buffer[start:end] = draw(
            st.binary(max_size=9)
            | st.sampled_from(
                [b"\xff\xff\xff\xff", b"\x03\x04", b"\x05", b"\x08", b"\x0b", bytes(4)]
            )
        )
    return bytes(buffer)


@pytest.mark.parametrize("decoder", [decode_row, decode_rows])
@given(buffer=st.one_of(broken_buffers(), st.binary(), st.binary().map(lambda tail: HEADER + tail)))
def test_any_bytes_are_rows_or_are_refused(
    decoder: Callable[[bytes], object], buffer: bytes
) -> None:
    with contextlib.suppress(Rejected):
        decoder(buffer)
    found = first_key_value(buffer)
    assert found is None or key.encode([found])
