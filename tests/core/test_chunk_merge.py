"""Changelog entries merged into stored chunks: at every place the newer one stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows import chunk, fold
from rowtide.core.rows.chunk import Chunk
from rowtide.core.rows.chunk_merge import bury, merge
from rowtide.core.rows.fold import RowAddress, Writes
from rowtide.core.rows.read import read_range
from rowtide.core.values.cell import Cell
from tests.core.chunk_dictionary import ChunkDictionary, address, cells, check_row, put, shown

AT = address()
Entry = tuple[bytes, bytes]


def edge(name: str) -> bytes:
    """Return the border before a column; nothing for ``..``'s open side."""
    return chunk.border(name.encode()) if name else b""


def entry(text: str) -> Entry:
    """Return the chunk of a text: ``5 b..d`` and cells, ``5 .. deleted``."""
    stamp, span, *words = text.split()
    begin, end = span.split("..")
    deleted = words == ["deleted"]
    part = Chunk(int(stamp), [] if deleted else cells(" ".join(words)), edge(end), deleted)
    part.begin = edge(begin)
    if not begin:
        part.key_piece, part.key_state = AT.key_piece, AT.key_state
    return AT.row_key + part.begin, chunk.encode(part)


def text_of(rows: ChunkDictionary) -> list[str]:
    """Return stored chunks as ``entry`` reads them."""
    found = []
    for key, value in sorted(rows.chunks.items()):
        part = chunk.decode(key, value)
        begin, end = (
            chunk.decode_border(e)[0].decode() if e else "" for e in (part.begin, part.end)
        )
        row = "deleted" if part.deleted else shown(part.cells)
        found.append(f"{part.stamp} {begin}..{end} {row}".removesuffix(" -"))
    return found


# What is stored, what arrives, and what is stored then; chunks are ; separated.
SCENARIOS = [
    ("nothing is stored", "", "5 .. a:1", "5 .. a:1"),
    ("a newer row replaces a row", "5 .. a:1", "6 .. b:1", "6 .. b:1"),
    ("an older does not", "5 .. a:1", "4 .. b:1", "5 .. a:1"),
    ("nor one as old", "5 .. a:1", "5 .. a:1", "5 .. a:1"),
    ("a delete replaces a row", "5 .. a:1", "6 .. deleted", "6 .. deleted"),
    ("an older delete does not", "5 .. a:1", "4 .. deleted", "5 .. a:1"),
    ("a row replaces a delete", "5 .. deleted", "6 .. a:1", "6 .. a:1"),
    ("a chunk replaces its like", "5 ..c a:1; 5 c.. d:1", "6 c.. e:1", "5 ..c a:1; 6 c.. e:1"),
    ("a first chunk cuts a row", "5 .. a:1 d:1", "6 ..c b:1", "6 ..c b:1; 5 c.. d:1"),
    ("a later one too", "5 .. a:1 d:1", "6 c.. e:1", "5 ..c a:1; 6 c.. e:1"),
    ("one in its middle", "5 .. a:1 c:1 e:1", "6 b..d c:2", "5 ..b a:1; 6 b..d c:2; 5 d.. e:1"),
    ("a row shrinks", "5 ..c a:1; 5 c..e d:1; 5 e.. f:1", "6 .. a:2", "6 .. a:2"),
    ("a wide row is deleted", "5 ..c a:1; 5 c.. d:1", "6 .. deleted", "6 .. deleted"),
    ("an older row fills nothing", "5 ..c a:1; 5 c.. d:1", "4 .. a:0 e:0", "5 ..c a:1; 5 c.. d:1"),
    ("but what is older still", "5 ..c a:1; 3 c.. d:1", "4 .. a:0 e:0", "5 ..c a:1; 4 c.. e:0"),
    ("it is cut around the newer", "3 ..b a:1; 5 b..d c:1; 3 d.. e:1", "4 .. a:0 c:0 f:0",
     "4 ..b a:0; 5 b..d c:1; 4 d.. f:0"),
    ("and cuts the older", "3 ..c a:1 b:1; 3 c.. e:1", "4 b..d", "3 ..b a:1; 4 b..d; 3 d.. e:1"),
    ("a chunk within a delete", "5 .. deleted", "6 c..e d:1", "5 ..c deleted; 6 c..e d:1; 5 e.."),
    ("a delete around a chunk", "6 ..c a:1; 4 c.. d:1", "5 .. deleted", "6 ..c a:1; 5 c.."),
    ("a later chunk comes first", "", "5 c.. d:1", "0 ..c deleted; 5 c.. d:1"),
    ("and another before it", "0 ..e deleted; 5 e.. f:1", "5 c..e d:1",
     "0 ..c deleted; 5 c..e d:1; 5 e.. f:1"),
    ("and then the first", "0 ..c deleted; 5 c.. d:1", "5 ..c a:1", "5 ..c a:1; 5 c.. d:1"),
    ("or a newer, narrow one", "0 ..c deleted; 5 c.. d:1", "6 .. a:1", "6 .. a:1"),
    ("or an older, narrow one", "0 ..c deleted; 5 c.. d:1", "4 .. a:0 e:0", "4 ..c a:0; 5 c.. d:1"),
    ("a first chunk before a gap", "0 ..e deleted; 5 e.. f:1", "5 ..c a:1", "5 ..c a:1; 5 e.. f:1"),
    ("versions of one column are cut", "5 .. a:3 a:2 a:1", "6 a.. a:9", "5 ..a; 6 a.. a:9"),
]  # fmt: skip


