"""Part of a row that is stored in several chunks, or read in several answers.

Only chunks with requested columns are read. They are found by their first border, so one column of
a row with a million columns costs one chunk. An answer that grows too large ends before a cell. A
token has that position, and the next request continues there. All parts together are equal to the
answer of one unbounded request, if the row is not written in between.

Sizes are bytes of the cells' wire form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from rowtide.core.rows import chunk as chunks
from rowtide.core.rows.chunk import HEADER_BYTES, header
from rowtide.core.rows.fold import CELL_OVERHEAD, ChunkReader
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.version import expiry_floor_ms, visible_cells

if TYPE_CHECKING:
    from rowtide.core.rows.read import Selection, StoredRow

__all__ = [
    "START",
    "RowPart",
    "RowPosition",
    "decode_token",
    "encode_token",
    "read_part",
    "wire_bytes",
]

SCAN_BYTES_MAX = 16 * 1024 * 1024
"""Stored bytes that one answer reads. Beyond that, a run of hidden cells ends the part."""

_TOKEN_FORMAT = 1
_TOKEN = Struct(">BIII")
_ROW_END = b"\xff"
"""Above every border."""


class RowPosition(NamedTuple):
    """Where a row continues: at ``border``, empty for its beginning.

    In the column there, ``rank`` versions are passed and ``taken`` of them returned. ``columns``
    were returned so far, including this one if a part of it was.
    """

    border: bytes = b""
    rank: int = 0
    taken: int = 0
    columns: int = 0


START = RowPosition()


class RowPart(NamedTuple):
    """Cells for the answer, and the next position (None: the answer is complete)."""

    cells: Sequence[Cell]
    following: RowPosition | None


def encode_token(at: RowPosition) -> bytes:
    """Return the token that a client sends back to continue."""
    return _TOKEN.pack(_TOKEN_FORMAT, at.rank, at.taken, at.columns) + at.border


def decode_token(token: bytes) -> RowPosition:
    """Return the position in a client's token. Raises OTSParameterInvalid."""
    if not token:
        return START
    if len(token) < _TOKEN.size + 10 or token[0] != _TOKEN_FORMAT:
        raise _bad_token()
    _, rank, taken, columns = _TOKEN.unpack_from(token)
    edge = token[_TOKEN.size :]
    name, version = chunks.decode_border(edge)
    if not 0 <= version <= INT64_MAX or chunks.border(name, version) != edge:
        raise _bad_token()
    return RowPosition(edge, rank, taken, columns)


def _bad_token() -> Rejected:
    return invalid("The token is invalid: it must be the next_token of an earlier answer.")


def wire_bytes(cell: Cell) -> int:
    """Return the size of a cell on the wire."""
    return len(cell.name) + len(cell.variant) + CELL_OVERHEAD


def read_part(
    rows: ChunkReader,
    row: StoredRow,
    wanted: Selection,
    options: TableOptions,
    now_ms: int,
    *,
    at: RowPosition = START,
    bytes_max: int,
) -> RowPart | None:
    """Return the answer to ``wanted`` from ``at`` on; None if the row counts as absent."""
    reader = _Chunks(rows, row)
    if wanted.filter is not None and wanted.filter.page is None:
        names = wanted.filter.columns
        tested = names if wanted.columns is None else names & wanted.columns
        narrowed = replace(wanted, columns=tested, filter=None)
        cells = [cell for run in _cells(reader, narrowed, START) for cell in run]
        seen = visible_cells(cells, options, wanted.window, now_ms)
        if wanted.filter.choose(_key_piece(reader), seen) is None:
            return None
    part = _gather(reader, wanted, options, now_ms, at, bytes_max)
    if (
        wanted.columns is not None
        and not wanted.key_named
        and part.following is None
        and not part.cells
        and not at.columns
        and not _has_any(reader, wanted, options, now_ms)
    ):
        return None
    return part


def _key_piece(reader: _Chunks) -> bytes:
    first = reader.first
    start = HEADER_BYTES + header(first)[2]
    return first[start : start + header(first)[3]]


def _has_any(reader: _Chunks, wanted: Selection, options: TableOptions, now_ms: int) -> bool:
    """True if a named column exists, even outside the bounds of columns."""
    everywhere = replace(wanted, start_column=None, end_column=None, filter=None)
    return bool(_gather(reader, everywhere, options, now_ms, START, 1).cells)


def _gather(
    reader: _Chunks,
    wanted: Selection,
    options: TableOptions,
    now_ms: int,
    at: RowPosition,
    bytes_max: int,
) -> RowPart:
    choice = _Choice(wanted, options, now_ms, at, bytes_max)
    reader.scanned = 0
    passed = 0
    for run in _cells(reader, wanted, at, choice):
        if run and passed > SCAN_BYTES_MAX:
            return RowPart(choice.chosen, choice.before(run[0]))
        if choice.take(run):
            return RowPart(choice.chosen, choice.following)
        passed = reader.scanned
    return RowPart(choice.chosen, None)


