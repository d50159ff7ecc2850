"""Messages of version 1 of the official library.

Their content is one text, stored in binary columns of up to 1 MiB each:

    __message_id      the sender's id of the message
    __content10000    the first piece of the content; then __content10001 and so on
    __column_count    how many pieces there are
    __crc32           CRC-32 of the whole content
    NAME              an attribute, a text

An empty content has no piece. Other columns that begin with two underscores are no attributes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from rowtide.client.timeline.message import FieldInput
from rowtide.client.timeline.schema import MESSAGE_ID
from rowtide.core.values.errors import invalid
from rowtide.core.values.variant import Scalar

__all__ = ["CONTENT_BYTES_MAX", "PIECE_BYTES_MAX", "FirstVersionMessage"]

PIECE_BYTES_MAX = 1024 * 1024
CONTENT_BYTES_MAX = 2 * 1024 * 1024
RESERVED = "__"
COUNT, CRC = "__column_count", "__crc32"
PIECE, PIECE_FIRST = "__content", 10_000


@dataclass(frozen=True, slots=True)
class FirstVersionMessage:
    """A message of version 1: its id, its content, and attributes."""

    message_id: str
    content: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, Scalar]:
        """Return the message's fields, for ``store``. Raises OTSParameterInvalid."""
        try:
            content = self.content.encode()
        except UnicodeEncodeError as error:
            raise invalid(f"The content is not UTF-8: {error.reason}.") from error
        if len(content) > CONTENT_BYTES_MAX:
            raise invalid(
                f"The content has {len(content)} bytes; the limit is {CONTENT_BYTES_MAX}."
            )
        pieces = [
            content[at : at + PIECE_BYTES_MAX] for at in range(0, len(content), PIECE_BYTES_MAX)
        ]
        found: dict[str, Scalar] = {MESSAGE_ID: self.message_id}
        found |= {f"{PIECE}{PIECE_FIRST + n}": piece for n, piece in enumerate(pieces)}
        found |= {COUNT: len(pieces), CRC: zlib.crc32(content)}
        for name, value in self.attributes.items():
            if name.startswith(RESERVED):
                raise invalid(f"Attribute '{name}' has a reserved name: it begins with '__'.")
            if not isinstance(value, str):
                raise invalid(f"Attribute '{name}' takes a text, not {type(value).__name__}.")
            found[name] = value
        return found

    @classmethod
    def read(cls, fields: Mapping[str, FieldInput]) -> FirstVersionMessage:
        """Return the message that fields store.

        Raises OTSParameterInvalid if a piece is missing or the content is damaged.
        """
        count, stored_crc = fields.get(COUNT), fields.get(CRC)
        if not isinstance(count, int) or not isinstance(stored_crc, int):
            raise invalid(f"This is no message of version 1: '{COUNT}' or '{CRC}' is missing.")
        if count < 0 or count > len(fields):
            raise invalid(f"'{COUNT}' is {count}, but the message has {len(fields)} fields.")
        pieces: list[bytes] = []
        for number in range(PIECE_FIRST, PIECE_FIRST + count):
            piece = fields.get(f"{PIECE}{number}")
            if not isinstance(piece, bytes):
                raise invalid(f"Piece '{PIECE}{number}' of {count} pieces is missing.")
            pieces.append(piece)
        content = b"".join(pieces)
        if zlib.crc32(content) != stored_crc:
            raise invalid(
                f"The content is damaged: '{CRC}' is {stored_crc}, but its pieces have "
                f"{zlib.crc32(content)}."
            )
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise invalid(f"The content is not UTF-8: {error.reason}.") from error
        attributes = {
            name: value
            for name, value in fields.items()
            if isinstance(value, str) and not name.startswith(RESERVED)
        }
        return cls(str(fields.get(MESSAGE_ID, "")), text, attributes)
