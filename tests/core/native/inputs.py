"""Rows, cells and records by chance: most as clients send them, many odd, many damaged.

What is odd has right checksums, so that it gets as far as whatever refuses it. What is damaged is
well-formed bytes of which some were changed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

from rowtide.core.protocol import plainbuffer
from rowtide.core.records import record
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT, PUT, Cell
from rowtide.core.values.crc8 import crc8

__all__ = ["NAMES", "OFFSET", "STAMP", "VERSION_MS", "Inputs"]

NAMES = (b"id", b"n")
OFFSET, STAMP = 5, 1_795_000_000_000_123
VERSION_MS = 1_795_000_000_000
COLUMNS = ("a", "b", "c", "dd", "é", "long" * 20, "z")
ODD_NAMES = (b"", b"#a", b"\xff", b"x" * 256, b"id", b"\xed\xa0\x80", b"\xc0\x80", b"a\0b")
ODD_VALUES = (
    b"",
    b"\x06",
    b"\x09",
    b"\x0b",
    b"\x02\x02",
    b"\x02",
    b"\x00" + bytes(7),
    b"\x03\x02\x00\x00\x00a",
    b"\x03\xff\xff\xff\xffa",
    b"\x03\x02\x00\x00\x00\xc3\x28",
    b"\x03\x03\x00\x00\x00\xed\xa0\x80",
    b"\x07\x01\x00",
    b"\x01" + struct.pack("<d", float("nan")),
    b"\x01" + struct.pack("<d", float("-inf")),
    b"\x63",
)
NUMBERS = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31, -(2**63), 2**63 - 1)
TEXTS = ("", "a", "text", "x" * 63, "x" * 64, "naïve", "\U0001f600", "\0", "y" * 700)
PATCHES = (b"\xff\xff\xff\xff", b"\x03\x04", b"\x05", b"\x06\x01", b"\x07", b"\x0a", bytes(4))


class Inputs:
    """What a source of chance gives. ``damages`` counts what was damaged so far."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.damages = 0

    def _rarely(self, one_in: int) -> bool:
        return self.chance.randrange(one_in) == 0

    def value(self) -> bytes:
        """Return a variant that may be put."""
        chance = self.chance
        kind = chance.randrange(6)
        if kind == 0:
            return variant.encode(chance.choice(NUMBERS))
        if kind == 1:
            return variant.encode(chance.randrange(-(2**63), 2**63))
        if kind == 2:
            return variant.encode(chance.choice((0.0, -0.5, 1e300, 5e-324)))
        if kind == 3:
            return variant.encode(chance.choice((True, False)))
        text = chance.choice(TEXTS)
        return variant.encode(text if kind == 4 else text.encode())

    def version(self) -> int | None:
        """Return a version, or none."""
        chance = self.chance
        if chance.randrange(2):
            return None
        return chance.choice((VERSION_MS, VERSION_MS + 1, 0, -1, 2**62, VERSION_MS - 10**10))

    def cell(self, name: bytes, *, odd: bool) -> Cell:
        """Return a put without a version, or with ``odd`` any cell."""
        if not odd:
            return plainbuffer.put_cell(name, self.value(), None)
        chance = self.chance
        kind = chance.randrange(7)
        if kind == 0:
            return plainbuffer.delete_cell(name, self.version())
        if kind == 1:
            return plainbuffer.increment_cell(name, variant.encode(chance.choice(NUMBERS)))
        if kind == 2:
            return plainbuffer.put_cell(chance.choice(ODD_NAMES), self.value(), self.version())
        if kind == 3:
            return plainbuffer.put_cell(name, chance.choice(ODD_VALUES), self.version())
        if kind == 4:
            cell = plainbuffer.put_cell(name, self.value(), self.version())
            return cell._replace(checksum=chance.randrange(256))
        if kind == 5:
            op = chance.choice((PUT, DELETE_ALL, DELETE_ONE, INCREMENT, 2, 255))
            return self._with_op(name, op)
        return plainbuffer.put_cell(name, self.value(), self.version())

    def _with_op(self, name: bytes, op: int) -> Cell:
        """Return a cell of an operation that it may not fit, with the right checksum."""
        value = self.value() if self.chance.randrange(2) else b""
        version = self.version()
        crc = crc8(value, crc8(name))
        if version is not None:
            crc = crc8(struct.pack("<q", version), crc)
        if op:
            crc = crc8(bytes((op,)), crc)
        return Cell(name, op, value, version, crc)

    def cells(self) -> list[Cell]:
        """Return cells of a request: mostly plain, in some order."""
        chance = self.chance
        names = chance.sample(COLUMNS, chance.randrange(len(COLUMNS) + 1))
        if self._rarely(4):
            names.sort()
        if names and self._rarely(8):
            names.append(names[0])
        odd = self._rarely(3)
        return [self.cell(name.encode(), odd=odd and self._rarely(3)) for name in names]

    def key(self) -> list[tuple[bytes, bytes]]:
        """Return a key of the table, or one that does not fit it."""
        chance = self.chance
        text = chance.choice(("k", "k2", "ü", "", "with\0zero"))
        key = [(NAMES[0], variant.encode(text)), (NAMES[1], variant.encode(chance.randrange(3)))]
        if self._rarely(10):
            key[chance.randrange(2)] = (chance.choice(ODD_NAMES), self.value())
        if self._rarely(10):
            odd = chance.choice((*ODD_VALUES, variant.V_INF_MAX, variant.encode(b"blob\0")))
            key[chance.randrange(2)] = (NAMES[0], odd)
        if self._rarely(20):
            key = key * chance.choice((0, 2, 20))
        return key

    def row(self) -> bytes:
        """Return a row as it may be sent."""
        chance = self.chance
        cells = [] if self._rarely(4) else self.cells()
        row = plainbuffer.HEADER + plainbuffer.encode_row(
            self.key(),
            cells,
            deleted=self._rarely(20),
            sequence=plainbuffer.SequenceInfo(0, 1, 0) if self._rarely(20) else None,
        )
        return row + bytes(chance.choice((0, 0, 0, 0, 1, 9)))

    def damage(self, text: bytes) -> bytes:
        """Return bytes near ``text``: cut off, a bit flipped, bytes replaced or put in."""
        chance, made = self.chance, bytearray(text)
        self.damages += 1
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(made) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                del made[at:]
            elif kind == 1 and at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                patch = chance.choice(PATCHES)
                made[at : at + len(patch)] = patch
            else:
                made[at:at] = chance.choice(PATCHES)
        return bytes(made)

    def maybe_damage(self, text: bytes) -> bytes:
        """Return ``text``, or in one case of three bytes near it."""
        return self.damage(text) if self._rarely(3) else text

    def row_cells(self) -> list[Cell]:
        """Return cells as rows keep them: in order, each with a version."""
        chance = self.chance
        made: list[Cell] = []
        for name in sorted(column.encode() for column in COLUMNS):
            versions = sorted(
                {chance.choice((VERSION_MS, VERSION_MS - 1, 5)) for _ in range(chance.randrange(3))}
            )
            made += [
                plainbuffer.put_cell(name, self.value(), version) for version in versions[::-1]
            ]
        return made

    def log_record(self) -> bytes:
        """Return a record of the log, of a change most often."""
        chance = self.chance
        body = self._body()
        if self._rarely(20):
            body = chance.choice((record.NoOp(), record.Commit("x"), record.Seal("plan")))
        envelope = record.Envelope(OFFSET, 3, b"12345678", STAMP, record.SINGLE)
        made = record.encode_record(envelope, record.encode_body(body))
        if self._rarely(6):
            made = made[:2] + record.FINGERPRINT_V1 + made[10:-1]
        elif self._rarely(6):
            others = record.FINGERPRINT, record.FINGERPRINT_V4, record.FINGERPRINT_V2, b"unknown!"
            made = made[:2] + chance.choice(others) + made[10:]
        return made

    def record_with_originals(self) -> bytes:
        """Return a record of a stream that keeps all of ``COLUMNS``, or in some cases not quite."""
        chance = self.chance
        before = self._draw_newest(50)
        present = {cell.name for cell in before}
        absent = [name for name in (column.encode() for column in COLUMNS) if name not in present]
        if self._rarely(12):
            absent = absent[1:] if chance.randrange(2) else absent * 2
        after = self._draw_newest(3) if self._rarely(6) else []
        kept = record.Kept(chance.randrange(3) > 0, sorted(absent), after)
        key = [self._key_value() for _ in range(chance.choice((2, 2, 2, 2, 2, 2, 1, 3)))]
        cells = self._draw_newest(3) if chance.randrange(4) else self._draw_logged_cells()
        kind = chance.randrange(5)
        body: record.Body = record.UpdateBody(key, cells, before, (), kept)
        if kind == 0:
            body = record.DeleteBody(key, before, (), kept)
        elif kind < 3:
            body = record.PutBody(key, cells, before, (), kept)
        envelope = record.Envelope(OFFSET, 3, b"12345678", STAMP, record.SINGLE)
        return record.encode_record(envelope, record.encode_body(body))

    def _draw_newest(self, deletes_one_in: int) -> list[Cell]:
        """Return a cell at most of each column, in some cases the delete of a stored version."""
        newest: dict[bytes, Cell] = {}
        for cell in self.row_cells():
            if self._rarely(deletes_one_in):
                version = self.chance.choice((None, cell.version_ms, self.version()))
                newest.setdefault(cell.name, plainbuffer.delete_cell(cell.name, version))
            newest.setdefault(cell.name, cell)
        return list(newest.values())

    def _body(self) -> record.Body:
        chance = self.chance
        key: list[bytes] = [self._key_value() for _ in range(chance.choice((2, 2, 2, 2, 0, 1, 3)))]
        cells = self._draw_logged_cells()
        before: Sequence[Cell] | None = self.row_cells() if self._rarely(6) else None
        indexes = [record.IndexWrite(7, True, key, cells)] if self._rarely(8) else ()
        kept = None
        if self._rarely(3):
            before, kept = self.row_cells(), self._draw_kept()
        kind = chance.randrange(5)
        if kind == 0:
            return record.DeleteBody(key, before, indexes, kept)
        if kind < 3:
            return record.PutBody(key, cells, before, indexes, kept)
        return record.UpdateBody(key, cells, before, indexes, kept)

    def _draw_kept(self) -> record.Kept:
        chance = self.chance
        absent = [name.encode() for name in chance.sample(COLUMNS, chance.randrange(3))]
        after = self._draw_logged_cells() if self._rarely(3) else []
        return record.Kept(chance.randrange(2) == 0, absent, after)

    def _key_value(self) -> bytes:
        chance = self.chance
        text = chance.choice(TEXTS)
        return variant.encode(chance.choice((text, text.encode(), chance.choice(NUMBERS))))

    def _draw_logged_cells(self) -> list[Cell]:
        made = self.row_cells()
        if self._rarely(3):
            at = self.chance.randrange(len(made) + 1)
            made.insert(at, plainbuffer.delete_cell(b"gone", self.version()))
        if made and self._rarely(10):
            made[0] = made[0]._replace(version_ms=None)
        return made
