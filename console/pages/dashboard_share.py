"""Links to one dashboard: made by an administrator, opened by anyone who has the link.

The link has a share token in its fragment, which browsers send to no server. The page behind it
takes the token out of the address and sends it in a form. The answer keeps it in a cookie that
scripts cannot read. The link works until the token is revoked.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from aiohttp import web

from rowtide.console.feed.access import TOKENS
from rowtide.console.numbers.dashboard_access import cookie_name
from rowtide.console.web.addresses import address_of
from rowtide.console.web.attempts import ATTEMPTS
from rowtide.console.web.audit import audit
from rowtide.console.web.guards import ORIGINS
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import render
from rowtide.console.web.routes import CALLS, SETTINGS, WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.core.cluster.share_token import DASHBOARD
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards

__all__ = ["SHARED_PATH", "SHARE_ROUTES"]

SHARED_PATH = "/shared"
COOKIE_S_MAX = 365 * 24 * 3600
TOKEN_CHARACTERS_MAX = 256


async def show_shared(request: web.Request) -> web.Response:
    """Return the page that a link leads to. Its module sends the token of the fragment."""
    return render(request, "shared.html")


async def open_shared(request: web.Request) -> web.Response:
    """Keep the token of a link in a cookie, and lead to its dashboard."""
    form = await request.post()
    text = str(form.get("code", "")).strip()[:TOKEN_CHARACTERS_MAX]
    request.app[ATTEMPTS].require(f"address {address_of(request)}")
    shared = await request.app[TOKENS].check(text, DASHBOARD)
    audit(request, token=shared.token_id, dashboard=shared.dashboard)
    place = urlencode({"instance": shared.instance, "wall": "1"})
    response = web.Response(
        status=303,
        headers={"Location": f"/dashboards/{quote(shared.dashboard, safe='')}?{place}"},
    )
    response.set_cookie(
        cookie_name(request, shared.instance, shared.dashboard),
        text,
        max_age=COOKIE_S_MAX,
        path="/dashboards",
        httponly=True,
        samesite="Strict",
        secure=request.app[ORIGINS].is_secure(request.headers.get("Origin", "")),
    )
    return response


async def share_dashboard(request: web.Request) -> web.Response:
    """Make a link and show it, in this one answer that nothing keeps."""
    session, name = session_of(request), request.match_info["name"]
    instance = request.query.get("instance") or session.instance
    calls = request.app[CALLS]
    stored = await StoredDashboards(calls.endpoint_of(session.credentials, instance)).get(name)
    if stored is None:
        raise RequestRefused(404, "dashboards.unknown", name=name)
    if stored.build is None:
        raise RequestRefused(400, "dashboards.corrupt", name=name, reason=stored.failure)
    fields = {
        "instance": instance,
        "table": stored.build.dashboard.table.name,
        "dashboard": name,
    }
    made = await calls.call(session.credentials, instance, "RowtideCreateToken", fields)
    audit(request, created=made["token_id"])
    origin = request.app[SETTINGS].public_url or f"http://{request.host}"
    return render(
        request,
        "dashboard_shared.html",
        name=name,
        token_id=made["token_id"],
        link=f"{origin.rstrip('/')}{SHARED_PATH}#{made['token']}",
        back=f"/dashboards/{quote(name, safe='')}?{urlencode({'instance': instance})}",
    )


SHARE_ROUTES = (
    WebRoute("GET", SHARED_PATH, show_shared, needs_session=False, has_json=False),
    WebRoute("POST", SHARED_PATH, open_shared, needs_session=False, is_change=True),
    WebRoute("POST", "/dashboards/{name}/share", share_dashboard, is_change=True),
)
