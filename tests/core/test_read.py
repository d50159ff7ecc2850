"""What of a stored row answers a read, by each path that may answer it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows import capacity, chunk, fold
from rowtide.core.rows.filter import compile_filter
from rowtide.core.rows.fold import RowAddress
from rowtide.core.rows.read import (
    RowAnswer,
    RowFilter,
    Selection,
    StoredRow,
    answer,
    read_range,
    read_row,
)
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.version import Window
from tests.core.chunk_dictionary import TABLE_ID, ChunkDictionary, address, cells, put, shown

AT = address()
LIMITS = Limits()
KEEP = TableOptions(max_versions=9)
EVERY = Window(max_versions=INT64_MAX)


class Several:
    """A filter that keeps rows with more than one cell in columns b and c."""

    columns = frozenset([b"b", b"c"])
    page = None

    def choose(self, key: bytes, cells: Sequence[Cell]) -> Sequence[Cell] | None:
        """Keep or drop."""
        assert key == AT.key_piece
        return cells if sum(cell.name in self.columns for cell in cells) > 1 else None


def select(*names: str, key: bool = False, window: Window = EVERY) -> Selection:
    """Return a selection of columns."""
    return Selection(window, frozenset(name.encode() for name in names), key_named=key)


def page(offset: int, limit: int) -> RowFilter:
    """Return a pagination filter."""
    columns = pb.ColumnPaginationFilter(offset=offset, limit=limit)
    message = pb.Filter(type=pb.FT_COLUMN_PAGINATION, filter=columns.SerializeToString())
    return compile_filter(message.SerializeToString(), LIMITS)


ROW = "a:3 a:2 a:1 b:2 c:3 c:1"
SELECTIONS = [
    ("all of it", Selection(EVERY), ROW),
    ("the newest of each column", Selection(Window()), "a:3 b:2 c:3"),
    ("two of each", Selection(Window(max_versions=2)), "a:3 a:2 b:2 c:3 c:1"),
    ("a window", Selection(Window(2, 3, 9)), "a:2 b:2"),
    ("a window's newest", Selection(Window(1, 3, 1)), "a:2 b:2 c:1"),
    ("an empty window leaves the key", Selection(Window(7, 9, 9)), "-"),
    ("a column", select("b"), "b:2"),
    ("two columns, in stored order", select("c", "a", window=Window()), "a:3 c:3"),
    ("no such column is no row", select("x"), "absent"),
    ("a column without such a version is none", select("b", window=Window(3, 4, 1)), "absent"),
    ("unless the key is named", select("x", key=True), "-"),
    ("one named column is enough", select("x", "b"), "b:2"),
    ("from a column", Selection(EVERY, start_column=b"b"), "b:2 c:3 c:1"),
    ("up to a column, not with it", Selection(EVERY, end_column=b"c"), "a:3 a:2 a:1 b:2"),
    ("between columns", Selection(Window(), start_column=b"a\0", end_column=b"c"), "b:2"),
    ("between none", Selection(EVERY, start_column=b"d"), "-"),
    ("a filter keeps", Selection(Window(), filter=Several()), "a:3 b:2 c:3"),
    ("a filter sees what is read", Selection(EVERY, frozenset([b"b"]), filter=Several()), "absent"),
    ("and what is between", Selection(EVERY, end_column=b"c", filter=Several()), "absent"),
    ("a page of columns", Selection(EVERY, filter=page(1, 1)), "b:2"),
    ("a page with all versions", Selection(EVERY, filter=page(2, 9)), "c:3 c:1"),
    ("a page of what is between", Selection(EVERY, end_column=b"c", filter=page(1, 9)), "b:2"),
    ("a page behind the end", Selection(EVERY, filter=page(3, 1)), "-"),
    ("a named column elsewhere", Selection(EVERY, frozenset([b"a"]), start_column=b"b"), "-"),
]  # fmt: skip


def store(text: str, at: RowAddress = AT, chunk_bytes: int = chunk.CHUNK_BYTES) -> ChunkDictionary:
    """Return rows with one row, cut into chunks of ``chunk_bytes``."""
    rows = ChunkDictionary()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_BYTES", chunk_bytes)
        rows.write(fold.put_row(rows, at, cells(text), 1, 100))
    return rows


def decode(answered: RowAnswer | None, at: RowAddress = AT) -> list[Cell] | None:
    """Return an answer's cells, its checksums, key and size checked."""
    if answered is None:
        return None
    row = plainbuffer.decode_row(plainbuffer.HEADER + answered.wire)
    assert plainbuffer.key_piece(row.key)[0] == at.key_piece
    assert answered.size == capacity.cells_bytes(row.cells) + len(at.key_piece)
    return list(row.cells)


@pytest.mark.parametrize("chunk_bytes", [chunk.CHUNK_BYTES, 60], ids=["narrow", "wide"])
@pytest.mark.parametrize(
    ("wanted", "expected"), [s[1:] for s in SELECTIONS], ids=[s[0] for s in SELECTIONS]
)
def test_a_read_answers(wanted: Selection, expected: str, chunk_bytes: int) -> None:
    rows = store(ROW, chunk_bytes=chunk_bytes)
    assert (len(rows.chunks) > 2) == (chunk_bytes == 60)
    assert shown(decode(read_row(rows, AT.row_key, wanted, KEEP, 0))) == expected


