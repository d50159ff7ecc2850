"""One planted fault, and how it is planted for a while."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

__all__ = ["Mutation", "plant"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault: its description, and its replacements: (owner, name, replacement)."""

    name: str
    patches: Sequence[tuple[Any, str, Any]]
    seeds_max: int = 120
    """Within so many it is found: a few times as many as it took when it was planted."""
    every: int = 1
    """Of which only these are tried: every second one has sources."""
    behind: int = 0
    """They are counted from here on: workers keep copies only in runs of high seeds."""


@contextmanager
def plant(mutation: Mutation) -> Iterator[None]:
    """Plant a fault for a while."""
    with ExitStack() as stack:
        for owner, name, replacement in mutation.patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield
