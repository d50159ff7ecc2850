"""How far the life of one shard's owner is."""

from __future__ import annotations

from rowtide.core.values.errors import Unavailable

__all__ = ["OwnerLife"]


class OwnerLife:
    """Whether an owner takes changes, and how it has ended.

    It takes none before ``open``, nor while it drains. A drained one may open again; one that is
    retired, or closed, never does.
    """

    __slots__ = ("failure", "is_closed", "is_open", "is_retired")

    def __init__(self) -> None:
        self.is_open = False
        self.is_retired = False
        """Whether the log has ended: its task ends once everyone is answered."""
        self.is_closed = False
        """Whether its task has ended."""
        self.failure: Exception | None = None
        """What ended its task; None where nothing failed."""

    def require_open(self) -> None:
        """Raise ``Unavailable`` unless changes are taken."""
        if not self.is_open:
            raise Unavailable

    def close(self) -> None:
        """Note that the task has ended."""
        self.is_open = False
        self.is_closed = True
