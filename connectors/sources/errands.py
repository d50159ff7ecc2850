"""Single rows that somebody wants a running source to copy again: asked for, done in their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rowtide.connectors.rows import Key, SourceRow
from rowtide.core.values.errors import StoreError, Unavailable, invalid
from rowtide.core.values.variant import Scalar

__all__ = ["Errand", "Errands", "follows_nothing"]


@dataclass(slots=True, eq=False)
class Errand:
    """The row of ``key`` in rowtide's table ``table``, to be given to ``write``."""

    table: str
    key: Sequence[Scalar]
    write: Callable[[SourceRow], Awaitable[None]]
    done: asyncio.Future[None]

    def key_of(self, names: Sequence[str]) -> Key | None:
        """Return the key in columns of these names; None where they are not as many."""
        same = len(names) == len(self.key)
        return tuple(zip(names, self.key, strict=True)) if same else None


class Errands:
    """Of one life of a source; ``wake`` lets it look at them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Errand] = deque()
        self._ended = False

    async def ask(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """Return once it is done. Raises ``Rejected``, and ``Unavailable`` at the end."""
        if self._ended:
            raise follows_nothing()
        errand = Errand(table, key, write, asyncio.get_running_loop().create_future())
        self._waiting.append(errand)
        self._wake()
        await errand.done

    @property
    def first(self) -> Errand | None:
        """Return what is to be done next."""
        return self._waiting[0] if self._waiting else None

    def refuse(self) -> None:
        """Tell who asked that no such row is followed."""
        self.done(invalid(f"No table of the source becomes {self._waiting[0].table} now."))

    def done(self, failure: StoreError | None = None) -> None:
        """Tell who asked that the first is done, or why it never will be."""
        errand = self._waiting.popleft()
        if errand.done.done():
            return  # Who asked has gone.
        if failure is None:
            errand.done.set_result(None)
        else:
            errand.done.set_exception(failure)

    def end(self) -> None:
        """Do nothing any more."""
        self._ended = True
        while self._waiting:
            self.done(follows_nothing())


def follows_nothing() -> Unavailable:
    """Return what whoever asks a source is told while it doesn't follow its server."""
    return Unavailable("The source follows nothing now.")
