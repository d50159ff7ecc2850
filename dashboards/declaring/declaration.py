"""What a dashboard is declared to be: a part of a YAML file, stored as a document.

    dashboards:
      departures:
        table: flights
        types: {origin: text, dep_delay: double}
        keep: 48 hours
        panels:
          late: {title: Late, query: "SELECT origin, avg(dep_delay) AS m FROM flights GROUP BY ALL"}

Errors have line and column of the file, also those of a query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_column_name, check_table_name
from rowtide.dashboards.declaring.marked_values import (
    DeclarationRejected,
    MarkedMapping,
    read_yaml,
)
from rowtide.dashboards.fold.partial import PanelBounds
from rowtide.dashboards.fold.plan import PanelPlan
from rowtide.dashboards.sql.rejection import QueryRejected
from rowtide.dashboards.sql.source_table import CHANGE_COLUMNS, SourceTable
from rowtide.dashboards.values.kinds import COLUMN_TYPES

__all__ = [
    "CHARTS",
    "Chart",
    "Dashboard",
    "Panel",
    "parse_dashboards",
    "parse_stored",
]

Chart = Literal["lines", "bars", "table", "number"]
CHARTS: tuple[Chart, ...] = ("lines", "bars", "table", "number")

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_LENGTH = re.compile(r"([1-9][0-9]{0,8}) (second|minute|hour|day)s?")
_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}

DASHBOARDS_MAX = 100
PANELS_MAX = 60
"""A change touches at most two groups of a panel. These must fit one group of the log."""

TYPES_MAX = 128
TITLE_MAX = 200
UNIT_MAX = 20
KEEP_S_MAX = 3660 * 86_400
GROUPS_MAX = 100_000
VALUES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Panel:
    """One query and how it is shown. ``is_expiring``: ``keep`` ends some of its groups."""

    name: str
    title: str
    chart: Chart
    unit: str
    query: str
    bounds: PanelBounds
    plan: PanelPlan

    @property
    def is_expiring(self) -> bool:
        """True if a group's key is the start of a bucket or a hop."""
        return any(key.find_end is not None for key in self.plan.keys)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Panels over one table. ``keep_us`` is None if no group ends."""

    name: str
    table: SourceTable
    panels: Mapping[str, Panel]
    keep_us: int | None
    lease_ms: int
    document: Mapping[str, object]

    @property
    def text(self) -> str:
        """The document as it is stored. Equal texts mean equal dashboards."""
        return json.dumps(self.document, ensure_ascii=False)

    @property
    def described(self) -> str:
        """What the dashboard does, in a few words."""
        count = len(self.panels)
        return f"{count} panel{'s' if count != 1 else ''} over {self.table.name}"

    @property
    def columns(self) -> list[str]:
        """The columns that the panels read, of the key or not, without those of changes."""
        plans = [panel.plan for panel in self.panels.values()]
        names = {column.name for plan in plans for column in plan.columns}
        return sorted(names - (CHANGE_COLUMNS.keys() if self.is_of_changes else set()))

    @property
    def is_of_changes(self) -> bool:
        """True if the panels count changes, not rows."""
        return any(panel.plan.source == "changes" for panel in self.panels.values())


def parse_dashboards(
    text: str, where: str, rejected: list[DeclarationRejected] | None = None
) -> list[Dashboard]:
    """Return what a YAML text declares, in its order. Raises ``DeclarationRejected``.

    Errors of panels are added to ``rejected``, if it is given, and the other panels are returned.
    """
    content = read_yaml(text, where)
    declared = content.mapping("dashboards")
    content.reject_unknown()
    names = list(declared.names())
    if not 1 <= len(names) <= DASHBOARDS_MAX:
        reason = f"dashboards must have 1 to {DASHBOARDS_MAX} names, but has {len(names)}"
        raise declared.reject(reason)
    return [_parse_dashboard(name, declared, rejected) for name in names]


@lru_cache(maxsize=256)
def parse_stored(name: str, text: str) -> Dashboard:
    """Return the dashboard of a stored document. Raises ``DeclarationRejected``."""
    # JSON is YAML, so one reader is enough.
    declared = read_yaml(json.dumps({name: json.loads(text)}, ensure_ascii=False), name)
    return _parse_dashboard(name, declared)


def _parse_dashboard(
    name: str, declared: MarkedMapping, rejected: list[DeclarationRejected] | None = None
) -> Dashboard:
    _check_name("dashboard", name, declared)
    fields = declared.mapping(name)
    table = SourceTable(_table_of(fields), _types_of(fields.mapping("types")))
    keep_us = _keep_of(fields) if fields.has("keep") else None
    lease_ms = fields.integer("lease_ms", 5000, least=500, most=60_000)
    listed = fields.mapping("panels")
    names = list(listed.names())
    if not 1 <= len(names) <= PANELS_MAX:
        raise listed.reject(f"{listed.path} must have 1 to {PANELS_MAX} panels, not {len(names)}")
    panels: dict[str, Panel] = {}
    for panel in names:
        try:
            panels[panel] = _parse_panel(panel, listed, table)
        except DeclarationRejected as error:
            if rejected is None:
                raise
            rejected.append(error)
    fields.reject_unknown()
    sources = {panel.plan.source for panel in panels.values()}
    if len(sources) > 1:
        raise listed.reject(
            f"{listed.path}: panels over rows and panels over changes('{table.name}') must be in "
            "two dashboards"
        )
    document = _document_of(table, panels, keep_us, lease_ms)
    return Dashboard(name, table, panels, keep_us, lease_ms, document)


def _table_of(fields: MarkedMapping) -> str:
    found = fields.find_text("table")
    try:
        check_table_name(found.text, Limits())
    except Rejected as error:
        raise found.reject(
            f"{fields.path}.table must name a table, 1 to 255 letters, digits and '_', no digit "
            f"first, but is {found.text[:80]!r}"
        ) from error
    return found.text


def _types_of(fields: MarkedMapping) -> dict[str, str]:
    names = list(fields.names())
    if not 1 <= len(names) <= TYPES_MAX:
        raise fields.reject(f"{fields.path} must have 1 to {TYPES_MAX} columns, not {len(names)}")
    found: dict[str, str] = {}
    for name in names:
        try:
            check_column_name(name, Limits())
        except Rejected as error:
            reason = f"{fields.path}: {name[:80]!r} is no name of a column"
            raise fields.reject(reason, name) from error
        other = next((known for known in found if known.lower() == name.lower()), None)
        if other is not None:
            reason = f"{fields.path}: SQL cannot tell the columns {other} and {name} apart"
            raise fields.reject(reason, name)
        found[name] = fields.choice(name, tuple(COLUMN_TYPES))
    return found


def _check_name(what: str, name: str, listed: MarkedMapping) -> None:
    if not _NAME.fullmatch(name):
        raise listed.reject(
            f"a {what} is named by 1 to 63 lower-case letters, digits, '-' and '_', "
            f"not {name[:80]!r}",
            name,
        )


def _keep_of(fields: MarkedMapping) -> int:
    """Return ``keep`` in microseconds."""
    found = fields.find_text("keep")
    parts = _LENGTH.fullmatch(found.text)
    length_s = int(parts[1]) * _UNITS_S[parts[2]] if parts else 0
    if not 1 <= length_s <= KEEP_S_MAX:
        raise found.reject(
            f"{fields.path}.keep must be a whole number of seconds, minutes, hours or days, at "
            f"most {KEEP_S_MAX // 86_400:,} days, such as '48 hours', but is {found.text[:80]!r}"
        )
    return length_s * 1_000_000


def _parse_panel(name: str, listed: MarkedMapping, table: SourceTable) -> Panel:
    # The parser of SQL takes 30 MiB: a console without dashboards goes without it.
    from rowtide.dashboards.sql.planner import plan_query

    _check_name("panel", name, listed)
    fields = listed.mapping(name)
    title = fields.text("title", name, most=TITLE_MAX)
    chart = cast(Chart, fields.choice("chart", CHARTS, "table"))
    unit = fields.text("unit", "", most=UNIT_MAX)
    bounds = PanelBounds(
        fields.integer("groups_max", 10_000, least=1, most=GROUPS_MAX),
        fields.integer("values_max", 10_000, least=1, most=VALUES_MAX),
    )
    query = fields.find_text("query")
    fields.reject_unknown()
    try:
        plan = plan_query(query.text, table)
    except QueryRejected as error:
        reason = f"{fields.path}.query: {error.reason}"
        raise query.reject_at(error.line, error.column, reason) from error
    return Panel(name, title, chart, unit, query.text, bounds, plan)


def _document_of(
    table: SourceTable, panels: Mapping[str, Panel], keep_us: int | None, lease_ms: int
) -> dict[str, object]:
    """Return a dashboard as it is stored, with every default."""
    document: dict[str, object] = {
        "table": table.name,
        "types": dict(table.types),
        "lease_ms": lease_ms,
        "panels": {
            panel.name: {
                "title": panel.title,
                "chart": panel.chart,
                **({"unit": panel.unit} if panel.unit else {}),
                "query": panel.query,
                "groups_max": panel.bounds.groups_max,
                "values_max": panel.bounds.values_max,
            }
            for panel in panels.values()
        },
    }
    if keep_us is not None:
        document["keep"] = f"{keep_us // 1_000_000} seconds"
    return document
