"""Which columns a table has had so far, and the types of their values.

rowtide's columns come as they come; a schema wants them named and typed. Columns and types are only
ever added, never taken away, so a later schema reads what an earlier one wrote. Types stand in the
order in which they were met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rowtide.connectors.fields import SettingsRefused
from rowtide.core import schema
from rowtide.core.schema import KeyColumn
from rowtide.core.variant import Scalar

__all__ = ["KEY_TYPES", "TYPES", "Columns", "declared", "type_of"]

TYPES = ("boolean", "integer", "double", "string", "binary")
KEY_TYPES = {schema.INTEGER: "integer", schema.STRING: "string", schema.BINARY: "binary"}
_TYPE_OF: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "double",
    str: "string",
    bytes: "binary",
}


def type_of(value: Scalar) -> str:
    """Return the name of a value's type."""
    return _TYPE_OF[type(value)]


def declared(columns: Mapping[str, object], where: str) -> dict[str, tuple[str, ...]]:
    """Return the columns that settings declare (name: type). Raises SettingsRefused."""
    for name, kind in columns.items():
        if kind not in TYPES:
            raise SettingsRefused(f"{where}.{name} must be one of {', '.join(TYPES)}, not {kind!r}")
    return {str(name): (str(kind),) for name, kind in columns.items()}


class Columns:
    """The attribute columns of one table."""

    def __init__(self, key: Iterable[KeyColumn], known: Mapping[str, tuple[str, ...]]) -> None:
        self.key = {column.name: KEY_TYPES[column.type] for column in key}
        self.types: dict[str, tuple[str, ...]] = dict(known)
        self.version = 0
        """Changes with every change of the types."""

    def learn(
        self,
        rows: Iterable[Mapping[str, Scalar] | None],
        kind_of: Callable[[Scalar], str] = type_of,
    ) -> bool:
        """Take over what rows show; return whether it is new."""
        types, before = self.types, self.version
        for columns in rows:
            for name, value in (columns or {}).items():
                kind = kind_of(value)
                if kind not in types.get(name, ()) and name not in self.key:
                    types[name] = (*types.get(name, ()), kind)
                    self.version += 1
        return self.version != before

    def merge(self, known: Mapping[str, tuple[str, ...]]) -> None:
        """Take over what another process has learned; its order of types stands first."""
        for name, kinds in known.items():
            ours = self.types.get(name, ())
            both = (*kinds, *(kind for kind in ours if kind not in kinds))
            if both != ours:
                self.types[name] = both
                self.version += 1
