"""Most rows of a source in one step: from the change to the chunk and the log record's body.

Most are puts of absent rows, or updates of narrow rows (``row_patch.py``), with cells of one form
in the order of their names. Then only the version and the cost must be decided.

The shard evaluates any other row (``shard.py``); functions here return None for it. Tests check
that both give the same bytes.
"""

from __future__ import annotations

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import PackedCells
from rowtide.core.records import record
from rowtide.core.rows import capacity, row_patch
from rowtide.core.rows.chunk import CHUNK_BYTES, DELETED, FORMAT, header, pack_header
from rowtide.core.rows.mutation import IGNORE, PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.values.crc8 import ROW_ENDS

__all__ = ["evaluate_plain", "is_plain"]

_new = tuple.__new__


def is_plain(shard: Shard) -> bool:
    """True if a shard's rows depend on nothing else: it has no index and no pre-image."""
    stream = shard.state.stream
    return (
        not shard.indexes
        and (stream is None or not stream.columns)
        and shard.table.auto_increment_index is None
    )


def evaluate_plain(
    change: ChangeRequest, encoded: bytes, row_key: bytes, shard: Shard, view: Overlay, stamp: int
) -> Evaluated | None:
    """Return the evaluated change over ``view``, or None if the shard has to evaluate it.

    ``encoded`` is its key, ``row_key`` that of its row's first chunk. The shard ``is_plain``.
    """
    cells, time_ms = change.cells, change.time_ms
    if type(cells) is not PackedCells or time_ms is None or cells.form.ordered is not cells.form:
        return None
    if change.expectation != IGNORE or change.condition is not None or change.return_type:
        return None
    first = view.get(row_key)
    piece, state = plainbuffer.key_piece(change.key)
    if change.kind == PUT and first is None:
        stamped = cells.stamp(time_ms)
        chunk = _chunk(stamped, piece, state, time_ms, stamp)
    elif change.kind == UPDATE and first is not None and shard.state.options.max_versions == 1:
        _, flags, end_bytes, _, _, _, _, _, _ = header(first)
        if flags & DELETED or end_bytes:
            return None
        made = row_patch.update_row(first, state, cells, time_ms, stamp)
        if made is None:
            return None
        chunk, stamped = made
    else:
        return None
    values = [value for _, value in change.key]
    body = record.encode_change(values, stamped, whole=change.kind == PUT)
    if len(chunk) > CHUNK_BYTES or len(body) > shard.limits.record_bytes_max:
        return None
    size = len(piece) - shard.table.key_overhead + cells.form.data_bytes
    outcome = _new(Outcome, (b"", 0, capacity.units(size)))
    return Evaluated(outcome, stamp, encoded, body, [(row_key, chunk)])


def _chunk(cells: PackedCells, key_piece: bytes, state: int, version_ms: int, stamp: int) -> bytes:
    """Return a narrow row as a stored chunk (``chunk.py``)."""
    form = cells.form
    head = pack_header(FORMAT, 0, 0, len(key_piece), stamp, version_ms, 1, form.data_bytes, 0)
    tail = plainbuffer.version_tail(version_ms)
    parts = cells.fill_template(form.stored, cells.payloads, tail)
    parts[0] = head + key_piece + b"\x02" + parts[0]
    parts.append(ROW_ENDS[plainbuffer.row_checksum(state, cells.checksums)])
    return b"".join(parts)
