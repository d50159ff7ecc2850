"""The transactions that a moment of the server sees, by number.

A snapshot sees what committed before it was taken. The stream has transactions in the
order of their commits in the log, which is nearly that order. A transaction is written to
the log first and becomes visible a little later, with synchronous replication much later.
So LSNs do not show what a snapshot has, but transaction numbers do.
"""

from __future__ import annotations

from typing import NamedTuple, Self

__all__ = ["Visible"]

_HALF, _WHOLE = 2**31, 2**32


class Visible(NamedTuple):
    """The content of ``pg_current_snapshot()``.

    It sees numbers below ``xmin``, and those below ``xmax`` that are not ``running``.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the snapshot of the server's text."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, xid: int) -> bool:
        """True if a committed transaction is visible. ``xid`` has its lower 32 bits.

        Numbers wrap after 2^32. Those of one time lie within half of that.
        """
        whole = self.xmax - _HALF + ((xid - self.xmax + _HALF) % _WHOLE)
        return whole < self.xmin or (whole < self.xmax and whole not in self.running)
