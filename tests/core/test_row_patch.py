"""A row that is patched or walked becomes the same bytes as by taking its cells apart."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.protocol.row_form import FormLearner, PackedCells, RowForm
from rowtide.core.rows import chunk, row_patch
from rowtide.core.rows.chunk import CHUNK_BYTES, Chunk
from rowtide.core.rows.fold import RowAddress, Writes, update_row, version_after
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from tests.core.chunk_dictionary import ChunkDictionary

STAMP = 1_795_000_000_000_000
PIECE, STATE = plainbuffer.key_piece([(b"pk", variant.encode("user1"))])
AT = RowAddress(chunk.row_key(7, b"\x04user1\0\x01"), PIECE, STATE)

NAMES = st.sampled_from([b"a", b"ab", b"b", b"\xc3\xa9", b"long name", b"z"])
SCALARS: list[variant.Scalar] = [
    0,
    1,
    -(2**63),
    0.5,
    -0.0,
    "",
    "x",
    "y",
    "xy",
    "\xe9",
    b"",
    b"z",
    True,
]
VALUES = st.sampled_from(SCALARS)
VERSIONS = st.integers(0, 3)
SEVERAL = st.integers(1, 2)


@st.composite
def row_cells(draw: st.DrawFn) -> list[Cell]:
    """Return a row's cells in order, some columns perhaps with several versions."""
    found = draw(st.dictionaries(st.tuples(NAMES, VERSIONS), VALUES, min_size=1, max_size=6))
    cells = [put_cell(name, variant.encode(v), version) for (name, version), v in found.items()]
    return sorted(cells, key=lambda cell: (cell.name, -(cell.version_ms or 0)))


@st.composite
def new_values(draw: st.DrawFn, row: Sequence[Cell]) -> PackedCells:
    """Return new values for some columns of a row, sometimes for others, of any size."""
    there = st.sampled_from([cell.name for cell in row])
    names = sorted(draw(st.sets(st.one_of(there, there, NAMES), min_size=1)))
    values = VALUES.filter(lambda value: value is not True)
    cells = [put_cell(name, variant.encode(draw(values)), None) for name in names]
    return pack_cells(cells)


@st.composite
def alike(draw: st.DrawFn, row: Sequence[Cell]) -> list[Cell]:
    """Return a row whose values have the types and sizes of another row's."""

    def other(value: bytes) -> bytes:
        kind, size = value[0], variant.payload_size(value)
        if kind == variant.INTEGER:
            return variant.encode(draw(st.integers(-(2**63), 2**63 - 1)))
        if kind == variant.DOUBLE:
            return variant.encode(draw(st.floats(allow_nan=False, allow_infinity=False)))
        if kind == variant.STRING:
            return variant.encode("q" * size)
        return value

    return [put_cell(cell.name, other(cell.variant), draw(VERSIONS)) for cell in row]


def pack_cells(cells: Sequence[Cell]) -> PackedCells:
    form = RowForm.of(cells)
    assert form is not None
    found = form.read(plainbuffer.cells_piece(cells) + bytes(20), 0)
    assert found is not None
    return found


def encode_chunk(cells: Sequence[Cell]) -> bytes:
    return chunk.encode(Chunk(STAMP - 1, cells, key_piece=PIECE, key_state=STATE))


def teach(first: bytes, changes: PackedCells) -> None:
    """Let a patch be learnt where there can be one, from updates of one row."""
    row_patch.PATCHES.forget()
    stamped = changes if changes.version_ms is not None else changes.stamp(9)
    for _ in range(FormLearner.PAUSE_MIN):
        row_patch.patch_row(first, STATE, stamped, STAMP)


def update(first: bytes, changes: Sequence[Cell], max_versions: int) -> Writes:
    return update_row(ChunkDictionary({AT.row_key: first}), AT, changes, STAMP, max_versions)


@given(row_cells(), st.data(), VERSIONS, SEVERAL)
def test_a_row_becomes_the_same_patched_walked_or_folded(
    row: list[Cell], data: st.DataObject, version: int, max_versions: int
) -> None:
    changes = data.draw(new_values(row))
    row_patch.PATCHES.forget()
    if data.draw(st.booleans()):
        teach(encode_chunk(row), changes)
    now = data.draw(st.one_of(st.just(row), alike(row), row_cells()))
    first = encode_chunk(_distinct(now))
    stamped = changes.stamp(version)
    assert update(first, stamped, max_versions) == update(first, list(stamped), max_versions)


@given(row_cells(), st.data(), VERSIONS)
def test_a_sources_row_becomes_the_same_patched_walked_or_folded(
    row: list[Cell], data: st.DataObject, time_ms: int
) -> None:
    changes = data.draw(new_values(row))
    row_patch.PATCHES.forget()
    if data.draw(st.booleans()):
        teach(encode_chunk(row), changes)
    first = encode_chunk(data.draw(st.one_of(st.just(row), alike(row).map(_distinct), row_cells())))
    made = row_patch.update_row(first, STATE, changes, time_ms, STAMP)
    if made is None:
        several = chunk.Header._make(chunk.header(first)).versions_max > 1
        assert several, "all else is patched or walked"
        return
    version = version_after(ChunkDictionary({AT.row_key: first}), AT, list(changes), time_ms)
    assert list(made[1]) == list(changes.stamp(version))
    assert [(AT.row_key, made[0])] == update(first, list(made[1]), 1)


@given(row_cells(), st.data(), VERSIONS)
def test_the_version_after_a_rows_columns_is_the_same_with_and_without_a_patch(
    row: list[Cell], data: st.DataObject, time_ms: int
) -> None:
    changes = data.draw(new_values(row))
    teach(encode_chunk(row), changes)
    rows = ChunkDictionary(
        {AT.row_key: encode_chunk(data.draw(st.one_of(st.just(row), row_cells())))}
    )
    with_patch = version_after(rows, AT, changes, time_ms)
    assert with_patch == version_after(rows, AT, list(changes), time_ms)


def _distinct(cells: list[Cell]) -> list[Cell]:
    """Return cells in order, of equal versions of a column the last."""
    return sorted({(c.name, c.version_ms): c for c in cells}.values(), key=_order)


def _order(cell: Cell) -> tuple[bytes, int]:
    return cell.name, -(cell.version_ms or 0)


def row_of(columns: int) -> list[Cell]:
    return [put_cell(b"c%03d" % number, variant.encode(b"v" * 320), 5) for number in range(columns)]


def test_a_patch_is_learnt_from_updates_and_used_from_then_on() -> None:
    row_patch.PATCHES.forget()
    changes = pack_cells([put_cell(b"c001", variant.encode("new"), None)]).stamp(6)
    first = encode_chunk(row_of(3))
    for _ in range(FormLearner.PAUSE_MIN):
        assert all(place.form is None for place in row_patch.PATCHES.places())
        update(first, changes, 1)
    [place] = row_patch.PATCHES.places()
    assert place.form is not None
    made = row_patch.patch_row(first, STATE, changes, STAMP)
    assert [(AT.row_key, made)] == update(first, list(changes), 1)
    assert place.hits == 1


def test_a_row_that_grows_beyond_a_chunk_is_cut_as_without_a_patch() -> None:
    changes = pack_cells([put_cell(b"c001", variant.encode(b"n" * 500), None)]).stamp(6)
    lengths = []
    for columns in range(90, 96):
        first = encode_chunk(row_of(columns))
        teach(first, changes)
        writes = update(first, changes, 1)
        assert writes == update(first, list(changes), 1)
        lengths.append(len(first) <= CHUNK_BYTES < len(first) + 180 and len(writes) > 1)
    assert any(lengths)
