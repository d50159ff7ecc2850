"""What a form says of a row, as one conditional write.

A form carries a digest of each value that it showed. The console reads the row once more and
refuses the change if a digest differs. Then it writes under the condition that these columns still
have the values that it read. So a change is applied only to the row that the person saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_

from rowtide.client.predicates import Predicate, column
from rowtide.client.row_values import RowDict
from rowtide.console.pages.cell_text import BadValueText, digest_of, parse_value
from rowtide.console.pages.row_reading import BrowsedTable
from rowtide.core.values.variant import Scalar

__all__ = ["CONDITIONS_MAX", "RowChangeForm", "RowHasChanged", "parse_form", "same_as"]

CONDITIONS_MAX = 30
"""Columns of one condition; the worker allows 32 nodes in a filter. A digest checks the others."""
SHOWN_BYTES_MAX = 512 * 1024


class RowHasChanged(Exception):
    """The row is not the one that the form showed. ``columns`` are those that differ."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__(", ".join(columns))
        self.columns = list(columns)


@dataclass(slots=True)
class RowChangeForm:
    """A change of one row. ``shown`` has the digests of the columns that the person saw."""

    shown: dict[str, str]
    was_there: bool
    puts: dict[str, Scalar] = field(default_factory=dict)
    deletes: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Return the columns that change."""
        return [*self.puts, *self.deletes]

    def check_shown(self, row: RowDict, names: Sequence[str]) -> None:
        """Check that columns of the row are as they were shown. Raises ``RowHasChanged``."""
        differing = [
            name
            for name in names
            if self.shown.get(name) != (digest_of(row[name]) if name in row else None)
        ]
        if differing:
            raise RowHasChanged(differing)


def parse_form(shape: BrowsedTable, fields: Mapping[str, str]) -> RowChangeForm:
    """Return the change that a form asks for. Raises ``BadValueText``.

    Column N has the fields ``nameN``, ``kindN``, ``valueN`` and, to delete it, ``deleteN``. A
    column whose value is the one that was shown does not change.
    """
    form = RowChangeForm(_parse_shown(fields.get("shown", "")), fields.get("was_there") == "1")
    numbers = [name.removeprefix("name") for name in fields if name.startswith("name")]
    for number in numbers:
        name = fields[f"name{number}"]
        if not name:
            continue
        if name in shape.key or name in shape.hidden:
            raise BadValueText("rows.not_this_column", column=name)
        if name in form.columns:
            raise BadValueText("rows.column_twice", column=name)
        if fields.get(f"delete{number}"):
            form.deletes.append(name)
        elif f"value{number}" in fields:
            value = parse_value(fields.get(f"kind{number}", ""), fields[f"value{number}"])
            if digest_of(value) != form.shown.get(name):
                form.puts[name] = value
    return form


def same_as(row: RowDict, names: Sequence[str]) -> Predicate | None:
    """Return the condition that columns are as in a row that was read; None for no columns."""
    tests = [
        column(name) == row[name] if name in row else column(name).is_missing()
        for name in names[:CONDITIONS_MAX]
    ]
    return reduce(and_, tests) if tests else None


def _parse_shown(text: str) -> dict[str, str]:
    """Return the digests by column that a form carries. Raises ``BadValueText``."""
    if len(text) > SHOWN_BYTES_MAX:
        raise BadValueText("rows.bad_form")
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadValueText("rows.bad_form") from error
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise BadValueText("rows.bad_form")
    return found
