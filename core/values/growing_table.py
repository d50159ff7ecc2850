"""Tables of short results that fill as they are used.

A table of every two-byte number takes a megabyte, and a server needs few of its entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["GrowingTable"]

Made = TypeVar("Made")


class GrowingTable(dict[int, Made]):
    """The result of ``make`` for each number, computed when the number is first looked up.

    Entries are never removed, so callers bound the numbers. A look-up with ``[]`` raises what
    ``make`` raises; other methods of a dictionary find only what was looked up before.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[int], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, number: int) -> Made:
        """Return and keep the result for a number."""
        made = self[number] = self._make(number)
        return made
