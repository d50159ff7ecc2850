"""Headers of every answer: what a browser may do with it.

Scripts and styles come only from this server's files, and no page may be framed. Text becomes HTML
nowhere (Trusted Types), except that the policy ``rowtide`` may name the address of a worker script.
"""

from __future__ import annotations

from aiohttp import web

__all__ = ["CONTENT_POLICY", "add_headers", "has_begun"]

_BEGUN = "rowtide.begun"

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types rowtide",
    )
)

# With `no-referrer` a browser sends `Origin: null` with a form, and no form could be accepted.
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "rowtide",
}


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of an answer. Unless its handler decided, no cache keeps it."""
    request[_BEGUN] = True
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")


def has_begun(request: web.Request) -> bool:
    """True if a part of the answer is sent: no other answer can take its place."""
    return _BEGUN in request
