"""Which transactions a moment of the server sees, by their numbers.

A snapshot sees what committed before it was taken. The stream brings transactions in the order of
their commits in the log, which is nearly that order and not quite: a transaction is written to the
log first and becomes visible a little later, with synchronous replication much later. So places in
the log do not tell what a snapshot has; transactions' numbers do.
"""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["Visible"]

_HALF, _WHOLE = 2**31, 2**32


class Visible(NamedTuple):
    """As ``pg_current_snapshot()`` tells it: what is below ``xmin`` is seen, and what is below
    ``xmax`` and not ``running``."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Return a snapshot that the server wrote."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, xid: int) -> bool:
        """True if a committed transaction is visible; ``xid`` are its lower 32 bits.

        Numbers go round after 2^32; those of one time lie within half of that.
        """
        whole = self.xmax - _HALF + ((xid - self.xmax + _HALF) % _WHOLE)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)