def make_rows(text: str) -> ChunkDictionary:
    """Return rows with the chunks of a text."""
    rows = ChunkDictionary(dict(entry(part) for part in text.split(";") if part.strip()))
    for part in rows.chunks:
        if text.startswith("0 "):
            # A stand-in has a key piece of its own.
            whole = chunk.decode(part, rows.chunks[part])
            if whole.stamp == 0:
                whole.key_piece, whole.key_state = b"\x01", 0
                rows.chunks[part] = chunk.encode(whole)
    return rows


@pytest.mark.parametrize(
    ("before", "arriving", "after"), [s[1:] for s in SCENARIOS], ids=[s[0] for s in SCENARIOS]
)
def test_an_entry_meets_what_is_stored(before: str, arriving: str, after: str) -> None:
    rows = make_rows(before)
    rows.write(merge(rows, *entry(arriving)))
    assert text_of(rows) == [part.strip() for part in after.split(";")]
    unchanged = dict(rows.chunks)
    assert merge(rows, *entry(arriving)) == []
    assert rows.chunks == unchanged


@pytest.mark.parametrize("arriving", ["4 .. a:1", "6 .. a:1"])
@pytest.mark.parametrize("before", ["", "5 .. b:1"])
def test_narrow_rows_cost_a_look_up_and_no_scan(before: str, arriving: str) -> None:
    rows = make_rows(before)
    rows.write(merge(rows, *entry(arriving)))
    assert rows.scans == 0


def test_a_row_with_a_stand_in_is_absent_for_every_reader() -> None:
    rows = ChunkDictionary()
    before, after = address("A"), address("b")
    for at in (before, after):
        rows.write(fold.put_row(rows, at, cells("x:1"), 1, 1))
    rows.write(merge(rows, *entry("5 c.. d:1")))
    assert not fold.is_row_present(rows, AT.row_key)
    assert rows.row(AT) is None
    for backward in (False, True):
        found = [row.row_key for row in read_range(rows, b"r", b"s", backward=backward)]
        assert sorted(found) == [before.row_key, after.row_key]


def test_a_row_with_a_stand_in_can_be_written() -> None:
    for write in (fold.put_row, fold.update_row):
        rows = ChunkDictionary()
        rows.write(merge(rows, *entry("5 c.. d:1")))
        rows.write(write(rows, AT, cells("x:1"), 6, 1))
        check_row(rows, AT)
        assert shown(rows.row(AT)) == "x:1"


# stored, what a tombstone leaves
TOMBSTONES = [
    ("nothing", "", ""),
    ("a deleted row", "5 .. deleted", ""),
    ("a row put again is newer than the tombstone", "5 .. a:1", "5 .. a:1"),
    ("a wide row too", "5 ..c a:1; 5 c.. d:1", "5 ..c a:1; 5 c.. d:1"),
    ("chunks that compaction left of a deleted row", "0 ..c deleted; 4 c.. d:1", ""),
    ("a deleted row's other ranges", "5 ..c deleted; 4 c.. d:1; 5 e..", ""),
]


@pytest.mark.parametrize(
    ("before", "after"), [s[1:] for s in TOMBSTONES], ids=[s[0] for s in TOMBSTONES]
)
def test_a_tombstone_buries_what_is_deleted(before: str, after: str) -> None:
    rows = make_rows(before)
    rows.write(bury(rows, AT.row_key))
    assert text_of(rows) == [part.strip() for part in after.split(";") if part]


# Any history, in any order.

NAMES = ["a", "a\0", "b", "c", "\1"]
SMALL = 200
puts = st.builds(put, st.sampled_from(NAMES), st.integers(0, 5), st.sampled_from(["x", "x" * 70]))
removals = st.builds(
    lambda name, version: plainbuffer.delete_cell(name.encode(), version),
    st.sampled_from(NAMES),
    st.none() | st.integers(0, 5),
)
mutations: st.SearchStrategy[tuple[str, list[Cell]]] = st.one_of(
    st.tuples(st.just("put"), st.lists(puts, max_size=20)),
    st.tuples(st.just("update"), st.lists(puts | removals, min_size=1, max_size=6)),
    st.tuples(st.just("update"), st.lists(puts | removals, min_size=1, max_size=6)),
    st.tuples(st.just("delete"), st.just([])),
)
histories = st.lists(mutations, min_size=1, max_size=10)


