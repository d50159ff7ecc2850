"""How often an update of a wide row looks into the store: by chunks, not by columns."""

from rowtide.core.rows.fold import put_row, read_cells, update_row
from tests.core.chunk_dictionary import ChunkDictionary, address, put


def test_columns_that_share_a_chunk_are_looked_up_together() -> None:
    rows = ChunkDictionary()
    at = address()
    wide = [put(f"c{number:04}", 1, "v" * 1000) for number in range(200)]
    for chunk_key, value in put_row(rows, at, wide, 1, 1):
        assert value is not None
        rows.chunks[chunk_key] = value
    chunks = len(rows.chunks)
    assert 1 < chunks < 50
    rows.scans = 0
    changes = [put(f"c{number:04}", 2, "w" * 1000) for number in range(200)]
    writes = update_row(rows, at, changes, 2, 1)
    assert rows.scans <= 2 * chunks
    for chunk_key, value in writes:
        if value is None:
            rows.chunks.pop(chunk_key)
        else:
            rows.chunks[chunk_key] = value
    assert read_cells(rows, at.row_key) == changes
