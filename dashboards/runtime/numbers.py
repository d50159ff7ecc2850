"""The numbers of a dashboard with the positions at which they are exact.

Numbers are the sum of the parts of all source shards. Each part is of one moment, and stands for
every change of its shard up to its position. So the whole is exact at these positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.core.records.position import decode_position
from rowtide.dashboards.declaring.declaration import Panel
from rowtide.dashboards.fold.answer import PanelAnswer, answer
from rowtide.dashboards.runtime.shard_fold import read_partial
from rowtide.dashboards.runtime.state_rows import PartPosition, StateTable, part_of
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild, StoredDashboard
from rowtide.dashboards.values.kinds import SqlType, Value

__all__ = ["DashboardNumbers", "json_value", "numbers_document", "read_numbers"]

EXACT_MAX = 2**53
"""Integers beyond it are texts in JSON: a browser would round them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DashboardNumbers(NamedTuple):
    """Answers by panel, exact at ``positions``, by shard. ``ended_us``: groups before it ended."""

    build: DashboardBuild
    positions: Mapping[str, PartPosition]
    panels: Mapping[str, PanelAnswer]
    ended_us: int | None

    @property
    def stamp(self) -> int:
        """The highest commit stamp that is included."""
        return max((at.stamp for at in self.positions.values()), default=0)


async def read_numbers(
    endpoint: Endpoint, build: DashboardBuild, *, limited: bool = True
) -> DashboardNumbers:
    """Return the numbers of a build, without LIMIT unless ``limited``.

    Raises ``StoreError`` and ``CorruptState``.
    """
    prefix = part_of(build.dashboard.name, build.id)
    parts = await StateTable(endpoint).read_all(prefix)
    positions = {
        part.removeprefix(prefix): rows.position
        for part, rows in parts.items()
        if rows.position is not None
    }
    # A part without a position is only fenced.
    counted = [rows for rows in parts.values() if rows.position is not None]
    stamp = max((at.stamp for at in positions.values()), default=0)
    keep_us = build.dashboard.keep_us
    ended_us = None if keep_us is None else stamp - keep_us
    panels = {
        name: answer(
            panel.plan if limited else replace(panel.plan, limit=None),
            [read_partial(panel, rows) for rows in counted],
            panel.bounds,
            ended_us=ended_us,
        )
        for name, panel in build.dashboard.panels.items()
    }
    return DashboardNumbers(build, positions, panels, ended_us)


def numbers_document(stored: StoredDashboard, numbers: DashboardNumbers | None) -> dict[str, Any]:
    """Return numbers as JSON values."""
    found: dict[str, Any] = {
        "name": stored.name,
        "state": "paused" if stored.paused else "ready" if stored.is_ready else "building",
        "is_former": numbers is not None and not stored.is_ready,
    }
    if numbers is None:
        return {**found, "table": None, "as_of": None, "positions": {}, "panels": {}}
    dashboard = numbers.build.dashboard
    return {
        **found,
        "table": dashboard.table.name,
        "build": numbers.build.id,
        "as_of": _time_text(numbers.stamp) if numbers.stamp else None,
        "positions": {
            shard: {"sequence": decode_position(at.position).offset, "stamp": at.stamp}
            for shard, at in sorted(numbers.positions.items())
        },
        "panels": {
            name: _panel_document(dashboard.panels[name], found)
            for name, found in numbers.panels.items()
        },
    }


def _panel_document(panel: Panel, found: PanelAnswer) -> dict[str, Any]:
    outputs = panel.plan.outputs
    kinds = [output.kind for output in outputs]
    return {
        "title": panel.title,
        "chart": panel.chart,
        "unit": panel.unit,
        "fault": found.fault,
        "mistyped": found.mistyped,
        "columns": [
            {
                "name": output.name,
                "type": output.kind.value,
                "is_group": output.is_group,
                "is_approximate": output.is_approximate,
            }
            for output in outputs
        ],
        "rows": [_json_row(row, kinds) for row in found.rows],
    }


def _json_row(row: Sequence[Value], kinds: Sequence[SqlType]) -> list[object]:
    return [json_value(value, kind) for value, kind in zip(row, kinds, strict=True)]


def json_value(value: Value, kind: SqlType) -> object:
    """Return a value as JSON can have it: times, NaN, infinities and large integers as texts."""
    if value is None or isinstance(value, bool | str):
        return value
    if kind is SqlType.TIMESTAMP and isinstance(value, int):
        return _time_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if abs(value) <= EXACT_MAX else str(value)


def _time_text(at_us: int) -> str:
    text = (_EPOCH + timedelta(microseconds=at_us)).isoformat()
    return text.replace("+00:00", "Z")
