"""Shard iterators: positions in a table's stream, as text that clients keep for days.

An iterator names the shard, the life of the stream (the time of its enabling, microseconds) and
an offset of the shard's log. It is a pure position: reusable, readable with any limit, good after a
restart. It grants nothing: whoever presents it must own the shard's instance.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rowtide.core.values.errors import invalid

__all__ = ["Position", "decode_position", "encode_position"]

_FORM = re.compile(r"rt1:([A-Za-z0-9-]{1,64}):([0-9a-f]{1,16}):([0-9a-f]{1,16})\Z")


class Position(NamedTuple):
    """Where a reader stands: the next offset to read."""

    shard_id: str
    enabled_at_us: int
    offset: int


def encode_position(position: Position) -> str:
    """Return the iterator's text."""
    return f"rt1:{position.shard_id}:{position.enabled_at_us:x}:{position.offset:x}"


def decode_position(text: str) -> Position:
    """Take an iterator apart. Raises OTSParameterInvalid."""
    found = _FORM.match(text)
    if found is None:
        raise invalid(f"Invalid shard iterator: '{text[:100]}'.")
    return Position(found[1], int(found[2], 16), int(found[3], 16))
