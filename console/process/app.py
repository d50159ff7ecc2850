"""Joins the parts of a console into one web application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web

from rowtide.console.feed.feed_routes import FEED_ROUTES, start_feeds
from rowtide.console.pages.connectors import CONNECTOR_ROUTES
from rowtide.console.pages.consumers import CONSUMER_ROUTES
from rowtide.console.pages.dashboard_share import SHARE_ROUTES
from rowtide.console.pages.dashboards import DASHBOARD_ROUTES, start_readers
from rowtide.console.pages.figures import ANSWERS, SAMPLER
from rowtide.console.pages.health import HEALTH, HEALTH_ROUTES, HealthWatch
from rowtide.console.pages.keys import KEY_ROUTES
from rowtide.console.pages.live import LIVE_ROUTES
from rowtide.console.pages.row import ROW_ROUTES
from rowtide.console.pages.rows import ROWS_ROUTES
from rowtide.console.pages.shards import SHARD_ROUTES
from rowtide.console.pages.tables import TABLE_ROUTES
from rowtide.console.pages.tokens import TOKEN_ROUTES
from rowtide.console.pages.usage import USAGE_ROUTES
from rowtide.console.web.attempts import ATTEMPTS, LoginAttempts
from rowtide.console.web.console_settings import ConsoleSettings
from rowtide.console.web.guards import BODY_BYTES_MAX, COOKIE, ORIGINS, guard
from rowtide.console.web.headers import add_headers
from rowtide.console.web.links import LINKS, OneTimeLinks
from rowtide.console.web.login import LOGIN_ROUTES
from rowtide.console.web.origins import OriginRules
from rowtide.console.web.routes import CALLS, SETTINGS, STOPPING, TASKS, WebRoute, add_routes
from rowtide.console.web.sessions import SESSIONS, WebSessions
from rowtide.console.web.static_files import STATIC_ROUTES
from rowtide.console.workers.calls import WorkerCalls
from rowtide.console.workers.sampler import Sampler
from rowtide.console.workers.shared_answers import SharedAnswers

__all__ = ["ROUTES", "make_app"]

ROUTES: tuple[WebRoute, ...] = (
    *LOGIN_ROUTES,
    *STATIC_ROUTES,
    *HEALTH_ROUTES,
    *CONNECTOR_ROUTES,
    *CONSUMER_ROUTES,
    *DASHBOARD_ROUTES,
    *SHARE_ROUTES,
    *KEY_ROUTES,
    *TOKEN_ROUTES,
    *TABLE_ROUTES,
    *SHARD_ROUTES,
    *USAGE_ROUTES,
    *FEED_ROUTES,
    *ROWS_ROUTES,
    *ROW_ROUTES,
    *LIVE_ROUTES,
)
"""Every address of the console."""


def make_app(
    settings: ConsoleSettings,
    calls: WorkerCalls,
    tasks: asyncio.TaskGroup,
    routes: Iterable[WebRoute] = ROUTES,
) -> web.Application:
    """Return the application. It starts its tasks in ``tasks`` and ends them with the group."""
    app = web.Application(middlewares=[guard], client_max_size=BODY_BYTES_MAX)
    app[SETTINGS], app[CALLS], app[TASKS] = settings, calls, tasks
    app[STOPPING] = asyncio.Event()
    app[SESSIONS], app[LINKS], app[ATTEMPTS] = WebSessions(), OneTimeLinks(), LoginAttempts()
    app[ORIGINS] = OriginRules({settings.host}, settings.public_url)
    # Cookies do not know ports: each console of a host has a name of its own.
    app[COOKIE] = f"rowtide_console_{settings.public_port}"
    own = (calls, settings.own_key, settings.instance)
    app[HEALTH], app[SAMPLER], app[ANSWERS] = HealthWatch(*own), Sampler(*own), SharedAnswers(*own)
    app.on_startup.append(_start_tasks)
    app.on_startup.append(start_feeds)
    app.on_startup.append(start_readers)
    app.on_response_prepare.append(add_headers)
    add_routes(app, routes)
    return app


async def _start_tasks(app: web.Application) -> None:
    app[TASKS].create_task(app[HEALTH].run(), name="health")
    app[TASKS].create_task(app[SAMPLER].run(), name="sampler")
