"""The page of a table's live feed. The feed itself is drawn by the module ``live/page.js``."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from rowtide.console.languages.texts import texts_of
from rowtide.console.pages.rows import find_table
from rowtide.console.web.render import language_of, render
from rowtide.console.web.routes import WebRoute
from rowtide.console.web.static_files import static_url

__all__ = ["LIVE_ROUTES"]

ASKED = ("filter", "columns", "key", "begin")
"""What the feed and this page's address have in common."""
BEGINS = ("latest", "oldest", "rows")


async def show_live(request: web.Request) -> web.StreamResponse:
    """Show the page that follows a table."""
    _, shape = await find_table(request)
    asked = {name: request.query[name] for name in ASKED if request.query.get(name)}
    feed = request.rel_url.raw_path.removesuffix(".json").removesuffix("/live")
    feed = feed.replace("/i/", "/stream/", 1).replace("/t/", "/", 1)
    begin = asked.get("begin", "")
    data: dict[str, Any] = {
        "instance": request.match_info["instance"],
        "table": shape.name,
        "stream_hours": shape.stream_hours,
        "feed": f"{feed}?{urlencode({'mode': 'sampled', **asked})}",
        "after": request.query.get("after", ""),
        "asked": asked,
        "begins": [*BEGINS, *([begin] if begin and begin not in BEGINS else [])],
    }
    if request.path.endswith(".json"):
        return render(request, "live.html", **data)
    language = language_of(request)
    settings = {
        "path": data["feed"],
        "token": data["after"],
        "worker": static_url("feed_worker.js"),
        "texts": dict(texts_of(language, "live")),
        "language": language,
        "login": f"/login?{urlencode({'to': request.path_qs})}",
    }
    return render(request, "live.html", settings=settings, **data)


LIVE_ROUTES = (WebRoute("GET", "/i/{instance}/t/{table}/live", show_live),)
