"""How far a source has copied its tables, as its checkpoint stores it: JSON with a form
number.

It names only what is durable in rowtide. Positions of every kind begin with the epoch, in
four bytes. So positions of a later epoch are above all earlier ones, also those of
another kind of source.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from rowtide.connectors.fields import SettingsRefused
from rowtide.core.values.errors import invalid

__all__ = [
    "SourceProgress",
    "TableProgress",
    "find_incomplete",
    "keeps_values",
]

_FORM = 1


@dataclass(slots=True)
class TableProgress:
    """How far one table is.

    ``columns`` has the identity of each column. While these stay the same, so do the
    rows' values. ``cursor`` is where the last chunk ended, None before the first.
    ``copied``: the copy is done. ``sweep``: rowtide may have rows that the source lacks,
    and they must be searched.
    """

    columns: list[list[str]] = field(default_factory=list)
    cursor: list[str] | None = None
    copied: bool = False
    sweep: bool = False

    @property
    def whole(self) -> bool:
        """True if nothing is left to copy."""
        return self.copied and not self.sweep

    @property
    def begun(self) -> bool:
        """True if rowtide may have some rows of the table."""
        return self.copied or self.cursor is not None

    def restart(self, *, sweep: bool) -> None:
        """Copy the table again from the start."""
        self.cursor, self.copied = None, False
        self.sweep = self.sweep or sweep


Table = TypeVar("Table", bound=TableProgress)


@dataclass(slots=True)
class SourceProgress(ABC, Generic[Table]):
    """What a source stores of all its tables. Each kind adds its position in the server's
    log.

    ``epoch`` and ``run`` are parts of the positions of its rows. ``kind`` is the kind of
    source.
    """

    kind: ClassVar[str]

    epoch: int = 0
    run: int = 0
    tables: dict[str, Table] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the checkpoint of bytes from ``encode``, a new one for no bytes.

        For another kind of source return a new checkpoint with its epoch, for the next
        epoch. Raises SettingsRefused for bytes that are no checkpoint of ours.
        """
        if not text:
            return cls()
        found = _parse(text)
        if found.pop("kind", "") != cls.kind:
            return cls(epoch=found["epoch"], run=found["run"])
        return cls.of(found)

    @classmethod
    @abstractmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Return the checkpoint of values from ``parts``."""

    @abstractmethod
    def parts(self) -> Mapping[str, Any]:
        """Return the checkpoint as values for JSON."""

    def encode(self) -> bytes:
        """Return the checkpoint as bytes."""
        whole = {**self.parts(), "kind": self.kind, "form": _FORM}
        return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()

    def restart(self, tables: Iterable[str], *, sweep: bool) -> None:
        """Copy these known tables again from the start."""
        for name in tables:
            self.tables[name].restart(sweep=sweep)

    @classmethod
    def begin_again(
        cls, text: bytes, tables: Collection[str] = (), *, target: Callable[[str], str]
    ) -> bytes:
        """Return the checkpoint that makes a source copy and sweep tables again.

        ``tables`` are full names, or names in rowtide as ``target`` makes them. Without
        any all tables are copied. Raises ``Rejected`` for a table that is not known.
        """
        kept = cls.parse(text)
        named = [_find_table(table, kept.tables, target) for table in tables]
        if not text:
            return text
        kept.restart(named or kept.tables, sweep=True)
        return kept.encode()


def _find_table(table: str, known: Iterable[str], target: Callable[[str], str]) -> str:
    """Return the full name of a table, given that name or the one in rowtide."""
    names = sorted(known)
    if table in names:
        return table
    found = [name for name in names if target(name) == table]
    if len(found) == 1:
        return found[0]
    if not names:
        raise invalid(f"The source follows no table yet: it copies {table} once it does.")
    if found:
        raise invalid(f"Several tables become {table}: give one of {', '.join(found)}.")
    raise invalid(f"The source follows no table {table}; it follows {', '.join(names)}.")


def find_incomplete(progress: Mapping[str, TableProgress], tables: Container[str]) -> str | None:
    """Return the first table that is not completely copied."""
    for name, table in progress.items():
        if name in tables and not table.whole:
            return name
    return None


class Identified(Protocol):
    """A column."""

    @property
    def identity(self) -> list[str]: ...


C = TypeVar("C", bound=Identified)


def keeps_values(
    former: Iterable[list[str]], columns: Iterable[C], filled: Callable[[C], bool]
) -> bool:
    """True if old rows keep their values with these columns.

    ``filled`` returns whether old rows may have a value in an added column.
    """
    present = {tuple(column.identity): column for column in columns}
    known = [tuple(identity) for identity in former]
    added = [column for identity, column in present.items() if identity not in known]
    return all(identity in present for identity in known) and not any(map(filled, added))


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
        form = found.pop("form")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsRefused(
            f"A source of another kind had this connector's name. Its checkpoint can't be read: "
            f"give the connector another name. The checkpoint is {text[:100]!r}."
        ) from error
    if form != _FORM:
        raise ValueError(f"The checkpoint was written by another version: {text!r}")
    return found
