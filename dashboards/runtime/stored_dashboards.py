"""The declared dashboards of an instance: rows of the table of connectors.

A *build* is one way to fold the table: its queries, types and bounds. It has state rows and a
consumer of its own. When a query changes, a new build starts beside the former one, which answers
until the new one has read everything. Each change of a row has a condition on its build.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_table import CONNECTOR_TABLE
from rowtide.connectors.runtime.kept_rows import Columns, KeptRows
from rowtide.core.values.errors import Unavailable
from rowtide.dashboards.declaring.declaration import Dashboard, parse_stored
from rowtide.dashboards.declaring.marked_values import DeclarationRejected

__all__ = ["DashboardBuild", "StoredDashboard", "StoredDashboards", "run_name"]

_PART = "dashboard"
_PREFIX = "dashboard."
"""No connector's name has a dot."""

TRIES_MAX = 10

_parse = lru_cache(maxsize=64)(parse_stored)
"""Declarations are read every second while a page shows them, and SQL takes long to parse."""


def run_name(name: str) -> str:
    """Return the name under which a dashboard reports and logs, among those of connectors."""
    return _PREFIX + name


class DashboardBuild(NamedTuple):
    """A build of a dashboard."""

    dashboard: Dashboard
    id: str

    @property
    def consumer(self) -> str:
        """The name of the consumer that reads for it."""
        return f"{_PREFIX}{self.dashboard.name}.{self.id}"


class StoredDashboard(NamedTuple):
    """A declared dashboard. ``failure`` says why this version cannot read it.

    ``is_ready``: its build has read all rows. Until then ``former`` answers, if there is one.
    """

    name: str
    build: DashboardBuild | None
    former: DashboardBuild | None
    is_ready: bool
    paused: bool
    failure: str = ""

    @property
    def answering(self) -> DashboardBuild | None:
        """The build whose numbers are complete, if there is one."""
        return self.build if self.is_ready else self.former


class StoredDashboards:
    """The rows of dashboards."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._rows = KeptRows(endpoint, CONNECTOR_TABLE, (("connector", str), ("part", str)))

    async def all(self) -> dict[str, StoredDashboard]:
        """Return every dashboard by name."""
        found: dict[str, StoredDashboard] = {}
        for (key, part), columns in await self._rows.scan():
            if part == _PART:
                name = str(key).removeprefix(_PREFIX)
                found[name] = _read_row(name, columns)
        return found

    async def get(self, name: str) -> StoredDashboard | None:
        """Return one dashboard."""
        columns = await self._rows.get(_key(name))
        return None if columns is None else _read_row(name, columns)

    async def declare(self, dashboard: Dashboard) -> str:
        """Create a dashboard or change its document. Return ``made``, ``rebuilt`` or ``kept``.

        A change of what is folded starts a new build.
        """
        for _ in range(TRIES_MAX):
            stored = await self.get(dashboard.name)
            if stored is None:
                columns = _fresh(dashboard.text)
                if await self._rows.put(_key(dashboard.name), columns, new=True):
                    return "made"
            elif stored.build is not None and fold_text(stored.build.dashboard) == fold_text(
                dashboard
            ):
                build: Columns = {"build": stored.build.id}
                if await self._change(dashboard.name, {"document": dashboard.text}, build):
                    return "kept"
            elif await self._start_build(stored, dashboard.text):
                return "rebuilt"
        raise Unavailable(f"Dashboard {dashboard.name} is changed by others all the time.")

    async def rebuild(self, name: str) -> bool:
        """Start a new build of the same queries. False if there is no such dashboard."""
        for _ in range(TRIES_MAX):
            columns = await self._rows.get(_key(name))
            if columns is None:
                return False
            if await self._start_build(_read_row(name, columns), str(columns["document"])):
                return True
        raise Unavailable(f"Dashboard {name} is changed by others all the time.")

    async def _start_build(self, stored: StoredDashboard, document: str) -> bool:
        columns = await self._rows.get(_key(stored.name))
        if columns is None:
            return False
        fresh = _fresh(document) | {"paused": stored.paused}
        if stored.is_ready:
            fresh |= {"former": columns["build"], "former_document": columns["document"]}
        elif columns.get("former"):
            fresh |= {n: columns[n] for n in ("former", "former_document")}
        return await self._rows.put(_key(stored.name), fresh, only_if={"build": columns["build"]})

    async def pause(self, name: str, *, paused: bool) -> bool:
        """Pause or resume a dashboard. True if it exists."""
        return await self._rows.update(_key(name), {"paused": paused})

    async def mark_ready(self, name: str, build: str) -> bool:
        """Let a build answer, and forget the former one. False if it is not the build any more."""
        done: Columns = {"is_ready": True, "former": "", "former_document": ""}
        return await self._change(name, done, {"build": build})

    async def remove(self, name: str) -> None:
        """Delete a dashboard's declaration."""
        await self._rows.delete(_key(name))

    async def _change(self, name: str, columns: Columns, only_if: Columns) -> bool:
        return await self._rows.update(_key(name), columns, only_if=only_if)


def _key(name: str) -> tuple[str, str]:
    return run_name(name), _PART


def _fresh(document: str) -> Columns:
    """Return the columns of a dashboard whose build has read nothing."""
    return {
        "document": document,
        "build": secrets.token_hex(6),
        "former": "",
        "former_document": "",
        "is_ready": False,
        "paused": False,
    }


def fold_text(dashboard: Dashboard) -> str:
    """Return everything on which the sums of a dashboard depend."""
    panels = {panel.name: [panel.query, *panel.bounds] for panel in dashboard.panels.values()}
    table = dashboard.table
    found = [table.name, dict(table.types), dashboard.keep_us, panels]
    return json.dumps(found, sort_keys=True)


def _read_row(name: str, columns: Mapping[str, object]) -> StoredDashboard:
    former, failure = None, ""
    build = None
    try:
        build = _read_build(name, columns, "build", "document")
        former = _read_build(name, columns, "former", "former_document")
    except (DeclarationRejected, ValueError) as error:
        failure = str(error)  # A newer version wrote it, or a person did.
    is_ready, paused = bool(columns.get("is_ready")), bool(columns.get("paused"))
    return StoredDashboard(name, build, former, is_ready, paused, failure)


def _read_build(
    name: str, columns: Mapping[str, object], id_column: str, document: str
) -> DashboardBuild | None:
    build_id = str(columns.get(id_column) or "")
    if not build_id:
        return None
    return DashboardBuild(_parse(name, str(columns[document])), build_id)
