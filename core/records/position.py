"""Shard iterators: positions in a table's stream, as text that clients keep for days.

An iterator has the shard, the time at which the stream was enabled (microseconds), and an offset of
the shard's log. It is only a position: it can be used again, with any limit, and after a restart.
It grants no access: the caller must have access to the shard's instance.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rowtide.core.values.errors import invalid

__all__ = ["Position", "decode_position", "encode_position"]

_FORM = re.compile(r"rt1:([A-Za-z0-9-]{1,64}):([0-9a-f]{1,16}):([0-9a-f]{1,16})\Z")


class Position(NamedTuple):
    """A reader's position: the next offset to read."""

    shard_id: str
    enabled_at_us: int
    offset: int


def encode_position(position: Position) -> str:
    """Return the iterator's text."""
    return f"rt1:{position.shard_id}:{position.enabled_at_us:x}:{position.offset:x}"


def decode_position(text: str) -> Position:
    """Return the position of an iterator's text. Raises OTSParameterInvalid."""
    found = _FORM.match(text)
    if found is None:
        raise invalid(f"Invalid shard iterator: '{text[:100]}'.")
    return Position(found[1], int(found[2], 16), int(found[3], 16))
