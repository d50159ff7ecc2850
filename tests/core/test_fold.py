"""The fold: what a row holds after each mutation, and which chunks were touched for it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows import chunk, fold
from rowtide.core.rows.fold import RowAddress
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, Cell
from tests.core.chunk_dictionary import ChunkDictionary, address, cells, check_row, put, shown
from tests.simulation.row_model import Columns, apply_changes

AT = address()

# P puts the row, U updates it, D deletes it; a mutation ends at a semicolon.
SCENARIOS = """
case                                          max  mutations                    row
a put is the row                                2  P b:1 a:1                    a:1 b:1
a put replaces what was there                   2  P a:1 b:1; P c:2             c:2
a put of a key alone is a row                   2  P                            -
a put empties a row                             2  P a:1; P                     -
a delete removes the row                        2  P a:1; D                     absent
a delete of nothing                             2  D                            absent
a put after a delete                            2  P a:1; D; P b:2              b:2
an update adds a column                         2  P a:1; U b:1                 a:1 b:1
an update adds a version, newest first          2  P a:1; U a:2                 a:2 a:1
an older version goes behind                    2  P a:2; U a:1                 a:2 a:1
an equal version replaces                       2  P a:1=x; U a:1=y             a:1=y
max versions trims the oldest                   2  P a:1; U a:2; U a:3          a:3 a:2
a late old version is surplus at once           2  P a:3; U a:2; U a:1          a:3 a:2
one mutation may bring many versions            2  P a:1 a:4 a:2 a:3            a:4 a:3
of equal versions in one put the last stands    2  P a:1=x a:1=y                a:1=y
of equal versions in one update too             2  U a:1=x a:1=y                a:1=y
another column is not trimmed                   1  P b:1 b:2; U a:1             a:1 b:2
a version is deleted                            3  P a:1 a:2 a:3; U -a:2        a:3 a:1
a version that is not there is no matter        3  P a:1; U -a:2                a:1
a column is deleted                             3  P a:1 a:2 b:1; U -a          b:1
deleted and put again in one update             3  P a:1 a:2; U -a a:5          a:5
put and deleted in one update                   3  P a:1; U a:5 -a              -
a version put and deleted in one update         3  P a:1; U a:5 -a:5            a:1
the last cell gone leaves the row               3  P a:1; U -a                  -
an update creates a row                         3  U a:1                        a:1
an update that only deletes creates none        3  U -a -b:1                    absent
an update that also puts creates one            3  U a:1 -a                     -
an update after a delete                        3  P a:1 b:1; D; U a:2          a:2
only deletes after a delete                     3  P a:1; D; U -a               absent
"""


def scenarios() -> list[object]:
    """Return the lines of the table; its columns stand two blanks apart."""
    lines = [line.replace("  ", "\t") for line in SCENARIOS.strip().splitlines()[1:]]
    split = [[part.strip() for part in line.split("\t") if part] for line in lines]
    return [pytest.param(*columns, id=case) for case, *columns in split]


def mutate(rows: ChunkDictionary, at: RowAddress, mutation: str, stamp: int, most: int) -> None:
    """Apply ``P``, ``U`` or ``D`` with its cells."""
    kind, _, text = mutation.strip().partition(" ")
    if kind == "P":
        rows.write(fold.put_row(rows, at, cells(text), stamp, most))
    elif kind == "U":
        rows.write(fold.update_row(rows, at, cells(text), stamp, most))
    else:
        rows.write(fold.delete_row(rows, at, stamp))


@pytest.mark.parametrize(("most", "mutations", "row"), scenarios())
def test_a_row_after_its_mutations(most: str, mutations: str, row: str) -> None:
    rows = ChunkDictionary()
    for stamp, mutation in enumerate(mutations.split(";"), 1):
        mutate(rows, AT, mutation, stamp, int(most))
        check_row(rows, AT)
    assert shown(rows.row(AT)) == row


def test_surplus_of_untouched_columns_is_left_to_the_reclaimer() -> None:
    rows = ChunkDictionary()
    mutate(rows, AT, "P a:1 a:2 a:3 b:1 b:2", 1, 3)
    mutate(rows, AT, "U a:4", 2, 1)
    assert shown(rows.row(AT)) == "a:4 b:2 b:1"


def test_a_deleted_row_keeps_its_stamp() -> None:
    rows = ChunkDictionary()
    mutate(rows, AT, "P a:1", 1, 1)
    mutate(rows, AT, "D", 2, 1)
    assert not fold.is_row_present(rows, AT.row_key)
    gone = chunk.decode(AT.row_key, rows.chunks[AT.row_key])
    assert (gone.deleted, gone.stamp, list(gone.cells)) == (True, 2, [])


# Wide rows.

KILOBYTE = "v" * 1000


def wide(columns: int = 300) -> ChunkDictionary:
    """Return a row of kilobyte columns c000, c001, ... at stamp 1."""
    rows = ChunkDictionary()
    long = [put(f"c{number:03d}", 1, KILOBYTE) for number in range(columns)]
    rows.write(fold.put_row(rows, AT, long, 1, 1))
    check_row(rows, AT)
    return rows


def stamps(rows: ChunkDictionary) -> list[int]:
    """Return the stamps of a row's chunks in order."""
    return [chunk.header(value)[4] for _, value in sorted(rows.chunks.items())]


