"""Single rows that a running source must copy again, each in its turn."""

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
    """A request to copy the row of ``key`` in rowtide's table ``table``, by calling ``write``."""

    table: str
    key: Sequence[Scalar]
    write: Callable[[SourceRow], Awaitable[None]]
    done: asyncio.Future[None]

    def key_of(self, names: Sequence[str]) -> Key | None:
        """Return the key with these column names, None if their number differs."""
        same = len(names) == len(self.key)
        return tuple(zip(names, self.key, strict=True)) if same else None


class Errands:
    """The requests of one life of a source. ``wake`` makes it look for them."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Errand] = deque()
        self._ended = False

    async def ask(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """Request a copy and wait for it. Raises ``Rejected``, and ``Unavailable`` at the end."""
        if self._ended:
            raise follows_nothing()
        errand = Errand(table, key, write, asyncio.get_running_loop().create_future())
        self._waiting.append(errand)
        self._wake()
        await errand.done

    @property
    def first(self) -> Errand | None:
        """The next request, None if there is none."""
        return self._waiting[0] if self._waiting else None

    def refuse(self) -> None:
        """Fail the first request: the source follows no such row."""
        self.finish(invalid(f"No table of the source becomes {self._waiting[0].table} now."))

    def finish(self, failure: StoreError | None = None) -> None:
        """Complete the first request, or fail it with ``failure``."""
        errand = self._waiting.popleft()
        if errand.done.done():
            return  # The requester was cancelled.
        if failure is None:
            errand.done.set_result(None)
        else:
            errand.done.set_exception(failure)

    def end(self) -> None:
        """Fail all requests, also later ones."""
        self._ended = True
        while self._waiting:
            self.finish(follows_nothing())


def follows_nothing() -> Unavailable:
    """Return the error of requests made while the source does not follow its server."""
    return Unavailable("The source does not follow its server now.")
