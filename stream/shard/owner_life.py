"""The state of one shard owner's life."""

from __future__ import annotations

from rowtide.core.values.errors import Unavailable

__all__ = ["OwnerLife"]


class OwnerLife:
    """If an owner accepts changes, and how it has ended.

    It accepts none before ``open``, nor while it drains. A drained one may open again; a
    retired or closed one never does.
    """

    __slots__ = ("failure", "is_closed", "is_open", "is_retired")

    def __init__(self) -> None:
        self.is_open = False
        self.is_retired = False
        """True if the log has ended: the owner's task ends once all changes are answered."""
        self.is_closed = False
        """True if its task has ended."""
        self.failure: Exception | None = None
        """The error that ended its task; None if there was none."""

    def require_open(self) -> None:
        """Raise ``Unavailable`` unless changes are accepted."""
        if not self.is_open:
            raise Unavailable

    def close(self) -> None:
        """Record that the task has ended."""
        self.is_open = False
        self.is_closed = True