TABLE_HIDES = [
    ("nothing that is not too old", TableOptions(5, 9), 8_000, "a:3500 b:3000", "a:3500 b:3000"),
    ("what has expired", TableOptions(5, 9), 9_000, "a:4000 b:3500", "a:4000"),
    ("every cell, and the row stays", TableOptions(5, 9), 9_000, "a:3", "-"),
    ("surplus versions", TableOptions(-1, 1), 0, "a:2 a:1 b:1", "a:2 b:1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "now_ms", "text", "expected"),
    [s[1:] for s in TABLE_HIDES],
    ids=[s[0] for s in TABLE_HIDES],
)
def test_the_table_hides(options: TableOptions, now_ms: int, text: str, expected: str) -> None:
    found = read_row(store(text), AT.row_key, Selection(EVERY), options, now_ms)
    assert shown(decode(found)) == expected


def test_a_row_of_a_key_alone_answers_with_its_key() -> None:
    rows = store("")
    assert shown(decode(read_row(rows, AT.row_key, Selection(EVERY), KEEP, 0))) == "-"
    assert read_row(rows, AT.row_key, select("a"), KEEP, 0) is None
    assert shown(decode(read_row(rows, AT.row_key, select("a", key=True), KEEP, 0))) == "-"


def test_an_absent_and_a_deleted_row_do_not_answer() -> None:
    rows = store("a:1")
    rows.write(fold.delete_row(rows, AT, 2))
    assert read_row(rows, AT.row_key, Selection(EVERY), KEEP, 0) is None
    assert read_row(rows, address("b").row_key, Selection(EVERY), KEEP, 0) is None


def test_a_whole_narrow_row_is_answered_with_its_stored_bytes() -> None:
    rows = store("a:1 b:2")
    answered = read_row(rows, AT.row_key, Selection(Window()), KEEP, 0)
    assert answered is not None
    assert rows.chunks[AT.row_key].endswith(answered.wire)
    assert rows.scans == 0


some_cells = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.sampled_from([0, 30])),
    max_size=12,
    unique_by=lambda place: place[:2],
).map(lambda places: [put(name, at * 500, "x" * size) for name, at, size in places])
options = st.builds(TableOptions, st.sampled_from([-1, 0, 3]), st.integers(1, 4))
windows = st.builds(
    Window, st.sampled_from([0, 0, 1000]), st.sampled_from([INT64_MAX, 3000]), st.integers(1, 4)
)


@given(some_cells, options, windows, st.integers(0, 9000))
def test_the_fast_path_says_what_the_slow_one_says(
    row: list[Cell], keeps: TableOptions, window: Window, now_ms: int
) -> None:
    rows = ChunkDictionary()
    rows.write(fold.put_row(rows, AT, row, 1, 100))
    fast = read_row(rows, AT.row_key, Selection(window), keeps, now_ms)
    # A start below every name selects the same cells and keeps the fast path away.
    slow = read_row(rows, AT.row_key, Selection(window, start_column=b""), keeps, now_ms)
    assert fast == slow
    assert decode(fast) is not None


NAMES = st.lists(st.text("a\0b", max_size=3), unique=True, max_size=6)


@given(NAMES, st.data())
def test_a_range_groups_chunks_into_rows_forward_and_backward(
    names: list[str], data: st.DataObject
) -> None:
    rows = ChunkDictionary()
    alive: dict[bytes, str] = {}
    for name in names:
        at, text = address(name), data.draw(st.sampled_from(["", "a:1", "a:2 a:1 b:1 c:9"]))
        size = data.draw(st.sampled_from([60, 32768]))
        rows.chunks |= store(text, at, size).chunks
        alive[at.row_key] = text or "-"
        if data.draw(st.booleans()):
            rows.write(fold.delete_row(rows, at, 2))
            del alive[at.row_key]
    low, high = chunk.table_prefix(TABLE_ID), chunk.table_prefix(TABLE_ID + 1)

    def text_of(row: StoredRow) -> str:
        read_texts = answer(rows, row, Selection(EVERY), KEEP, 0)
        assert read_texts is not None
        return shown(plainbuffer.decode_row(plainbuffer.HEADER + read_texts.wire).cells)

    def read_texts(*, backward: bool) -> list[tuple[bytes, str]]:
        stored_rows = read_range(rows, low, high, backward=backward)
        return [(row.row_key, text_of(row)) for row in stored_rows]

    forward, backward = read_texts(backward=False), read_texts(backward=True)
    assert forward == sorted(alive.items())
    assert backward == forward[::-1]


def test_every_type_and_a_long_name_answer_as_they_were_written() -> None:
    values: list[variant.Scalar] = [1, -1, 2.5, True, False, "", "你", b"", b"\xff"]
    row = [
        plainbuffer.put_cell(b"%d" % at, variant.encode(value), 1)
        for at, value in enumerate(values)
    ]
    row.append(plainbuffer.put_cell(b"n" * 255, variant.encode("x" * 2000), 1))
    rows = ChunkDictionary()
    rows.write(fold.put_row(rows, AT, row, 1, 1))
    for wanted in (Selection(Window()), Selection(Window(), start_column=b"")):
        assert decode(read_row(rows, AT.row_key, wanted, KEEP, 0)) == row
