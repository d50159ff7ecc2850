"""Cells that are kept in another form, and made only when they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

from rowtide.core.values.cell import Cell

__all__ = ["LazyCells"]


class LazyCells(Sequence[Cell]):
    """Like a list of cells. A subclass starts with ``_cells`` None, and never changes."""

    __slots__ = ("_cells",)

    _cells: list[Cell] | None

    @abstractmethod
    def _make_cells(self) -> list[Cell]:
        """Return the cells, made from the other form."""

    def cells(self) -> list[Cell]:
        """Return the cells; the first call makes them."""
        if self._cells is None:
            self._cells = self._make_cells()
        return self._cells

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells())

    @overload
    def __getitem__(self, index: int) -> Cell: ...
    @overload
    def __getitem__(self, index: slice) -> list[Cell]: ...
    def __getitem__(self, index: int | slice) -> Cell | list[Cell]:
        return self.cells()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.cells() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.cells())
