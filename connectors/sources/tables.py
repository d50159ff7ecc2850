"""Tables of a source's server, and their names in rowtide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_table_name

__all__ = ["Followed", "check_names", "clashes", "table_of", "warn_of_patterns"]

logger = logging.getLogger(__name__)


class Followed(Protocol):
    """A table of a server with its name in rowtide."""

    @property
    def full_name(self) -> str: ...

    @property
    def target(self) -> str: ...


T = TypeVar("T", bound=Followed)


def check_names(
    fields: Fields, wants: Callable[[str], bool], settings: Iterable[str] = ("names",)
) -> None:
    """Refuse ``settings`` of tables that are not followed, and invalid names.

    ``wants`` returns whether a table's full name is followed.
    """
    for setting in settings:
        by_table = fields.inner(setting)
        for table in by_table.names():
            if not wants(table):
                raise SettingsRefused(
                    f"{by_table.where} has {table!r}, but the source follows no such table."
                )
            if setting == "names":
                _check_name(by_table.text(table), f"{by_table.where}.{table}")


def _check_name(name: str, where: str) -> None:
    try:
        check_table_name(name, Limits())
    except Rejected as error:
        raise SettingsRefused(
            f"{where} must be 1 to 255 letters, digits and '_', no digit first, but is {name!r}."
        ) from error


def clashes(tables: Iterable[Followed]) -> list[str]:
    """Return a sentence for each table that would have the name of another in rowtide."""
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


def warn_of_patterns(patterns: Iterable[str], tables: Collection[Followed]) -> None:
    """Warn of patterns that match no table: it may be created later, or be misspelt."""
    for pattern in patterns:
        if not any(fnmatchcase(table.full_name, pattern) for table in tables):
            logger.warning("no table at the source matches %s", pattern)


def table_of(tables: Iterable[T], target: str) -> T:
    """Return the table that becomes ``target``. Raises SettingsRefused."""
    for table in tables:
        if table.target == target:
            return table
    raise SettingsRefused(f"No table of the source becomes {target}.")
