"""One cell: a column's value, or a delete, at one version.

``name`` is UTF-8. ``variant`` is the value (see ``rowtide.core.values.variant``), empty for both
kinds of delete. ``version_ms`` is milliseconds since the Unix epoch, None if the store assigns it.
``checksum`` is the wire's CRC-8 of this cell. The first writer of the cell calculates it, and it
travels with the cell. So the client detects a cell that was damaged anywhere on its way.
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
    """A cell. Hot loops build it with ``tuple.__new__``, at half the cost of calling the class."""

    name: bytes
    op: int
    variant: bytes
    version_ms: int | None
    checksum: int
