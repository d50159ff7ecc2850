"""Reads a dashboard from the rows of its parts, and no more of it than has changed.

A look at the positions is one small request. The sums are read when a position has moved. The
declaration, the parts and the status are read every second or two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.console.web.refusals import RequestRefused
from rowtide.dashboards.runtime.numbers import DashboardNumbers, numbers_document, read_numbers
from rowtide.dashboards.runtime.standing import read_standings
from rowtide.dashboards.runtime.state_rows import PartPosition, StateTable, part_of
from rowtide.dashboards.runtime.stored_dashboards import (
    DashboardBuild,
    StoredDashboard,
    StoredDashboards,
)

__all__ = ["NumberReading", "hidden_panels"]

LISTED_S = 1.0
"""How late a new part, another build or another title is noticed."""
STANDING_S = 2.0
NEVER_S = float("-inf")


@dataclass(slots=True)
class _Times:
    """When something was read last."""

    listed_s: float = NEVER_S
    stood_s: float = NEVER_S
    moved_s: float = NEVER_S


class _Read(NamedTuple):
    """Numbers, and the build, the parts and the positions for which they were read."""

    build: DashboardBuild
    parts: list[str]
    positions: list[PartPosition | None]
    numbers: DashboardNumbers


class NumberReading:
    """What is known of a dashboard. ``hidden`` are pairs of table and column, see the settings."""

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        hidden: frozenset[tuple[str, str]],
        now_s: Callable[[], float],
    ) -> None:
        self.endpoint = endpoint
        self.name = name
        self._hidden = hidden
        self._now_s = now_s
        self._state = StateTable(endpoint)
        self._stored: StoredDashboard | None = None
        self._standing: dict[str, Any] = {"state": "", "lag": None, "troubles": []}
        self._read: _Read | None = None
        self._times = _Times()
        self._made_of: tuple[object, object, object] = (None, None, None)
        """What the last document was made of."""

    @property
    def moved_s(self) -> float:
        """When a position had moved last."""
        return self._times.moved_s

    def forget_times(self) -> None:
        """Read everything at the next look: it may have changed in the meantime."""
        self._times.listed_s = self._times.stood_s = NEVER_S

    async def look(self) -> tuple[dict[str, Any], DashboardNumbers | None] | None:
        """Return the document with its numbers; None if nothing has changed.

        Raises ``StoreError``, ``CorruptState``, and ``RequestRefused`` for an unknown dashboard.
        """
        times = self._times
        is_due = self._now_s() - times.listed_s >= LISTED_S
        if is_due or self._stored is None:
            self._stored = await StoredDashboards(self.endpoint).get(self.name)
            if self._stored is None:
                raise RequestRefused(404, "dashboards.unknown", name=self.name)
        stored = self._stored
        build = stored.answering
        numbers = None if build is None else await self._read_build(build, is_due=is_due)
        if is_due:
            times.listed_s = self._now_s()
        if self._now_s() - times.stood_s >= STANDING_S:
            await self._read_standing()
        made_of = stored, numbers, self._standing
        if all(one is other for one, other in zip(made_of, self._made_of, strict=True)):
            return None
        self._made_of = made_of
        return self._document(stored, numbers), numbers

    async def _read_build(self, build: DashboardBuild, *, is_due: bool) -> DashboardNumbers:
        known = self._read
        if is_due or known is None or known.build != build:
            parts = await self._state.list_parts(part_of(self.name, build.id))
        else:
            parts = known.parts
        positions = await self._state.read_positions(parts)
        if known is not None and known[:3] == (build, parts, positions):
            return known.numbers
        # The numbers may be of later positions: then the next look reads them once more.
        numbers = await read_numbers(self.endpoint, build)
        self._read = _Read(build, parts, positions, numbers)
        self._times.moved_s = self._now_s()
        return numbers

    async def _read_standing(self) -> None:
        found = (await read_standings(self.endpoint, (self.name,))).get(self.name)
        self._times.stood_s = self._now_s()
        if found is not None:
            document = found.document()
            self._standing = {name: document[name] for name in ("state", "lag", "troubles")}

    def _document(
        self, stored: StoredDashboard, numbers: DashboardNumbers | None
    ) -> dict[str, Any]:
        found = numbers_document(stored, numbers)
        if numbers is not None:
            for panel in hidden_panels(numbers.build, self._hidden):
                found["panels"][panel] |= {"fault": "hidden", "rows": [], "mistyped": {}}
        standing = self._standing
        return {
            **found,
            "status": standing["state"] or found["state"],
            "lag": standing["lag"],
            "troubles": standing["troubles"],
        }


def hidden_panels(build: DashboardBuild, hidden: frozenset[tuple[str, str]]) -> list[str]:
    """Return the panels that read a column whose values must not leave the console."""
    table = build.dashboard.table.name
    return [
        name
        for name, panel in build.dashboard.panels.items()
        if any((table, column.name) in hidden for column in panel.plan.columns)
    ]
