"""Access keys: list, create and revoke them. The worker allows it to administrators alone."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from rowtide.console.pages.newest_first import page_newest
from rowtide.console.web.audit import audit
from rowtide.console.web.render import redirect, render
from rowtide.console.web.routes import WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.console.web.visitor_calls import call_for_visitor

__all__ = ["KEY_ROUTES"]

INSTANCES_MAX = 100
RIGHTS = ("rows", "read_only", "admin", "admin_read_only")


async def show_keys(request: web.Request) -> web.Response:
    """Return the keys without their secrets, a page of them."""
    found = await call_for_visitor(request, "RowtideListKeys", {})
    session = session_of(request)
    page = page_newest(request, found["keys"])
    return render(
        request,
        "keys.html",
        keys=[_shown(key) for key in page.entries],
        count=page.total,
        first=page.first,
        next=page.next,
        own=session.access_key_id,
        instances=list(session.instances),
        can_change=session.can_administer,
    )


def _shown(key: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": key["access_key_id"],
        "instances": key["instances"],
        "is_admin": key["admin"],
        "is_read_only": key["read_only"],
        "created_s": key["created_us"] // 1_000_000,
    }


async def create_key(request: web.Request) -> web.Response:
    """Create a key and show its secret, in this one answer that nothing keeps."""
    form = await request.post()
    rights = str(form.get("rights", ""))
    text = str(form.get("instances", "")).replace(",", " ")
    instances = text.split()[:INSTANCES_MAX]
    fields: dict[str, Any] = {
        "admin": rights in ("admin", "admin_read_only"),
        "read_only": rights not in ("rows", "admin"),
    }
    if instances:
        fields["instances"] = instances
    made = await call_for_visitor(request, "RowtideCreateKey", fields)
    audit(request, created=made["access_key_id"], rights=rights)
    return render(
        request,
        "key_created.html",
        created=_shown(made),
        access_key_secret=made["access_key_secret"],
    )


async def revoke_key(request: web.Request) -> web.Response:
    """Revoke a key for good."""
    key_id = request.match_info["key_id"]
    await call_for_visitor(request, "RowtideRevokeKey", {"access_key_id": key_id})
    return redirect(request, "/keys", "keys.revoked", key=key_id)


KEY_ROUTES = (
    WebRoute("GET", "/keys", show_keys),
    WebRoute("POST", "/keys", create_key, is_change=True),
    WebRoute("POST", "/keys/{key_id}/revoke", revoke_key, is_change=True),
)
