"""A log record as a stream record: one wire row with its position in the shard.

Most are joined from the log's bytes, by a kernel (``native``), or by a known form
(``record_form.py``). Others are decoded and encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.core.records import record
from rowtide.core.records.body import Kept
from rowtide.core.records.change_body import KEPT_BEGIN
from rowtide.core.records.change_selection import ChangeSelection
from rowtide.core.records.kept import narrow_kept
from rowtide.core.records.record_form import FORMS, RecordForm
from rowtide.core.values.cell import Cell

__all__ = ["DELETE_ROW", "PUT_ROW", "UPDATE_ROW", "StreamRow", "select_row", "stream_row"]

PUT_ROW, UPDATE_ROW, DELETE_ROW = 1, 2, 3
"""Numbers of the protocol's ActionType."""

_ACTION_OF = {
    record.PutBody: PUT_ROW,
    record.UpdateBody: UPDATE_ROW,
    record.DeleteBody: DELETE_ROW,
}
_ACTIONS = {branch: _ACTION_OF[body] for branch, body in record.CHANGES.items()}
"""Action by the body's branch of the schema's union."""

FINGERPRINT_END = 10
"""A record begins with its schema's fingerprint, so a form belongs to one schema."""

_new = tuple.__new__


class StreamRow(NamedTuple):
    """One stream record. ``before`` has the original columns if the stream keeps them.

    ``kept`` has what else the record tells of them. It is None in a record of an earlier schema.
    """

    action: int
    stamp: int
    row: bytes
    before: bytes | None
    kept: Kept | None = None


def select_row(
    value: bytes, offset: int, names: tuple[bytes, ...], selection: ChangeSelection
) -> StreamRow | None:
    """Return the part of a log entry's stream record that a reader wants; None for nothing."""
    envelope, at = record.read_envelope(value)
    if envelope.at != offset:
        return None
    body = record.decode_body(value, at)
    if not isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
        return None
    cells = () if isinstance(body, record.DeleteBody) else body.cells
    key = list(zip(names, body.key, strict=True))
    kept = selection.choose(key, cells, merges=isinstance(body, record.UpdateBody))
    if kept is None:
        return None
    if not isinstance(body, record.DeleteBody) and kept is not cells:
        whole = isinstance(body, record.PutBody)
        if body.kept is not None:
            body.kept = narrow_kept(body.before or (), body.kept, cells, kept, whole=whole)
        body.cells = kept
    return _encode_row(envelope.stamp, body, names)


def stream_row(value: bytes, offset: int, names: tuple[bytes, ...]) -> StreamRow | None:
    """Return the stream record in a log entry; None for a void or a hidden one.

    ``names`` are those of the key columns. Raises ``record.CorruptRecord``.
    """
    envelope, at = record.read_envelope(value)
    if envelope.at != offset:
        return None
    action = _ACTIONS.get(value[at]) if at < len(value) else None
    if action is not None and (value[at] < KEPT_BEGIN or record.has_kept(value)):
        indexed = record.has_indexes(value)
        found = native.kernels.stream_row(value, at, indexed, envelope.stamp, names)
        if type(found) is bytes:
            return _new(StreamRow, (action, envelope.stamp, found, None, None))
        if type(found) is tuple:
            shown, before, existed, absent = found
            kept = Kept(existed, absent, [])
            return _new(StreamRow, (action, envelope.stamp, shown, before, kept))
    found_by = (names, value[at : at + 1], value[:FINGERPRINT_END], len(value) - at)
    place = FORMS.find(found_by)
    if place is not None and (form := place.form) is not None:
        row = form.wire_row(value, at, envelope.stamp)
        if row is not None:
            place.hits += 1
            return _new(StreamRow, (_ACTIONS[value[at]], envelope.stamp, row, None, None))
    body = record.decode_body(value, at)
    if not isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
        return None
    if not isinstance(body, record.DeleteBody):
        place = place or FORMS.place(found_by)
        place.left -= 1
        if place.left <= 0 and place.judge():
            place.learn(RecordForm.of(names, body, value[at:]))
    return _encode_row(envelope.stamp, body, names)


def _encode_row(
    stamp: int, body: record.PutBody | record.UpdateBody | record.DeleteBody, names: Sequence[bytes]
) -> StreamRow:
    cells: Sequence[Cell] = ()
    action = DELETE_ROW
    if not isinstance(body, record.DeleteBody):
        action, cells = PUT_ROW if isinstance(body, record.PutBody) else UPDATE_ROW, body.cells
    key = list(zip(names, body.key, strict=True))
    sequence = SequenceInfo(0, stamp, 0)
    row = plainbuffer.HEADER + plainbuffer.encode_row(key, cells, sequence=sequence)
    before = None
    if body.before is not None:
        before = plainbuffer.HEADER + plainbuffer.encode_row(key, body.before, sequence=sequence)
    return StreamRow(action, stamp, row, before, body.kept)
