"""Numbers as protobuf writes them: seven bits a byte, the lowest first, a high bit where more come.

For messages that are written by hand, which hot paths are. Who writes the same numbers again and
again remembers them.
"""

from __future__ import annotations

__all__ = ["varint"]


def varint(value: int) -> bytes:
    """Return a number, zero or above."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
