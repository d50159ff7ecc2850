"""The fields of a message as columns of a row, and back.

A field is an integer, a double, a boolean, a text, bytes, or a list of texts. A list is stored as a
JSON array in a text column, byte for byte as Gson writes it for the official Java library. All
checks are made before anything is sent, and an error names the field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rowtide.client.row_values import Input, RowDict, check_columns, read_texts, to_scalar
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.variant import Scalar

__all__ = ["FieldInput", "FieldValue", "Fields", "decode_fields", "encode_fields", "encode_texts"]

FieldInput = Input | Sequence[str]
FieldValue = Scalar | list[str]
Fields = dict[str, FieldValue]
"""A message as read."""

_ESCAPES = {
    **{number: f"\\u{number:04x}" for number in range(0x20)},
    **{ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&='\u2028\u2029"},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\t"): "\\t",
    ord("\b"): "\\b",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\f"): "\\f",
}
"""What Gson escapes. It keeps all other letters."""


def encode_texts(texts: Sequence[str]) -> str:
    """Return a list of texts as the JSON array that Gson writes."""
    return "[" + ",".join(f'"{text.translate(_ESCAPES)}"' for text in texts) + "]"


def encode_fields(
    fields: Mapping[str, FieldInput], *, key: Collection[str], limits: Limits
) -> dict[str, Scalar]:
    """Return a message's columns. Raises ``Rejected`` with the name of a bad field.

    ``key`` are the names of the table's key columns, which a message cannot have.
    """
    if len(fields) > limits.attributes_per_write_max:
        raise Rejected(
            "OTSOutOfColumnCountLimit",
            f"A message has {len(fields)} fields; the limit is {limits.attributes_per_write_max}.",
        )
    columns: dict[str, Scalar] = {}
    for name, value in fields.items():
        if not isinstance(name, str):
            raise invalid(f"A field's name is a text, not {type(name).__name__}: {name!r}.")
        if name in key:
            raise invalid(f"Field '{name}' has the name of a key column of the table.")
        columns[name] = _encode_value(name, value)
    try:
        check_columns(columns.items(), limits)
    except UnicodeEncodeError as error:
        raise invalid(f"A field's name is not UTF-8: {error.object!r}.") from error
    return columns


def _encode_value(name: str, value: object) -> Scalar:
    try:
        if isinstance(value, list | tuple):
            if not all(isinstance(text, str) for text in value):
                raise invalid(f"Field '{name}' is a list: it can have texts only.")
            value = encode_texts(value)
        scalar = to_scalar(name, value)
        if isinstance(scalar, str):
            scalar.encode()
    except TypeError as error:
        kind = type(value).__name__
        raise invalid(
            f"Field '{name}' takes int, float, bool, str, bytes or a list of str, not {kind}."
        ) from error
    except UnicodeEncodeError as error:
        raise invalid(f"Field '{name}' is not UTF-8: {error.reason}.") from error
    return scalar


def decode_fields(row: RowDict, *, key: Collection[str], lists: Collection[str]) -> Fields:
    """Return a row's message. ``lists`` are fields to read as lists; other text stays text."""
    return {
        name: _decode_texts(value) if name in lists else value
        for name, value in row.items()
        if name not in key
    }


def _decode_texts(value: Scalar) -> FieldValue:
    """Return the list that a text has. Anything else is returned as it is, so nothing is lost."""
    if not isinstance(value, str):
        return value
    found = read_texts(value)
    return value if found is None else found
