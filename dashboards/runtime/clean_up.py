"""Removes what builds of a dashboard keep in tables: their state rows and their leases."""

from __future__ import annotations

from rowtide.client.changes.leases import TableLeases
from rowtide.client.endpoint import Endpoint
from rowtide.dashboards.declaring.declaration import Dashboard
from rowtide.dashboards.runtime.state_rows import StateTable, part_of
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild, StoredDashboards

__all__ = ["remove_build", "remove_old_builds"]


async def remove_old_builds(endpoint: Endpoint, dashboard: Dashboard) -> None:
    """Remove builds that neither answer nor will answer. Raises ``StoreError``.

    A process that has not noticed yet may write some rows afterwards. They are removed next time.
    """
    builds = await StateTable(endpoint).list_builds(dashboard.name)
    stored = await StoredDashboards(endpoint).get(dashboard.name)
    if stored is None:
        return
    kept = {build.id for build in (stored.build, stored.former) if build is not None}
    for build_id in builds - kept:
        await remove_build(endpoint, DashboardBuild(dashboard, build_id))


async def remove_build(endpoint: Endpoint, build: DashboardBuild) -> None:
    """Remove the leases and the state rows of a build."""
    leases = TableLeases(endpoint, build.consumer)
    for table in ("", build.dashboard.table.name):
        while rows := await leases.read(table):
            for row in rows.values():
                await leases.remove(row)
    await StateTable(endpoint).remove(part_of(build.dashboard.name, build.id))
