"""The part of a client that most applications use: for type hints, and for mocks in their tests.

``Client`` is a ``RowClient``, ``AsyncClient`` is an ``AsyncRowClient``; a test compares them. A
fake of a dozen lines replaces them in an application's tests when the real server of
``rowtide.testing`` is too much.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Protocol

from rowtide.client.batches import RowWrite
from rowtide.client.operations import Expect
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.row_values import KeyInput, RowDict, RowInput

__all__ = ["AsyncRowClient", "RowClient"]


class RowClient(Protocol):
    """Reads and writes rows; see ``Client`` for what each call does."""

    def put(
        self,
        table: str,
        row: RowInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Replace a row; return its key."""
        ...

    def update(
        self,
        table: str,
        row: RowInput,
        *,
        delete: Sequence[str] = (),
        increment: Mapping[str, int] | None = None,
        returning: Sequence[str] = (),
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Change columns of a row; return the columns ``returning``."""
        ...

    def delete(
        self,
        table: str,
        key: KeyInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> None:
        """Delete a row."""
        ...

    def get(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> RowDict | None:
        """Return a row, or None."""
        ...

    def get_many(
        self,
        table: str,
        keys: Sequence[KeyInput],
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> list[RowDict | None]:
        """Return a row for each key, or None."""
        ...

    def write(self, writes: Sequence[RowWrite], *, atomic: bool = False) -> list[RowDict]:
        """Write rows in one request; return their keys."""
        ...

    def range(
        self,
        table: str,
        start: KeyInput | None = None,
        end: KeyInput | None = None,
        *,
        prefix: KeyInput | None = None,
        reverse: bool = False,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
        limit: int | None = None,
        page_rows: int | None = None,
    ) -> Iterator[RowDict]:
        """Yield rows in the order of their keys."""
        ...


class AsyncRowClient(Protocol):
    """Reads and writes rows; see ``AsyncClient`` for what each call does."""

    async def put(
        self,
        table: str,
        row: RowInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Replace a row; return its key."""
        ...

    async def update(
        self,
        table: str,
        row: RowInput,
        *,
        delete: Sequence[str] = (),
        increment: Mapping[str, int] | None = None,
        returning: Sequence[str] = (),
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Change columns of a row; return the columns ``returning``."""
        ...

    async def delete(
        self,
        table: str,
        key: KeyInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> None:
        """Delete a row."""
        ...

    async def get(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> RowDict | None:
        """Return a row, or None."""
        ...

    async def get_many(
        self,
        table: str,
        keys: Sequence[KeyInput],
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> list[RowDict | None]:
        """Return a row for each key, or None."""
        ...

    async def write(self, writes: Sequence[RowWrite], *, atomic: bool = False) -> list[RowDict]:
        """Write rows in one request; return their keys."""
        ...

    def range(
        self,
        table: str,
        start: KeyInput | None = None,
        end: KeyInput | None = None,
        *,
        prefix: KeyInput | None = None,
        reverse: bool = False,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
        limit: int | None = None,
        page_rows: int | None = None,
    ) -> AsyncIterator[RowDict]:
        """Yield rows in the order of their keys."""
        ...
