"""Dashboards that tests declare on a running server."""

from __future__ import annotations

import asyncio

from rowtide.client.endpoint import Endpoint
from rowtide.dashboards.declaring.declaration import parse_dashboards
from rowtide.dashboards.runtime.applying import prepare_table
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards
from rowtide.deploy.up import Ready

__all__ = ["declare_dashboards", "pause_dashboard"]


def declare_dashboards(ready: Ready, text: str) -> None:
    """Apply a file of dashboards, as ``rowtide dashboard apply`` does."""

    async def apply() -> None:
        async with Endpoint(**ready._asdict(), patience_s=10.0) as endpoint:
            for dashboard in parse_dashboards(text, "test"):
                await prepare_table(endpoint, dashboard)
                await StoredDashboards(endpoint).declare(dashboard)

    asyncio.run(apply())


def pause_dashboard(ready: Ready, name: str, *, is_paused: bool) -> None:
    """Pause or resume a dashboard."""

    async def pause() -> None:
        async with Endpoint(**ready._asdict(), patience_s=10.0) as endpoint:
            assert await StoredDashboards(endpoint).pause(name, paused=is_paused)

    asyncio.run(pause())
