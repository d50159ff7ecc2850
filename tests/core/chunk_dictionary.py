"""Rows kept in a dictionary: the fold's ``ChunkReader`` without a store, and what must hold of it.

Cells are written for tests as ``name:version`` or ``name:version=value``; their value is text.
"""

from collections.abc import Iterable, Iterator

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows import chunk
from rowtide.core.rows.fold import RowAddress, Writes, read_cells
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.key import encode as encode_key

TABLE_ID = 7


def address(name: str = "a") -> RowAddress:
    """Return where the row of a one-column key is."""
    value = variant.encode(name)
    row_key = chunk.row_key(TABLE_ID, encode_key([value]))
    return RowAddress(row_key, *plainbuffer.key_piece([(b"pk", value)]))


def put(name: str, version_ms: int, value: str = "v") -> Cell:
    """Return a put cell."""
    return plainbuffer.put_cell(name.encode(), variant.encode(value), version_ms)


def cells(text: str) -> list[Cell]:
    """Return the cells of a text: ``a:3=x`` puts, ``-a:3`` and ``-a`` delete."""
    found = []
    for word in text.split():
        place, _, value = word.lstrip("-").partition("=")
        name, _, version = place.partition(":")
        if word[0] != "-":
            found.append(put(name, int(version), value or "v"))
        else:
            found.append(plainbuffer.delete_cell(name.encode(), int(version) if version else None))
    return found


def shown(some: Iterable[Cell] | None) -> str:
    """Return cells as ``cells`` reads them; ``-`` for none, and ``absent``."""
    if some is None:
        return "absent"
    return " ".join(map(_shown, some)) or "-"


def _shown(cell: Cell) -> str:
    place = f"{cell.name.decode()}:{cell.version_ms}"
    value = variant.decode(cell.variant)
    return place if value == "v" else f"{place}={value!s}"


class ChunkDictionary:
    """A ``ChunkReader`` over a dictionary, which also takes writes."""

    def __init__(self, chunks: dict[bytes, bytes] | None = None) -> None:
        self.chunks = chunks or {}
        self.scans = 0

    def get(self, key: bytes) -> bytes | None:
        """Return a chunk."""
        return self.chunks.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return chunks."""
        return [self.chunks.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield chunks in order, as of now."""
        self.scans += 1
        found = sorted(key for key in self.chunks if start <= key < end)
        yield from [(key, self.chunks[key]) for key in found]

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield chunks with low <= key <= high in descending order, as of now."""
        self.scans += 1
        found = sorted((key for key in self.chunks if low <= key <= high), reverse=True)
        yield from [(key, self.chunks[key]) for key in found]

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        """Return the last chunk with low <= its key <= key."""
        self.scans += 1
        found = max((known for known in self.chunks if low <= known <= key), default=None)
        return None if found is None else (found, self.chunks[found])

    def write(self, writes: Writes) -> None:
        """Take writes in order, as a store does."""
        for key, value in writes:
            if value is None:
                self.chunks.pop(key, None)
            else:
                self.chunks[key] = value

    def row(self, at: RowAddress) -> list[Cell] | None:
        """Return all cells of a row."""
        return read_cells(self, at.row_key)


def check_row(rows: ChunkDictionary, at: RowAddress, chunk_bytes: int = chunk.CHUNK_BYTES) -> None:
    """Hold a row's chunks to what ``core/rows/chunk.py`` promises of them."""
    stored = dict(rows.scan(at.row_key, chunk.row_end(at.row_key)))
    if not stored:
        return
    assert next(iter(stored)) == at.row_key, "a row has a first chunk"
    begin = b""
    names: list[tuple[bytes, int]] = []
    for key, value in stored.items():
        part = chunk.decode(key, value)
        assert key == at.row_key + begin, "ranges tile the row"
        assert part.begin == begin
        assert (part.key_piece, part.key_state) == (
            (at.key_piece, at.key_state) if not begin else (b"", 0)
        ), "the first chunk, and it alone, has the key"
        assert chunk.encode(part) == value
        check_chunk(part, value, chunk_bytes)
        names += [(cell.name, -(cell.version_ms or 0)) for cell in part.cells]
        begin = part.end
    assert begin == b"", "the last chunk reaches the row's end"
    assert names == sorted(set(names)), "cells are in order, each place once"


def check_chunk(part: chunk.Chunk, value: bytes, chunk_bytes: int) -> None:
    """Hold one chunk's header and size to its cells."""
    head = chunk.Header._make(chunk.header(value))
    count: dict[bytes, int] = {}
    for cell in part.cells:
        assert cell.op == PUT
        count[cell.name] = count.get(cell.name, 0) + 1
        edge = chunk.border(cell.name, cell.version_ms or 0)
        assert part.begin <= edge, "a cell is within its chunk"
        assert not part.end or edge < part.end, "a cell is within its chunk"
    assert head.versions_max == max(count.values(), default=0)
    assert head.version_min == min((c.version_ms or 0 for c in part.cells), default=2**63 - 1)
    size = sum(len(c.name) + variant.payload_size(c.variant) for c in part.cells)
    assert head.data_bytes == size
    bytes_of_cells = len(plainbuffer.cells_piece(part.cells))
    assert bytes_of_cells <= chunk_bytes or len(part.cells) == 1
    if part.key_piece and not part.end and not part.deleted:
        row = chunk.HEADER_BYTES
        decoded = plainbuffer.decode_row(plainbuffer.HEADER + value[row:])
        assert decoded.cells == part.cells, "a narrow row is a wire row"
