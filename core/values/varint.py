"""Numbers in protobuf's varint format: seven bits a byte, lowest first.

Hot paths write some messages by hand and use this. A caller that writes the same numbers repeatedly
should cache them.
"""

from __future__ import annotations

__all__ = ["varint"]


def varint(value: int) -> bytes:
    """Return the varint of a number >= 0."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
