"""One cell: a column's value, or a delete, at one version.

``name`` is UTF-8; ``variant`` is the value (see ``rowtide.core.values.variant``) and empty for the
two deletes. ``version_ms`` is milliseconds since the Unix epoch, None where the writer left it to
the store. ``checksum`` is the wire's CRC-8 of exactly this cell, made by whoever wrote the cell
first and carried with it: a cell damaged anywhere on its way is noticed by the client.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DELETE_ALL", "DELETE_ONE", "INCREMENT", "PUT", "Cell"]

# On the wire and in the log: never renumber. The wire writes no byte for PUT.
PUT = 0
DELETE_ALL = 1
DELETE_ONE = 3
INCREMENT = 4


class Cell(NamedTuple):
    """A cell. Hot loops build it with ``tuple.__new__``: half the cost of calling the class."""

    name: bytes
    op: int
    variant: bytes
    version_ms: int | None
    checksum: int