class _Chunks:
    """The chunks of one row, by place. Keeps the last one read, because columns come in order."""

    def __init__(self, rows: ChunkReader, row: StoredRow) -> None:
        self._rows = rows
        self._row_key, self.first = row
        self.scanned = 0
        self._last: tuple[bytes, bytes, list[Cell]] | None = None

    def runs(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, list[Cell]]]:
        """Yield (end border, cells) of the chunks with a place in low <= place < high."""
        last = self._last
        if last is None or not last[0] <= low or (last[1] and last[1] <= low):
            found = self._rows.floor(self._row_key + low, self._row_key)
            assert found is not None, "a row has a first chunk"
            last = self._decode(*found)
        yield last[1:]
        if not last[1] or high <= last[1]:
            return
        for key, value in self._rows.scan(self._row_key + last[1], self._row_key + high):
            yield self._decode(key, value)[1:]

    def _decode(self, key: bytes, value: bytes) -> tuple[bytes, bytes, list[Cell]]:
        self.scanned += len(value)
        end = value[HEADER_BYTES : HEADER_BYTES + header(value)[2]]
        self._last = key[len(self._row_key) :], end, chunks.cells_of(value)
        return self._last


def _cells(
    reader: _Chunks, wanted: Selection, at: RowPosition, choice: _Choice | None = None
) -> Iterator[list[Cell]]:
    """Yield the stored cells of the wanted columns in order, from ``at`` on, chunk by chunk.

    When ``choice`` wants no more of a column, the chunks with its rest are skipped.
    """
    for low, high in _spans(wanted, at):
        following: bytes | None = low
        while following is not None and following < high:
            low, following = following, None
            for end, cells in reader.runs(low, high):
                yield _between(cells, low, high)
                if choice is not None and end and end < high:
                    following = choice.past(end)
                    if following is not None:
                        break


def _spans(wanted: Selection, at: RowPosition) -> Iterator[tuple[bytes, bytes]]:
    """Yield the wanted ranges of borders, in order."""
    low = chunks.border(wanted.start_column) if wanted.start_column is not None else b""
    high = chunks.border(wanted.end_column) if wanted.end_column is not None else _ROW_END
    low = max(low, at.border)
    if wanted.columns is None:
        if low < high:
            yield low, high
        return
    for name in sorted(wanted.columns):
        begin = max(chunks.border(name), low)
        end = min(_after(name), high)
        if begin < end:
            yield begin, end


def _between(cells: list[Cell], low: bytes, high: bytes) -> list[Cell]:
    """Return the cells with low <= border < high. Most chunks are wholly inside."""
    if not cells or (low <= _border_of(cells[0]) and _border_of(cells[-1]) < high):
        return cells
    first = bisect_left(cells, low, key=_border_of)
    return cells[first : bisect_left(cells, high, first, key=_border_of)]


def _border_of(cell: Cell) -> bytes:
    return chunks.border(cell.name, cell.version_ms)  # type: ignore[arg-type]


class _Choice:
    """Collects the cells of one part, by the rules of ``visible_cells``."""

    __slots__ = (
        "_columns",
        "_end_ms",
        "_floor_ms",
        "_keep",
        "_left",
        "_rank",
        "_skip",
        "_start_ms",
        "_stop",
        "_taken",
        "_version",
        "_want",
        "chosen",
        "following",
        "name",
    )

    def __init__(
        self,
        wanted: Selection,
        options: TableOptions,
        now_ms: int,
        at: RowPosition,
        bytes_max: int,
    ) -> None:
        self._start_ms, self._end_ms, self._want = wanted.window
        page = wanted.filter.page if wanted.filter is not None else None
        self._skip, limit = page or (0, INT64_MAX)
        self._stop = self._skip + limit
        self._floor_ms = expiry_floor_ms(options, now_ms)
        self._keep = options.max_versions
        self.chosen: list[Cell] = []
        self.following: RowPosition | None = None
        self.name = chunks.decode_border(at.border)[0] if at.border else None
        _, self._rank, self._taken, self._columns = at
        self._version = INT64_MAX
        self._left = bytes_max

    def take(self, cells: Sequence[Cell]) -> bool:
        """Add the wanted ones of the next cells; return True if the part ends here."""
        for cell in cells:
            name, _, _, version, _ = cell
            assert version is not None, "a stored cell has a version"
            if name != self.name:
                self.name, self._rank, self._taken = name, 0, 0
            self._rank += 1
            self._version = version
            if (
                self._rank > self._keep
                or version < self._floor_ms
                or self._taken >= self._want
                or not self._start_ms <= version < self._end_ms
            ):
                continue
            if not self._taken and self._columns >= self._stop:
                return True
            if self._columns - (self._taken > 0) >= self._skip:
                self._left -= wire_bytes(cell)
                if self._left < 0 and self.chosen:
                    self._rank -= 1
                    self.following = self.before(cell)
                    return True
                self.chosen.append(cell)
            self._columns += not self._taken
            self._taken += 1
        return False

    def before(self, cell: Cell) -> RowPosition:
        """Return the position of the next cell that is not passed yet."""
        if cell.name == self.name:
            return RowPosition(_border_of(cell), self._rank, self._taken, self._columns)
        return RowPosition(_border_of(cell), 0, 0, self._columns)

    def past(self, place: bytes) -> bytes | None:
        """Return the next column's first border if no more of the one at ``place`` is wanted."""
        if (
            self._rank < self._keep
            and self._taken < self._want
            and self._version >= max(self._floor_ms, self._start_ms)
        ):
            return None
        name, _ = chunks.decode_border(place)
        return _after(name) if name == self.name else None


def _after(name: bytes) -> bytes:
    """Return the lowest border above a column's cells."""
    return chunks.border(name, 0) + b"\0"
