"""Rows cut into many chunks, against a dictionary: written, read in parts, reclaimed, rebuilt."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rowtide.core.protocol.plainbuffer import HEADER, decode_row, delete_cell, key_piece
from rowtide.core.rows import chunk, fold
from rowtide.core.rows.fold import RowAddress
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE
from rowtide.core.rows.read import Selection, read_row
from rowtide.core.rows.wide_row import RowPosition, decode_token, encode_token
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.version import Window
from tests.core.chunk_dictionary import ChunkDictionary, check_row, put, shown
from tests.core.life_model import EVERY, PREFIX, Life, canonical, row_key, wire_key
from tests.core.test_read import page

SMALL = 400
"""Bytes at which rows are cut here, so that a dozen cells make a wide row."""

ROWS = ("a", "b")
NAMES = ("a", "b", "ba", "c", "d", "\0")


class Several:
    """A filter that keeps rows with more than one cell in columns b and c."""

    columns = frozenset([b"b", b"c"])
    page = None

    def choose(self, _key: bytes, cells: Sequence[Cell]) -> Sequence[Cell] | None:
        """Keep or drop."""
        return cells if sum(cell.name in self.columns for cell in cells) > 1 else None


Versions = dict[int, Cell]
Row = dict[bytes, Versions]


def parts_of(life: Life, row: str, wanted: Selection, bytes_max: int) -> list[Cell] | None:
    """Read a row part by part; None where it counts as absent."""
    found: list[Cell] = []
    token = b""
    options, now_ms = life.shard.state.options, life.now_ms
    while True:
        part = read_row(
            life.store, row_key(row), wanted, options, now_ms, token=token, bytes_max=bytes_max
        )
        if part is None:
            assert not token, "a row does not vanish half way"
            return None
        if part.wire:
            found += decode_row(HEADER + part.wire).cells
        if not part.token:
            return found
        assert part.token != token, "reading goes on"
        token = part.token


def visible(life: Life, row: Row, wanted: Selection) -> list[Cell] | None:
    """Return what a reader must see of a row, by the words of the data model."""
    options, window = life.shard.state.options, wanted.window
    floor_s = life.now_ms // 1000 - options.time_to_live_s
    chosen: dict[bytes, list[Cell]] = {}
    for name, versions in sorted(row.items()):
        newest = sorted(versions, reverse=True)[: options.max_versions]
        if options.time_to_live_s >= 0:
            newest = [version for version in newest if version // 1000 >= floor_s]
        newest = [v for v in newest if window.start_ms <= v < window.end_ms][: window.max_versions]
        if newest and (wanted.columns is None or name in wanted.columns):
            chosen[name] = [versions[version] for version in newest]
    if wanted.columns is not None and not chosen and not wanted.key_named:
        return None
    low, high = wanted.start_column or b"", wanted.end_column
    names = [n for n in chosen if low <= n and (high is None or n < high)]
    if wanted.filter is not None and wanted.filter.page is not None:
        skip, limit = wanted.filter.page
        names = names[skip : skip + limit]
    found = [cell for name in names for cell in chosen[name]]
    if isinstance(wanted.filter, Several) and sum(c.name in Several.columns for c in found) < 2:
        return None
    return found


some_versions = st.integers(0, 9)
puts = st.builds(
    lambda name, version, size: put(name, version * 1000, "x" * size),
    st.sampled_from(NAMES),
    some_versions,
    st.sampled_from([0, 30, 90]),
)
deletes = st.builds(
    lambda name, version: delete_cell(name.encode(), version and version * 1000),
    st.sampled_from(NAMES),
    st.none() | some_versions,
)
edges = st.none() | st.sampled_from([name.encode() for name in NAMES])
selections = st.builds(
    Selection,
    st.builds(
        Window, st.sampled_from([0, 0, 3000]), st.sampled_from([INT64_MAX, 7000]), st.integers(1, 9)
    ),
    st.none() | st.frozensets(st.sampled_from([name.encode() for name in NAMES])),
    st.booleans(),
    edges,
    edges,
    st.none() | st.just(Several()) | st.builds(page, st.integers(0, 4), st.integers(1, 4)),
)


class WideRows(RuleBasedStateMachine):
    """Two rows in one shard; the dictionary has every cell that is stored."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(fold, "CHUNK_BYTES", SMALL)
        self.life = Life(9, -1, 9_000)
        self.rows: dict[str, Row] = {}

    def teardown(self) -> None:
        self._patch.undo()

    @rule(row=st.sampled_from(ROWS), some=st.lists(puts, max_size=12))
    def put(self, row: str, some: list[Cell]) -> None:
        if self._write(row, some, PUT):
            self.rows[row] = {}
            self._change(row, some)

    @rule(row=st.sampled_from(ROWS), some=st.lists(puts | deletes, min_size=1, max_size=20))
    def update(self, row: str, some: list[Cell]) -> None:
        if not self._write(row, some, UPDATE):
            return
        if row in self.rows or any(cell.op == 0 for cell in some):
            self.rows.setdefault(row, {})
            self._change(row, some)

    @rule(row=st.sampled_from(ROWS))
    def delete(self, row: str) -> None:
        self._write(row, [], DELETE)
        self.rows.pop(row, None)

    def _write(self, row: str, some: list[Cell], kind: int) -> bool:
        ttl_s = self.life.shard.state.options.time_to_live_s
        oldest = (self.life.now_ms // 1000 - ttl_s) * 1000 if ttl_s >= 0 else 0
        old = any(cell.op == 0 and (cell.version_ms or 0) < oldest for cell in some)
        try:
            self.life.write(row, some, kind)
        except Rejected:
            assert old
            return False
        assert not old
        return True

    def _change(self, row: str, some: list[Cell]) -> None:
        columns = self.rows[row]
        for cell in some:
            versions = columns.setdefault(cell.name, {})
            if cell.op == 0:
                versions[cell.version_ms or 0] = cell
            elif cell.version_ms is None:
                versions.clear()
            else:
                versions.pop(cell.version_ms, None)
        keep = self.life.shard.state.options.max_versions
        for name in {cell.name for cell in some}:
            newest = sorted(columns[name], reverse=True)[:keep]
            columns[name] = {version: columns[name][version] for version in newest}
        self.rows[row] = {name: versions for name, versions in columns.items() if versions}

    @rule(ttl_s=st.sampled_from([-1, 2, 5, 9]), most=st.sampled_from([1, 2, 9]))
    def options(self, ttl_s: int, most: int) -> None:
        self.life.options(ttl_s=ttl_s, max_versions=most)

    @rule(now_s=st.integers(5, 16))
    def clock(self, now_s: int) -> None:
        self.life.now_ms = now_s * 1000

    @rule(chunks_max=st.integers(1, 9), work=st.sampled_from([1, 300, 10_000]))
    def reclaim(self, chunks_max: int, work: int) -> None:
        self.life.reclaim(chunks_max, work)
        for row in list(self.rows):
            self._reclaim(row, list(self.rows[row]))
        # A chunk that a slice emptied at its begin is joined to the one before by a later pass.
        assert self.life.reclaim() <= 1
        assert self.life.reclaim() == 0

    @rule(row=st.sampled_from(ROWS), some=st.tuples(edges, edges))
    def reclaim_columns(self, row: str, some: tuple[bytes | None, bytes | None]) -> None:
        first, last = sorted(name or b"b" for name in some)
        place = row_key(row)[len(PREFIX) :]
        self.life.remove(place + chunk.border(first), place + chunk.border(last))
        if row in self.rows:
            self._reclaim(row, [name for name in self.rows[row] if first <= name <= last])

    def _reclaim(self, row: str, names: list[bytes]) -> None:
        columns, options = self.rows[row], self.life.shard.state.options
        floor = self.life.now_ms // 1000 - options.time_to_live_s
        removed = False
        for name in names:
            kept = sorted(columns[name], reverse=True)[: options.max_versions]
            if options.time_to_live_s >= 0:
                kept = [version for version in kept if version // 1000 >= floor]
            removed |= len(kept) < len(columns[name])
            columns[name] = {version: columns[name][version] for version in kept}
        self.rows[row] = {name: versions for name, versions in columns.items() if versions}
        if removed and not self.rows[row]:
            del self.rows[row]

    @rule(
        row=st.sampled_from(ROWS), wanted=selections, bytes_max=st.sampled_from([1, 90, 300, 4000])
    )
    def read(self, row: str, wanted: Selection, bytes_max: int) -> None:
        expected = visible(self.life, self.rows[row], wanted) if row in self.rows else None
        assert shown(parts_of(self.life, row, wanted, bytes_max)) == shown(expected)

    @precondition(lambda self: self.life.log)
    @rule()
    def rebuild(self) -> None:
        assert canonical(self.life.replay_log()) == canonical(self.life.store)
        again = ChunkDictionary(dict(self.life.store.chunks))
        assert canonical(self.life.replay_log(again)) == canonical(self.life.store)

    @invariant()
    def rows_are_those_of_the_dictionary(self) -> None:
        stored = {key: shown(some) for key, some in canonical(self.life.store).items()}
        assert stored == {row_key(row): shown(_cells(self.rows[row])) for row in self.rows}
        for row in self.rows:
            check_row(self.life.store, RowAddress(row_key(row), *key_piece(wire_key(row))), SMALL)


def _cells(row: Row) -> Iterator[Cell]:
    for _, versions in sorted(row.items()):
        yield from (versions[version] for version in sorted(versions, reverse=True))


TestWideRows = WideRows.TestCase


def test_a_token_survives_its_way_to_the_client_and_back() -> None:
    at = RowPosition(chunk.border(b"a\0b", 7), 3, 2, 1)
    assert decode_token(encode_token(at)) == at
    assert decode_token(b"") == RowPosition()


@pytest.mark.parametrize("token", [b"x", b"\x01" * 40, encode_token(RowPosition(b"\xff" * 12))])
def test_a_token_that_no_answer_gave_is_refused(token: bytes) -> None:
    with pytest.raises(Rejected, match="token"):
        decode_token(token)


class Counted(ChunkDictionary):
    """Counts the bytes of chunks that were handed out."""

    read_bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """Count a chunk."""
        value = super().get(key)
        self.read_bytes += len(value or b"")
        return value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Count what is taken, not what could be."""
        for key, value in super().scan(start, end):
            self.read_bytes += len(value)
            yield key, value

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        """Count a chunk."""
        found = super().floor(key, low)
        self.read_bytes += len(found[1]) if found else 0
        return found


PIECE = chunk.CHUNK_BYTES // fold.PIECES
COSTS = [
    ("one column", Selection(Window(), frozenset([b"c0500"])), 2),
    ("two far columns", Selection(Window(), frozenset([b"c0001", b"c0999"])), 4),
    ("a column that is not there", Selection(Window(), frozenset([b"x"])), 2),
    ("between two columns", Selection(Window(), start_column=b"c0400", end_column=b"c0410"), 4),
    ("a page at the beginning", Selection(Window(), filter=page(0, 10)), 4),
    ("a page from a column on", Selection(Window(), start_column=b"c0700", filter=page(2, 9)), 4),
    ("a filter that fails", Selection(Window(), filter=Several()), 4),
]  # fmt: skip


def wide_row(columns: int = 1000) -> Life:
    """Return a row of columns c0000, c0001, ..., a megabyte in all."""
    life = Life(3)
    for base in range(0, columns, 500):
        names = [f"c{number:04d}" for number in range(base, base + 500)]
        life.write("a", [put(name, 1000, "x" * 1000) for name in names])
    counted = life.store = Counted(dict(life.store.chunks))
    life.shard.view._below = counted
    return life


@pytest.mark.parametrize(("wanted", "pieces"), [c[1:] for c in COSTS], ids=[c[0] for c in COSTS])
def test_a_read_of_a_wide_row_reads_the_chunks_it_needs(wanted: Selection, pieces: int) -> None:
    life = wide_row()
    assert len(life.store.chunks) > 100
    life.read("a", wanted)
    assert isinstance(life.store, Counted)
    assert life.store.read_bytes <= pieces * PIECE


def test_an_update_of_a_wide_row_reads_and_writes_one_chunk() -> None:
    life = wide_row()
    before = dict(life.store.chunks)
    life.write("a", [put("c0500", 2000, "y")])
    assert isinstance(life.store, Counted)
    assert life.store.read_bytes <= 3 * PIECE
    assert sum(before[key] != value for key, value in life.store.chunks.items()) == 1


@pytest.mark.parametrize("kind", [PUT, DELETE])
def test_a_wide_row_put_again_or_deleted_leaves_one_chunk(kind: int) -> None:
    life = wide_row()
    life.write("a", [put("z", 2000)] if kind == PUT else [], kind)
    assert list(life.store.chunks) == [row_key("a")]
    assert shown(life.read()) == ("z:2000" if kind == PUT else "absent")


def test_a_large_row_comes_in_parts_that_are_bounded() -> None:
    life = wide_row()
    part = read_row(life.store, row_key("a"), EVERY, life.shard.state.options, 0, bytes_max=100_000)
    assert part is not None
    assert 90_000 < len(part.wire) <= 100_000
    assert len(parts_of(life, "a", EVERY, 100_000) or ()) == 1000
    assert len(parts_of(life, "a", replace(EVERY, start_column=b"c0990"), 100_000) or ()) == 10
