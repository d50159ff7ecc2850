"""Share tokens, by which programs follow one table: list, create and revoke them.

The worker allows it to keys with the admin right alone. The text of a token is in one answer, that
which creates it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from aiohttp import web

from rowtide.console.pages.newest_first import page_newest
from rowtide.console.web.audit import audit
from rowtide.console.web.render import redirect, render
from rowtide.console.web.routes import SETTINGS, WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.console.web.visitor_calls import call_for_visitor

__all__ = ["TOKEN_ROUTES"]


async def show_tokens(request: web.Request) -> web.Response:
    """Return the tokens without their texts, and the form for another one.

    The address may name ``instance`` and ``table`` for the form.
    """
    found = await call_for_visitor(request, "RowtideListTokens", {})
    session = session_of(request)
    page = page_newest(request, found["tokens"])
    return render(
        request,
        "tokens.html",
        tokens=[_shown(token) for token in page.entries],
        count=page.total,
        first=page.first,
        next=page.next,
        instances=list(session.instances),
        instance=request.query.get("instance", session.instance),
        table=request.query.get("table", ""),
        can_change=session.can_administer,
    )


def _shown(token: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": token["token_id"],
        "instance": token["instance"],
        "table": token["table"],
        "table_exists": token["table_exists"],
        "key": token["key"],
        "dashboard": token["dashboard"],
        "created_s": token["created_us"] // 1_000_000,
    }


async def create_token(request: web.Request) -> web.Response:
    """Create a token and show its text, in this one answer that nothing keeps."""
    form = await request.post()
    instance, table, key = (str(form.get(name, "")) for name in ("instance", "table", "key"))
    instance, table = instance.strip() or session_of(request).instance, table.strip()
    audit(request, instance=instance, table=table, **({"key_of_rows": key} if key else {}))
    fields = {"instance": instance, "table": table} | ({"key": key} if key else {})
    made = await call_for_visitor(request, "RowtideCreateToken", fields)
    audit(request, created=made["token_id"])
    feed = f"/stream/{quote(made['instance'], safe='')}/{quote(made['table'], safe='')}"
    origin = request.app[SETTINGS].public_url or f"http://{request.host}"
    return render(
        request,
        "token_created.html",
        created=_shown(made),
        token=made["token"],
        feed=f"{origin.rstrip('/')}{feed}",
    )


async def revoke_token(request: web.Request) -> web.Response:
    """Revoke a token for good. Feeds that it opened end within 5 s."""
    token_id = request.match_info["token_id"]
    await call_for_visitor(request, "RowtideRevokeToken", {"token_id": token_id})
    return redirect(request, "/tokens", "tokens.revoked", token=token_id)


TOKEN_ROUTES = (
    WebRoute("GET", "/tokens", show_tokens),
    WebRoute("POST", "/tokens", create_token, is_change=True),
    WebRoute("POST", "/tokens/{token_id}/revoke", revoke_token, is_change=True),
)
