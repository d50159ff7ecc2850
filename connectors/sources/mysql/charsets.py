"""Decoders for each charset of the server.

Texts of a query are UTF-8. Texts of the binlog are in the charset of their column. For a
charset with one byte per character the server itself returns the table, so both ways
agree. Charsets of several bytes are decoded by Python's codecs, which know the same
characters except vendor extensions.
"""

from __future__ import annotations

import codecs
from functools import partial

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.mysql.row_image import Decoder
from rowtide.connectors.sources.mysql.server import MySqlServer

__all__ = ["Charsets"]

_CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
}


class Charsets:
    """Decoders by the number of a collation. Asks ``server`` for each charset once."""

    def __init__(self, server: MySqlServer) -> None:
        self._server = server
        self._names = server.charsets()
        self._decoders: dict[str, Decoder | None] = {"binary": None}

    def decoder(self, collation: int) -> Decoder | None:
        """Return the decoder of a collation, None if its values stay bytes."""
        name = self._names.get(collation)
        if name is None:
            raise SettingsRefused(
                f"The server does not report the charset of collation {collation}."
            )
        if name not in self._decoders:
            self._decoders[name] = self._make_decoder(name)
        return self._decoders[name]

    def text(self, value: bytes, collation: int) -> str:
        """Return a statement as text. Collation 0 and unknown ones are UTF-8."""
        decode = self.decoder(collation) if collation in self._names else None
        return value.decode("utf-8", "replace") if decode is None else decode(value)

    def _make_decoder(self, name: str) -> Decoder:
        if name in _CODECS:
            decode = codecs.getdecoder(_CODECS[name])
            return partial(_decode, decode)
        return partial(_map_characters, self._server.characters(name))


def _decode(decode: codecs._Decoder, value: bytes) -> str:
    return decode(value, "replace")[0]


def _map_characters(characters: str, value: bytes) -> str:
    return codecs.charmap_decode(value, "replace", characters)[0]