def test_a_wide_row_is_cut_at_cells_into_chunks_with_room() -> None:
    rows = wide()
    piece = chunk.CHUNK_BYTES // fold.PIECES
    assert 300_000 // piece < len(rows.chunks) <= 60
    assert all(len(value) < piece * 0.8 for value in rows.chunks.values())
    assert len(rows.row(AT) or ()) == 300


@pytest.mark.parametrize(
    "change", ["c157:2", "-c157", "-c157:1", "c157b:1", "b:1", "d:1"], ids=lambda change: change
)
def test_an_update_of_a_wide_row_touches_one_chunk(change: str) -> None:
    rows = wide()
    count = len(rows.chunks)
    writes = fold.update_row(rows, AT, cells(change), 2, 1)
    assert len(writes) == 1
    rows.write(writes)
    check_row(rows, AT)
    assert sorted(stamps(rows)) == [1] * (count - 1) + [2]


def test_distant_columns_of_one_update_touch_their_chunks_only() -> None:
    rows = wide()
    count = len(rows.chunks)
    rows.write(fold.update_row(rows, AT, cells("c000:2 c001:2 c299:2 -c157"), 2, 1))
    check_row(rows, AT)
    assert sorted(stamps(rows)) == [1] * (count - 3) + [2, 2, 2]
    assert len(rows.row(AT) or ()) == 299


def test_a_chunk_that_grows_is_cut_and_its_parts_take_the_stamp() -> None:
    rows = wide()
    count = len(rows.chunks)
    grown = [put(f"c157x{number:03d}", 1, KILOBYTE) for number in range(40)]
    rows.write(fold.update_row(rows, AT, grown, 2, 1))
    check_row(rows, AT)
    assert len(rows.row(AT) or ()) == 340
    assert stamps(rows).count(1) == count - 1
    assert stamps(rows).count(2) >= 3


def test_one_large_cell_has_a_chunk_of_its_own() -> None:
    rows = wide()
    rows.write(fold.update_row(rows, AT, [put("c157", 2, "v" * 2_000_000)], 2, 1))
    check_row(rows, AT)
    assert len(rows.row(AT) or ()) == 300


@pytest.mark.parametrize("mutation", ["P a:1", "P", "D"])
def test_a_wide_row_replaced_leaves_no_chunk_behind(mutation: str) -> None:
    rows = wide()
    mutate(rows, AT, mutation, 2, 1)
    check_row(rows, AT)
    assert list(rows.chunks) == [AT.row_key]


def test_a_wide_row_that_is_emptied_is_still_a_row() -> None:
    rows = wide(100)
    gone = [plainbuffer.delete_cell(b"c%03d" % number, None) for number in range(100)]
    rows.write(fold.update_row(rows, AT, gone, 2, 1))
    check_row(rows, AT)
    assert rows.row(AT) == []
    mutate(rows, AT, "U c050:3", 3, 1)
    check_row(rows, AT)
    assert shown(rows.row(AT)) == "c050:3"


def versions_across_chunks() -> ChunkDictionary:
    """Return a row whose column c has versions 1..100, a kilobyte each, between b and d."""
    rows = ChunkDictionary()
    long = [put("c", version, KILOBYTE) for version in range(1, 101)]
    rows.write(fold.put_row(rows, AT, [put("b", 1), *long, put("d", 1)], 1, 100))
    assert len(rows.chunks) > 5
    return rows


SPANNING = """
case                                          max  mutations                    versions
a newer version                               100  U c:101                      101..2
a version in the middle                       100  U -c:50                      100..51 49..1
an old version                                100  U -c:1; U c:1                100..1
all of them                                   100  U -c                         -
max versions lowered, the column touched       10  U c:101                      101..92
max versions lowered, another touched          10  U b:2                        100..1
"""


