"""From which address a request comes, also through a proxy."""

from __future__ import annotations

from ipaddress import ip_address

from aiohttp import web

from rowtide.console.web.routes import SETTINGS

__all__ = ["address_of"]


def address_of(request: web.Request) -> str:
    """Return the visitor's IP address, ``-`` if it is unknown.

    With ``console_url`` a proxy stands before the console, and appends the address of its client
    to X-Forwarded-For. Only that last entry is the proxy's word; the others may be invented.
    Without ``console_url`` the header is ignored.
    """
    forwarded = request.headers.getall("X-Forwarded-For", [])
    if request.app[SETTINGS].public_url and forwarded:
        last = forwarded[-1].rpartition(",")[2].strip()
        try:
            return str(ip_address(last))
        except ValueError:
            pass
    return request.remote or "-"
