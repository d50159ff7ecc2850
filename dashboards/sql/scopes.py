"""What names mean in the two parts of a query: of rows before GROUP BY, of groups after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from rowtide.dashboards.fold.plan import ColumnSpec, GroupKey
from rowtide.dashboards.sql.aggregates import Aggregates, is_aggregate
from rowtide.dashboards.sql.expressions import Expression, Scope, at_place
from rowtide.dashboards.sql.parsing import SESSION
from rowtide.dashboards.sql.rejection import NodeRejected
from rowtide.dashboards.values.kinds import COLUMN_TYPES, convert_by_type

__all__ = ["GroupScope", "RowScope", "window_of"]


def window_of(node: exp.Expr) -> Literal["hop", "session"] | None:
    """Return which macro for windows a node calls."""
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    return "session" if name == SESSION else "hop" if name == "hop" else None


@dataclass(slots=True)
class RowScope:
    """The declared columns of a source. ``used`` are those that the query reads, in places.

    Names are compared without case, as in DuckDB.
    """

    types: Mapping[str, str]
    qualifiers: Sequence[str]
    used: list[ColumnSpec] = field(default_factory=list)

    def find(self, node: exp.Expr) -> Expression | None:
        """Return a column. See ``Scope.find``."""
        if (window := window_of(node)) is not None:
            raise NodeRejected(node, f"{window} is supported as a whole item of SELECT or GROUP BY")
        if is_aggregate(node):
            raise NodeRejected(node, "an aggregate is not allowed here")
        if not isinstance(node, exp.Column):
            return None
        self._check_qualifier(node)
        name = self.name_of(node)
        if name is None:
            known = ", ".join(self.types)
            raise NodeRejected(
                node, f"unknown column {node.name}: declare its type; declared are {known}"
            )
        word = self.types[name]
        names = [column.name for column in self.used]
        if name not in names:
            self.used.append(ColumnSpec(name, word, convert_by_type(word)))
            names.append(name)
        return at_place(names.index(name), COLUMN_TYPES[word])

    def name_of(self, column: exp.Column) -> str | None:
        """Return the declared name that a column of the query means."""
        return self.find_declared(column.name)

    def find_declared(self, name: str) -> str | None:
        """Return a declared name that is equal without case."""
        return next((own for own in self.types if own.lower() == name.lower()), None)

    def _check_qualifier(self, node: exp.Column) -> None:
        qualifier = node.table
        if node.args.get("db") or (qualifier and qualifier.lower() not in self.qualifiers):
            raise NodeRejected(node, f"unknown table {qualifier}: a panel reads one table")


@dataclass(slots=True)
class GroupScope:
    """Keys and aggregates of a group. ``aliases`` are those of SELECT, for HAVING and ORDER BY.

    ``uses_aggregate`` and ``uses_approximation`` become true when an aggregate, or an approximate
    one, is found.
    """

    keys: Sequence[tuple[exp.Expr, GroupKey]]
    aggregates: Aggregates
    aliases: dict[str, Expression] = field(default_factory=dict)
    uses_aggregate: bool = False
    uses_approximation: bool = False

    def find(self, node: exp.Expr) -> Expression | None:
        """Return a key, an aggregate or an alias. See ``Scope.find``."""
        for place, (key_node, key) in enumerate(self.keys):
            if node == key_node:
                return at_place(place, key.kind)
        if is_aggregate(node):
            place = self.aggregates.place_of(node)
            result = self.aggregates.results[place]
            self.uses_aggregate = True
            self.uses_approximation |= result.is_approximate
            return at_place(len(self.keys) + place, result.kind)
        if isinstance(node, exp.Column):
            return self._find_alias(node)
        if (window := window_of(node)) is not None:
            raise NodeRejected(node, f"{window} must be in GROUP BY as it is here")
        return None

    def _find_alias(self, node: exp.Column) -> Expression:
        aliased = self.aliases.get(node.name.lower()) if not node.table else None
        if aliased is not None:
            return aliased
        rows: Scope = self.aggregates.rows
        rows.find(node)  # Raises the better error for a column that does not exist.
        raise NodeRejected(node, f"{node.name} must be in GROUP BY or in an aggregate")