def ranges(text: str) -> list[int]:
    """Return the versions of a text such as ``9..7 5..5``."""
    pairs = [part.split("..") for part in text.split() if part != "-"]
    return [version for high, low in pairs for version in range(int(high), int(low) - 1, -1)]


@pytest.mark.parametrize(
    ("most", "mutations", "versions"),
    [
        pytest.param(
            *[part.strip() for part in line[46:].split("  ") if part.strip()], id=line[:46]
        )
        for line in SPANNING.strip().splitlines()[1:]
    ],
)
def test_a_column_may_span_chunks(most: str, mutations: str, versions: str) -> None:
    rows = versions_across_chunks()
    for stamp, mutation in enumerate(mutations.split(";"), 2):
        mutate(rows, AT, mutation, stamp, int(most))
        check_row(rows, AT)
    row = rows.row(AT) or []
    assert [cell.version_ms for cell in row if cell.name == b"c"] == ranges(versions)
    assert {cell.name for cell in row} >= {b"b", b"d"}


# Any mutations, against a dictionary.


class DictionaryRow:
    """A row by its definition: column -> version -> value."""

    def __init__(self) -> None:
        self.columns: Columns | None = None

    def put(self, row: list[Cell], most: int) -> None:
        """Replace everything."""
        self.columns = {}
        self.update(row, most)

    def delete(self) -> None:
        """Be absent."""
        self.columns = None

    def update(self, changes: list[Cell], most: int) -> None:
        """Apply changes, which make a row unless all of them remove."""
        removes = all(cell.op in (DELETE_ALL, DELETE_ONE) for cell in changes)
        if self.columns is not None or not removes:
            self.columns = apply_changes(self.columns or {}, changes, most)

    def cells(self) -> list[tuple[bytes, int, bytes]] | None:
        """Return (name, version, variant) in stored order."""
        if self.columns is None:
            return None
        return [
            (name, version, value)
            for name in sorted(self.columns)
            for version, value in self.columns[name].items()
        ]


# Names that are prefixes of each other, or hold the bytes of borders' own escapes.
NAMES = ["a", "a\0", "a\0\1", "ab", "b", "\1", "\3x", "你"]
puts = st.builds(
    put, st.sampled_from(NAMES), st.integers(0, 6), st.sampled_from(["", "x", "x" * 40, "x" * 300])
)
removals = st.builds(
    lambda name, version: plainbuffer.delete_cell(name.encode(), version),
    st.sampled_from(NAMES),
    st.none() | st.integers(0, 6),
)
mutations: st.SearchStrategy[tuple[str, list[Cell]]] = st.one_of(
    st.tuples(st.just("put"), st.lists(puts, max_size=25)),
    st.tuples(st.just("update"), st.lists(puts | removals, min_size=1, max_size=8)),
    st.tuples(st.just("update"), st.lists(puts | removals, min_size=1, max_size=8)),
    st.tuples(st.just("update"), st.lists(puts | removals, min_size=1, max_size=8)),
    st.tuples(st.just("delete"), st.just([])),
)
SMALL = 200
"""A size for chunks at which a few cells make a wide row."""


@given(st.lists(st.tuples(mutations, st.integers(1, 4)), max_size=12))
@example([(("put", [put("a", v, "x" * 40) for v in range(6)]), 4), (("update", [put("a", 6)]), 1)])
def test_the_fold_says_what_a_dictionary_says(
    history: list[tuple[tuple[str, list[Cell]], int]],
) -> None:
    rows, model = ChunkDictionary(), DictionaryRow()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_BYTES", SMALL)
        for stamp, ((kind, changes), most) in enumerate(history, 1):
            changes = sorted(changes, key=lambda cell: cell.name)
            if kind == "put":
                rows.write(fold.put_row(rows, AT, changes, stamp, most))
                model.put(changes, most)
            elif kind == "update":
                rows.write(fold.update_row(rows, AT, changes, stamp, most))
                model.update(changes, most)
            else:
                rows.write(fold.delete_row(rows, AT, stamp))
                model.delete()
            check_row(rows, AT, SMALL)
            row = rows.row(AT)
            assert model.cells() == (row if row is None else [(c[0], c[3], c[2]) for c in row])


def test_rows_side_by_side_do_not_meet() -> None:
    rows = wide(60)
    for name in ("a\0", "aa", "b"):
        rows.write(fold.put_row(rows, address(name), cells("x:1"), 2, 1))
    before = dict(rows.chunks)
    mutate(rows, AT, "D", 3, 1)
    assert len(before) > len(rows.chunks) == 4
    assert [shown(rows.row(address(name))) for name in ("a\0", "aa", "b")] == ["x:1"] * 3
