"""Finds the table of a request about one row by the first bytes of its message."""

from __future__ import annotations

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.schema import Table
from rowtide.stream.api.directory import Directory

__all__ = ["find_plain_table"]

TABLE_NAME = 0x0A
"""The first field of the message; a name of up to 127 bytes has one byte of length."""

LONG = 0x80


def find_plain_table(
    directory: Directory, identity: Identity, body: bytes
) -> tuple[Table, int] | None:
    """Return the table of a request on one row, and the offset behind its name.

    Returns None if the general path must find it: for an index, or if units are counted by
    partition key.
    """
    if len(body) < 2 or body[0] != TABLE_NAME or body[1] >= LONG:
        return None
    at = 2 + body[1]
    table = directory.catalog.tables.get((identity.instance, body[2:at].decode("ascii", "replace")))
    if table is None or table.main or directory.consumption.by_partition_key:
        return None
    return table, at
