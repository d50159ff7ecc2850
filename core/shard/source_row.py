"""Most rows of a source in one step: from the change to the chunk and the log record's body.

Most are puts of absent rows, or updates of narrow rows (``row_patch.py``), with cells of one form
in the order of their names. Then only the version and the cost must be decided. A put whose key the
shard completes is always of an absent row: no other row has its commit stamp.

The shard evaluates any other row (``shard.py``); functions here return None for it. Tests check
that both give the same bytes.
"""

from __future__ import annotations

from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import PackedCells
from rowtide.core.records import record
from rowtide.core.rows import capacity, row_patch
from rowtide.core.rows.chunk import (
    CHUNK_BYTES,
    DELETED,
    FORMAT,
    header,
    pack_header,
    table_prefix,
)
from rowtide.core.rows.mutation import IGNORE, PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.values import key, variant
from rowtide.core.values.crc8 import ROW_ENDS
from rowtide.core.values.variant import V_AUTO_INCREMENT

__all__ = ["evaluate_plain", "is_plain"]

_new = tuple.__new__


def is_plain(shard: Shard) -> bool:
    """True if a shard's rows depend on nothing else: it has no index and no pre-image."""
    stream = shard.state.stream
    return not shard.indexes and (stream is None or not stream.columns)


def evaluate_plain(
    change: ChangeRequest, encoded: bytes, row_key: bytes, shard: Shard, view: Overlay, stamp: int
) -> Evaluated | None:
    """Return the evaluated change over ``view``, or None if the shard has to evaluate it.

    ``encoded`` is its key, ``row_key`` that of its row's first chunk. The shard ``is_plain``.
    """
    cells, time_ms = change.cells, change.time_ms
    if type(cells) is not PackedCells or cells.form.ordered is not cells.form:
        return None
    if change.expectation != IGNORE or change.condition is not None or change.return_type:
        return None
    auto = shard.table.auto_increment_index
    if auto is not None:
        return _evaluate_new(change, cells, auto, shard, stamp)
    if time_ms is None:
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
    outcome = _outcome(shard, piece, cells)
    return Evaluated(outcome, stamp, encoded, body, [(row_key, chunk)])


def _evaluate_new(
    change: ChangeRequest, cells: PackedCells, auto: int, shard: Shard, stamp: int
) -> Evaluated | None:
    """Return the evaluated put of a row whose key column ``auto`` becomes the stamp.

    Returns None for a row with a key of its own, and for another kind of change. The version is
    the stamp's time: a row expires when its id says so.
    """
    name, given = change.key[auto]
    if change.kind != PUT or given != V_AUTO_INCREMENT or change.time_ms is not None:
        return None
    assigned = list(change.key)
    assigned[auto] = name, variant.encode(stamp)
    values = [value for _, value in assigned]
    encoded = key.encode(values)
    piece, state = plainbuffer.key_piece(assigned)
    version_ms = stamp // 1000
    made = native.kernels.stored_write(
        True,
        piece,
        state,
        cells.wire(),
        len(cells),
        version_ms,
        stamp,
        None,
        shard.state.options.max_versions,
        CHUNK_BYTES,
    )
    if made is None:
        stamped = cells.stamp(version_ms)
        chunk = _chunk(stamped, piece, state, version_ms, stamp)
        made = chunk, record.encode_change(values, stamped, whole=True)
    chunk, body = made
    if len(chunk) > CHUNK_BYTES or len(body) > shard.limits.record_bytes_max:
        return None
    at = table_prefix(shard.table.table_id) + encoded
    return Evaluated(_outcome(shard, piece, cells), stamp, encoded, body, [(at, chunk)])


def _outcome(shard: Shard, key_piece: bytes, cells: PackedCells) -> Outcome:
    """Return the outcome of a row that is written, with its cost."""
    size = len(key_piece) - shard.table.key_overhead + cells.form.data_bytes
    return _new(Outcome, (b"", 0, capacity.units(size)))


def _chunk(cells: PackedCells, key_piece: bytes, state: int, version_ms: int, stamp: int) -> bytes:
    """Return a narrow row as a stored chunk (``chunk.py``)."""
    form = cells.form
    head = pack_header(FORMAT, 0, 0, len(key_piece), stamp, version_ms, 1, form.data_bytes, 0)
    tail = plainbuffer.version_tail(version_ms)
    parts = cells.fill_template(form.stored, cells.payloads, tail)
    parts[0] = head + key_piece + b"\x02" + parts[0]
    parts.append(ROW_ENDS[plainbuffer.row_checksum(state, cells.checksums)])
    return b"".join(parts)
