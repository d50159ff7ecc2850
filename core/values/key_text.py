"""Values of key columns as people write them: in commands, in forms and in addresses.

An integer is written in decimal digits, a text as it is, and bytes as hexadecimal digits. Spaces
around an integer and between hexadecimal digits do not count.
"""

from __future__ import annotations

import re

from rowtide.core.values.schema import BINARY, INTEGER

__all__ = ["BadKeyText", "parse_key_text"]

INT64 = range(-(2**63), 2**63)
DIGITS_MAX = 40
"""With leading zeros. Python takes long over numbers with very many digits."""
SHOWN_MAX = 50
"""Characters of a wrong text in an error."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


class BadKeyText(ValueError):
    """A text is no value of a column's type. ``shown`` is its beginning, for an error message."""

    def __init__(self, text: str, reason: str) -> None:
        self.shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
        self.reason = reason
        super().__init__(f"'{self.shown}' is {reason}")


def parse_key_text(column_type: int, text: str) -> int | str | bytes:
    """Return the value of a key column of a type: INTEGER, STRING or BINARY.

    Raises ``BadKeyText``.
    """
    if column_type == INTEGER:
        return _parse_integer(text)
    if column_type == BINARY:
        try:
            return bytes.fromhex("".join(text.split()))
        except ValueError as error:
            raise BadKeyText(text, "no even number of hexadecimal digits") from error
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadKeyText(ascii(text), "no text: half of a surrogate pair has no UTF-8") from error
    return text


def _parse_integer(text: str) -> int:
    digits = text.strip()
    is_short = len(digits) <= DIGITS_MAX
    if not is_short or not _INTEGER.fullmatch(digits) or int(digits) not in INT64:
        raise BadKeyText(text, "no integer of 64 bits")
    return int(digits)
