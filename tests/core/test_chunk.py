"""Chunks as bytes: the page's golden bytes, borders, keys."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows import chunk
from rowtide.core.rows.chunk import Chunk
from rowtide.core.shard.mark import decode_mark, encode_mark, entry_digest, mark_key, mark_position
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.schema import StreamSettings, TableOptions
from tests.core.chunk_dictionary import address, cells

ROOT = Path(__file__).resolve().parents[2]
AT = address()
KEY = (AT.key_piece, AT.key_state)
B5 = chunk.border(b"b", 5)
STREAM = StreamSettings("date_t_7", 1_500_000_000_000_000, 24, ("a",))
MARK = ShardState(TableOptions(86400, 2, 3600), 41, 1_500_000_000_000_007, STREAM, 3)
PLAIN_MARK = ShardState(TableOptions())
NOTED_MARK = ShardState(TableOptions(), 5, 9, entry=entry_digest(b"an entry"))

CHUNKS = {
    "a narrow row": Chunk(9, cells("a:2=x a:1 b:5"), b"", False, *KEY),
    "a row of its key alone": Chunk(9, [], b"", False, *KEY),
    "a deleted row": Chunk(9, [], b"", True, *KEY),
    "the first chunk of a wide row": Chunk(9, cells("a:2"), B5, False, *KEY),
    "its last": Chunk(9, cells("b:5 b:4"), begin=B5),
    "a chunk left without cells": Chunk(9, [], chunk.border(b"c"), begin=B5),
}
GOLDEN: dict[str, bytes] = {
    "key of a first chunk": AT.row_key,
    "key of a later chunk": AT.row_key + B5,
    "border before a column": chunk.border(b"b"),
    "border of a name with a zero": chunk.border(b"b\0", 0),
    **{label: chunk.encode(part) for label, part in CHUNKS.items()},
    "key of a mark": mark_key("s-1"),
    "mark of a shard with a stream": encode_mark(MARK),
    "mark of a new shard": encode_mark(PLAIN_MARK),
    "mark with its entry's digest": encode_mark(NOTED_MARK),
}


def golden_lines() -> list[str]:
    """Return the page's rows as the code makes them."""
    return [f"| {label} | `{golden.hex()}` |" for label, golden in GOLDEN.items()]


def test_the_page_shows_these_bytes() -> None:
    page = (ROOT / "docs/internals/formats/chunk.md").read_text(encoding="utf-8")
    shown = [line.replace(" ", "") for line in page.splitlines() if line.endswith("` |")]
    assert shown == [line.replace(" ", "") for line in golden_lines()]


def test_the_golden_file_holds_these_bytes() -> None:
    kept = (ROOT / "tests/core/golden/chunk.txt").read_text(encoding="utf-8")
    lines = [line.split(": ") for line in kept.splitlines()]
    assert {label: bytes.fromhex(golden) for label, golden in lines} == GOLDEN


@pytest.mark.parametrize("label", CHUNKS)
def test_a_chunk_comes_back(label: str) -> None:
    part = CHUNKS[label]
    key = AT.row_key + part.begin
    assert chunk.decode(key, GOLDEN[label]) == part
    assert key[: len(key) - chunk.header(GOLDEN[label])[8]] == AT.row_key


def test_a_narrow_row_is_a_wire_row_behind_its_header() -> None:
    wire = GOLDEN["a narrow row"][chunk.HEADER_BYTES :]
    row = plainbuffer.decode_row(plainbuffer.HEADER + wire)
    assert row.key == [(b"pk", variant.encode("a"))]
    assert row.cells == CHUNKS["a narrow row"].cells
    assert wire == plainbuffer.encode_row(row.key, row.cells)


def test_the_header_tells_what_visibility_and_capacity_ask() -> None:
    head = chunk.Header._make(chunk.header(GOLDEN["a narrow row"]))
    assert head == chunk.Header(1, 0, 0, len(AT.key_piece), 9, 1, 2, 6, 0)
    assert chunk.Header._make(chunk.header(GOLDEN["a deleted row"]))[1:] == (
        chunk.DELETED, 0, len(AT.key_piece), 9, 2**63 - 1, 0, 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize("state", [MARK, PLAIN_MARK, NOTED_MARK])
def test_a_mark_comes_back(state: ShardState) -> None:
    encoded = encode_mark(state)
    assert decode_mark(encoded) == state
    assert mark_position(encoded) == (state.applied, state.stamp)


names = st.text(st.sampled_from("\0\1ab\x7f你\U0010ffff"), min_size=1, max_size=4).map(str.encode)
places = st.tuples(names, st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1)))


@given(places, places)
def test_borders_stand_in_the_order_of_cells(
    first: tuple[bytes, int], second: tuple[bytes, int]
) -> None:
    one, other = chunk.border(*first), chunk.border(*second)
    assert (one < other) == ((first[0], -first[1]) < (second[0], -second[1]))
    assert chunk.decode_border(one) == first


@given(places, st.text("\0\1ab", max_size=3), st.text("\0\1ab", max_size=3))
def test_a_rows_chunks_stand_between_its_key_and_its_end(
    place: tuple[bytes, int], name: str, other: str
) -> None:
    row, later = address(name).row_key, address(name).row_key + chunk.border(*place)
    assert row < later < chunk.row_end(row)
    if other != name:
        neighbour = address(other).row_key
        assert not row <= neighbour < chunk.row_end(row)


@given(st.lists(places, max_size=6, unique=True), st.binary(max_size=40))
def test_any_chunk_comes_back(some: list[tuple[bytes, int]], value: bytes) -> None:
    ordered = sorted(some, key=lambda place: (place[0], -place[1]))
    row = [plainbuffer.put_cell(name, variant.encode(value), at) for name, at in ordered]
    part = Chunk(5, row, b"", False, *KEY)
    assert chunk.decode(AT.row_key, chunk.encode(part)) == part


def test_tables_do_not_meet() -> None:
    assert chunk.table_prefix(255) < chunk.table_prefix(256)
    assert chunk.row_key(256, b"\x03") < chunk.table_prefix(257)
