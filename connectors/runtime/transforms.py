"""What a connector makes of each row before its sink gets it: filter, columns, a
function.

A row that the filter or the function leaves out is sent to the sink as deleted. So a row
that no longer matches leaves the target too. The stamp is always the row's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import SinkRow, TableShape
from rowtide.connectors.runtime.row_filter import RowTest, parse_test
from rowtide.core.values.variant import Scalar

__all__ = ["Function", "Transforms"]

Function = Callable[[SinkRow], SinkRow | Sequence[SinkRow] | None]


@dataclass(frozen=True, slots=True)
class Transforms:
    """The transforms in their order: ``test``, ``only`` or ``without``, ``rename``,
    ``function``.

    ``only`` and ``without`` name columns outside the key, which is always kept.
    ``rename`` may name key columns too. ``function`` is ``module:name``.
    """

    test: RowTest | None = None
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict)
    function: str = ""

    @classmethod
    def parse(cls, fields: Fields) -> Transforms:
        """Return the transforms of a connector's settings. Raises ``SettingsRefused``."""
        columns = fields.inner("columns")
        only, without = frozenset(columns.texts("only")), frozenset(columns.texts("without"))
        rename = _names(columns, "rename")
        columns.refuse_unknown()
        if only and without:
            raise SettingsRefused(f"{columns.where}: only and without exclude each other.")
        text = fields.text("filter", "")
        test = parse_test(text, f"{fields.where}.filter") if text else None
        function = fields.text("transform", "")
        if function and not all(function.partition(":")):
            raise SettingsRefused(
                f"{fields.where}.transform must be MODULE:FUNCTION, but is {function!r}."
            )
        return cls(test, only, without, rename, function)

    @property
    def any(self) -> bool:
        """True if there is any transform."""
        return bool(self.test or self.only or self.without or self.rename or self.function)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The columns that are needed beside the key's. Empty: all are."""
        if not self.only:
            return ()
        return tuple(sorted(self.only | (self.test.columns if self.test else frozenset())))

    def load(self) -> Function | None:
        """Import the function. Raises ``SettingsRefused``."""
        if not self.function:
            return None
        module, _, name = self.function.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except Exception as error:
            raise SettingsRefused(
                f"The function {self.function} can't be imported: {error}."
            ) from error
        if not callable(found):
            raise SettingsRefused(f"{self.function} is not a function.")
        function: Function = found
        return function

    def shape(self, table: TableShape) -> TableShape:
        """Return the table as the sink sees it."""
        rename = self.rename
        return TableShape(
            table.name, tuple(c._replace(name=rename.get(c.name, c.name)) for c in table.key)
        )

    def make_rows(self, row: SinkRow, function: Function | None) -> Iterable[SinkRow]:
        """Return what the sink gets of a row. Raises what the function raises.

        Raises ``ValueError`` for two columns of one name, and ``TypeError`` if the
        function returns anything but rows.
        """
        columns = row.columns
        if columns is not None and (self.test or self.only or self.without or self.rename):
            columns = self._columns(row, columns)
        key = row.key
        if self.rename:
            key = tuple((self.rename.get(name, name), value) for name, value in key)
        before = row.before
        if before is not None and (self.only or self.without or self.rename):
            before = self._choose_columns(before)
        if columns is not row.columns or key is not row.key or before is not row.before:
            row = replace(row, key=key, columns=columns, before=before)
        if function is None:
            return (row,)
        # The function gets a copy, so it may change its row.
        made = function(replace(row, columns=None if columns is None else dict(columns)))
        if made is None:
            return (replace(row, columns=None),)
        return (made,) if isinstance(made, SinkRow) else _all_rows(made)

    def _columns(self, row: SinkRow, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar] | None:
        if self.test is not None and not self.test.holds({**columns, **dict(row.key)}):
            return None
        return self._choose_columns(columns)

    def _choose_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        if self.only:
            columns = {name: value for name, value in columns.items() if name in self.only}
        elif self.without:
            columns = {n: value for n, value in columns.items() if n not in self.without}
        if self.rename:
            renamed = {self.rename.get(name, name): value for name, value in columns.items()}
            if len(renamed) < len(columns):
                names = [self.rename.get(name, name) for name in columns]
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"columns.rename gives two columns the name {twice!r}")
            return renamed
        return columns


def _all_rows(made: Iterable[object]) -> list[SinkRow]:
    """Return the rows that a user's function returned. Raises ``TypeError`` for anything else."""
    if isinstance(made, Iterable) and not isinstance(made, Mapping | str | bytes):
        found = list(made)
        rows = [row for row in found if isinstance(row, SinkRow)]
        if len(rows) == len(found):
            return rows
    raise TypeError(f"it returned a {type(made).__name__}, not a row, a list of rows, or None")


def _names(fields: Fields, name: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for old, new in fields.mapping(name).items():
        if not isinstance(new, str) or not new:
            raise SettingsRefused(f"{fields.where}.{name}.{old} must be a name, but is {new!r}.")
        found[str(old)] = new
    if len(set(found.values())) < len(found):
        raise SettingsRefused(f"{fields.where}.{name} gives two columns one name.")
    return found
