"""Partition keys as operators write them: an integer in digits, a text as it is, a blob in hex."""

from __future__ import annotations

from rowtide.core.values import key, variant
from rowtide.core.values.errors import invalid
from rowtide.core.values.schema import BINARY, INTEGER, Table

__all__ = ["encode_partition_key", "show_partition_key"]


def encode_partition_key(table: Table, text: str) -> bytes:
    """Return the partition key that a text stands for, encoded. Raises OTSParameterInvalid."""
    column = table.key[0]
    try:
        value: int | str | bytes = text
        if column.type == INTEGER:
            value = int(text)
        elif column.type == BINARY:
            value = bytes.fromhex(text)
        return key.encode([variant.encode(value)])
    except (ValueError, OverflowError) as error:
        raise invalid(f"'{text}' is no value of key column '{column.name}': {error}.") from error


def show_partition_key(encoded: bytes) -> str | int | None:
    """Return an encoded partition key as operators write it; None if it is empty."""
    if not encoded:
        return None
    value = variant.decode(key.decode(encoded)[0])
    return (
        value.hex() if isinstance(value, bytes) else value if isinstance(value, int) else str(value)
    )
