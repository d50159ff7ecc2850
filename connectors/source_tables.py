"""Tables of a source's server, and the names that they get in rowtide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from rowtide.connectors.fields import SettingsRefused

__all__ = ["Followed", "clashes", "table_of"]


class Followed(Protocol):
    """A table of a server, and the name that it gets in rowtide."""

    @property
    def full_name(self) -> str: ...

    @property
    def target(self) -> str: ...


T = TypeVar("T", bound=Followed)


def clashes(tables: Iterable[Followed]) -> list[str]:
    """Return a sentence for each table that would get another one's name in rowtide."""
    by_target: dict[str, str] = {}
    faults = []
    for table in tables:
        other = by_target.setdefault(table.target, table.full_name)
        if other != table.full_name:
            faults.append(
                f"{other} and {table.full_name} would both be the table {table.target}: give one "
                f"of them another name under 'names'."
            )
    return faults


def table_of(tables: Iterable[T], target: str) -> T:
    """Return the table that becomes ``target``. Raises SettingsRefused."""
    for table in tables:
        if table.target == target:
            return table
    raise SettingsRefused(f"No table of the source becomes {target}.")
