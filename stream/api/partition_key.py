"""Partition keys as operators write them: an integer in digits, a text as it is, a blob in hex."""

from __future__ import annotations

from rowtide.core.values import key, variant
from rowtide.core.values.errors import invalid
from rowtide.core.values.key_text import BadKeyText, parse_key_text
from rowtide.core.values.schema import Table

__all__ = ["encode_partition_key", "show_partition_key"]


def encode_partition_key(table: Table, text: str) -> bytes:
    """Return the partition key that a text stands for, encoded. Raises OTSParameterInvalid."""
    column = table.key[0]
    try:
        return key.encode([variant.encode(parse_key_text(column.type, text))])
    except BadKeyText as error:
        raise invalid(
            f"'{error.shown}' is no value of key column '{column.name}': it is {error.reason}."
        ) from error


def show_partition_key(encoded: bytes) -> str | int | None:
    """Return an encoded partition key as operators write it; None if it is empty."""
    if not encoded:
        return None
    value = variant.decode(key.decode(encoded)[0])
    return (
        value.hex() if isinstance(value, bytes) else value if isinstance(value, int) else str(value)
    )