def fold_mutation(
    rows: ChunkDictionary, at: RowAddress, mutation: tuple[str, list[Cell]], stamp: int
) -> Writes:
    """Return a mutation's writes."""
    kind, changes = mutation
    changes = sorted(changes, key=lambda cell: cell.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold, "CHUNK_BYTES", SMALL)
        if kind == "put":
            return fold.put_row(rows, at, changes, stamp, 9)
        if kind == "update":
            return fold.update_row(rows, at, changes, stamp, 9)
        return fold.delete_row(rows, at, stamp)


def flushes(history: list[tuple[str, list[Cell]]]) -> tuple[list[ChunkDictionary], list[Entry]]:
    """Return the rows after each mutation, and all entries that flushes of them would write."""
    states: list[ChunkDictionary] = []
    entries: list[Entry] = []
    rows = ChunkDictionary()
    for stamp, mutation in enumerate(history, 1):
        rows = ChunkDictionary(dict(rows.chunks))
        rows.write(fold_mutation(rows, AT, mutation, stamp))
        states.append(rows)
        entries += sorted(rows.chunks.items())
    return states, entries


def merge_entries(rows: ChunkDictionary, entries: list[Entry]) -> ChunkDictionary:
    """Return ``rows`` with entries merged in."""
    rows = ChunkDictionary(dict(rows.chunks))
    for key, value in entries:
        rows.write(merge(rows, key, value))
    return rows


@given(histories, st.data())
def test_any_order_and_any_repetition_ends_in_the_same_rows(
    history: list[tuple[str, list[Cell]]], data: st.DataObject
) -> None:
    states, entries = flushes(history)
    again = data.draw(st.lists(st.sampled_from(entries), max_size=5)) if entries else []
    rebuilt = merge_entries(ChunkDictionary(), data.draw(st.permutations([*entries, *again])))
    check_row(rebuilt, AT, SMALL)
    assert rebuilt.row(AT) == states[-1].row(AT)


@given(histories, st.data())
def test_a_compacted_changelog_ends_in_the_same_rows(
    history: list[tuple[str, list[Cell]]], data: st.DataObject
) -> None:
    states, entries = flushes(history)
    # Compaction keeps at least each key's last entry, in order.
    last = {key: at for at, (key, _) in enumerate(entries)}
    kept = [e for at, e in enumerate(entries) if last[e[0]] == at or data.draw(st.booleans())]
    rebuilt = merge_entries(ChunkDictionary(), kept)
    check_row(rebuilt, AT, SMALL)
    assert rebuilt.row(AT) == states[-1].row(AT)


@given(histories, st.data())
def test_a_store_ahead_of_the_changelog_stays_as_it_is(
    history: list[tuple[str, list[Cell]]], data: st.DataObject
) -> None:
    states, entries = flushes(history)
    rebuilt = merge_entries(states[-1], data.draw(st.permutations(entries)))
    assert rebuilt.chunks == states[-1].chunks


@given(histories, st.data())
def test_at_every_place_the_newest_entry_that_came_stands(
    history: list[tuple[str, list[Cell]]], data: st.DataObject
) -> None:
    entries = flushes(history)[1]
    some = data.draw(st.lists(st.sampled_from(entries), max_size=12)) if entries else []
    rows = merge_entries(ChunkDictionary(), some)
    for name in NAMES:
        for version in range(6):
            place = AT.row_key + chunk.border(name.encode(), version)
            assert newest(sorted(rows.chunks.items()), place) == newest(some, place)


def newest(chunks: list[Entry], place: bytes) -> tuple[int, list[Cell]]:
    """Return the highest stamp that covers a place, and what stands there."""
    best: tuple[int, list[Cell]] = (0, [])
    for key, value in chunks:
        part = chunk.decode(key, value)
        end = AT.row_key + part.end if part.end else chunk.row_end(AT.row_key)
        if key <= place < end and part.stamp > best[0]:
            there = [c for c in part.cells if AT.row_key + border_of(c) == place]
            best = (part.stamp, there)
    return best


def border_of(cell: Cell) -> bytes:
    """Return the border at a cell."""
    return chunk.border(cell.name, cell.version_ms or 0)


@given(histories, st.integers(0, 9))
def test_records_below_a_chunks_stamp_change_nothing_when_replayed(
    history: list[tuple[str, list[Cell]]], begin: int
) -> None:
    states, _ = flushes(history)
    rows = ChunkDictionary(dict(states[-1].chunks))
    for stamp, mutation in list(enumerate(history, 1))[begin:]:
        for key, value in fold_mutation(rows, AT, mutation, stamp):
            if value is not None:
                rows.write(merge(rows, key, value))
    assert rows.chunks == states[-1].chunks
