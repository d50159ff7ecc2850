"""The original columns of a record, as an answer of the Stream API tells them.

The command line reads them without asyncio, so they are apart from ``changes/api.py``.
"""

from __future__ import annotations

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.body import Kept

__all__ = ["read_kept_columns"]


def read_kept_columns(record: pb.GetStreamRecordResponse.StreamRecord) -> Kept | None:
    """Return what a record tells of the original columns beside their values before."""
    if not record.HasField("kept"):
        return None
    kept = record.kept
    after = plainbuffer.decode_row(kept.after).cells if kept.after else ()
    return Kept(kept.existed, [name.encode() for name in kept.absent], after)
