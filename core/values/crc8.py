"""The checksum of cells and rows: CRC-8, polynomial 0x07, start 0, most significant bit first.

The sum starts at zero and has no final xor, so it is linear over xor: ``crc8(a + b) ==
shifted(crc8(a), len(b)) ^ crc8(b)``. This gives two tables. ``STEP`` continues a sum by one byte,
``SHIFT8`` by eight zero bytes, the length of a version.
"""

from __future__ import annotations

from fastcrc.crc8 import smbus as crc8

__all__ = ["CELL_ENDS", "ROW_ENDS", "SHIFT8", "STEP", "crc8"]

STEP = bytes(crc8(bytes((byte,))) for byte in range(256))
"""``crc8(a + bytes([b])) == STEP[crc8(a) ^ b]``."""

SHIFT8 = bytes(crc8(bytes(8), state) for state in range(256))
"""``crc8(a + eight) == SHIFT8[crc8(a)] ^ crc8(eight)`` for any eight bytes."""

CELL_ENDS, ROW_ENDS = (
    tuple(bytes((tag, checksum)) for checksum in range(256)) for tag in (0x0A, 0x09)
)
"""The end of a cell, and of a row, in PlainBuffer: a tag and the checksum, by checksum.
"""
