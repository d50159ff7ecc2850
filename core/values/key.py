"""A primary key as bytes that sort in key order.

Each column is a tag and its data, and marks its own end:

    00                          INF_MIN
    03  8 bytes                 INTEGER, big-endian, sign bit flipped
    04  bytes  00 01            STRING, UTF-8; a 00 within is written 00 FF
    05  bytes  00 01            BLOB, likewise
    FF                          INF_MAX

Encoded keys of one table sort like the keys, and none is a prefix of another. An encoded key
without the last columns sorts before every key that begins with it. Stored rows and log records use
these bytes as keys: never change them.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowtide.core.values import errors, variant

__all__ = ["decode", "encode"]

_SIGN = 1 << 63
_END = b"\x00\x01"


def encode(variants: Iterable[bytes]) -> bytes:
    """Return the order-preserving bytes of key columns, given as variants."""
    parts = b""
    for column in variants:
        kind = column[0]
        if kind == variant.STRING:
            text = column[5:]
            if 0 in text:
                text = text.replace(b"\x00", b"\x00\xff")
            parts += b"\x04" + text + _END
        elif kind == variant.INTEGER:
            # The sign bit is the top bit of the last, most significant, byte.
            parts += b"\x03" + bytes((column[8] ^ 0x80,)) + column[7:0:-1]
        else:
            parts += _encode_other(column)
    return parts


def _encode_other(column: bytes) -> bytes:
    kind = column[0]
    if kind == variant.BLOB:
        return b"\x05" + column[5:].replace(b"\x00", b"\x00\xff") + _END
    if kind == variant.INF_MIN:
        return b"\x00"
    if kind == variant.INF_MAX:
        return b"\xff"
    raise errors.invalid(f"{variant.type_name(column)} is an invalid type for the primary key.")


def decode(encoded: bytes) -> list[bytes]:
    """Return the columns of an encoded key as variants; ``ValueError`` if it is damaged."""
    variants: list[bytes] = []
    at = 0
    while at < len(encoded):
        tag = encoded[at]
        if tag == 3:
            flipped = int.from_bytes(encoded[at + 1 : at + 9], "big")
            variants.append(b"\x00" + (flipped ^ _SIGN).to_bytes(8, "little"))
            at += 9
        elif tag == 4 or tag == 5:
            # 00 01 cannot occur within: every 00 of the text is followed by FF.
            end = encoded.find(_END, at + 1)
            text = encoded[at + 1 : end].replace(b"\x00\xff", b"\x00")
            kind = b"\x03" if tag == 4 else b"\x07"
            variants.append(kind + len(text).to_bytes(4, "little") + text)
            at = end + 2 if end > 0 else len(encoded) + 1
        elif tag == 0 or tag == 255:
            variants.append(variant.V_INF_MAX if tag else variant.V_INF_MIN)
            at += 1
        else:
            raise ValueError(f"encoded key, byte {at}: unknown tag {tag:02X}")
    if at > len(encoded):
        raise ValueError(f"encoded key of {len(encoded)} bytes breaks off")
    return variants
