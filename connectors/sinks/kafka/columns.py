"""The columns of a table so far, and the types of their values.

rowtide's columns vary by row, but a schema needs names and types. Columns and types are
only added, never removed, so a later schema reads what an earlier one wrote. Types are in
the order of their first use. If the settings declare the type of an attribute
(``declared_types.py``), it has that kind and its values are converted to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rowtide.connectors.declared_types import (
    DeclaredTypes,
    LogicalType,
    parse_type,
    refuse_key_columns,
)
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import TableShape
from rowtide.core.values import schema
from rowtide.core.values.variant import Scalar

__all__ = [
    "KEY_TYPES",
    "NOTHING",
    "TYPES",
    "Columns",
    "DeclaredColumns",
    "parse_sink_columns",
    "type_of",
]

TYPES = ("boolean", "integer", "double", "string", "binary")
WORDS = {word: word for word in ("decimal", "date", "time", "timestamp")}
"""Words of logical types, see ``declared_types.py``."""
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


class DeclaredColumns(NamedTuple):
    """The columns that settings declare, with a plain type or a logical one."""

    plain: Mapping[str, str]
    logical: DeclaredTypes


NOTHING = DeclaredColumns({}, {})


def parse_sink_columns(fields: Fields) -> DeclaredColumns:
    """Return the columns that settings declare (name: type). Raises SettingsRefused."""
    plain: dict[str, str] = {}
    logical: dict[str, LogicalType] = {}
    for name in fields.names():
        text = fields.text(name)
        made = parse_type(text, WORDS)
        if made is not None:
            logical[name] = made
        elif text in TYPES:
            plain[name] = text
        else:
            examples = "DECIMAL(10,2), DATE, TIME, TIMESTAMP"
            raise SettingsRefused(
                f"{fields.where}.{name} must be one of {', '.join(TYPES)}, {examples}, "
                f"but is {text!r}."
            )
    return DeclaredColumns(plain, logical)


class Columns:
    """The attribute columns of one table. Raises SettingsRefused for a logical type of a
    key column.
    """

    def __init__(self, table: TableShape, declared: DeclaredColumns = NOTHING) -> None:
        refuse_key_columns(declared.logical, table)
        self.key = {column.name: KEY_TYPES[column.type] for column in table.key}
        self.logical = declared.logical
        self.types: dict[str, tuple[str, ...]] = {
            **{name: (kind,) for name, kind in declared.plain.items()},
            **{name: (made.kind,) for name, made in declared.logical.items()},
        }
        self.version = 0
        """Changes with every change of the types."""

    def learn(
        self,
        rows: Iterable[Mapping[str, Scalar] | None],
        kind_of: Callable[[Scalar], str] = type_of,
    ) -> bool:
        """Add the columns and types of rows. True if any is new."""
        types, before = self.types, self.version
        for columns in rows:
            for name, value in (columns or {}).items():
                if name in self.key or name in self.logical:
                    continue
                kind = kind_of(value)
                if kind not in types.get(name, ()):
                    types[name] = (*types.get(name, ()), kind)
                    self.version += 1
        return self.version != before

    def merge(self, known: Mapping[str, tuple[str, ...]]) -> None:
        """Add what another process has learned. Its order of types comes first."""
        for name, kinds in known.items():
            ours = self.types.get(name, ())
            both = (*kinds, *(kind for kind in ours if kind not in kinds))
            if both != ours:
                self.types[name] = both
                self.version += 1
