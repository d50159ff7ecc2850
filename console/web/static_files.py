"""Files that never change while a console runs: style, modules, vendored libraries.

They are read and compressed once, when they are first needed, and served from memory. Their
address has a version made of all their contents, so a browser keeps them for good, and modules
that import each other by relative names come from one version.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aiohttp import web

from rowtide.console.web.routes import WebRoute

__all__ = ["STATIC_ROUTES", "static_url"]

FOLDER = Path(__file__).parents[1] / "static"
TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""Files of other kinds, such as licences and declarations of types, are not served."""

KEPT_BY_BROWSERS = "public, max-age=31536000, immutable"
NOT_KEPT = "no-cache"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent. ``packed`` is its gzip form, empty if that is not smaller."""

    content: bytes
    packed: bytes
    content_type: str
    tag: str


@cache
def _files() -> dict[str, StaticFile]:
    """Return all files by their names within the folder."""
    found: dict[str, StaticFile] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES:
            content = path.read_bytes()
            packed = gzip.compress(content, 9, mtime=0)
            found[path.relative_to(FOLDER).as_posix()] = StaticFile(
                content,
                packed if len(packed) < len(content) else b"",
                TYPES[path.suffix],
                f'"{hashlib.sha256(content).hexdigest()[:16]}"',
            )
    return found


@cache
def _version() -> str:
    """Return a name for the contents of all files together."""
    tags = "".join(f"{name}{file.tag}" for name, file in _files().items())
    return hashlib.sha256(tags.encode()).hexdigest()[:12]


def static_url(name: str) -> str:
    """Return the address of a file. Raises ``KeyError`` if there is no such file."""
    if name not in _files():
        raise KeyError(f"console/static has no file {name}")
    return f"/static/{_version()}/{name}"


async def send_static_file(request: web.Request) -> web.Response:
    """Answer with a file, compressed if the browser allows it."""
    file = _files().get(request.match_info["name"])
    if file is None:
        raise web.HTTPNotFound(text="There is no such file.")
    is_current = request.match_info["version"] == _version()
    headers = {
        "ETag": file.tag,
        "Vary": "Accept-Encoding",
        # A page of an older console process may ask for its own version: it gets ours, for once.
        "Cache-Control": KEPT_BY_BROWSERS if is_current else NOT_KEPT,
    }
    if request.headers.get("If-None-Match") == file.tag:
        return web.Response(status=304, headers=headers)
    is_packed = bool(file.packed) and "gzip" in request.headers.get("Accept-Encoding", "")
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    body = file.packed if is_packed else file.content
    return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=headers)


STATIC_ROUTES = (
    WebRoute(
        "GET",
        "/static/{version}/{name:.+}",
        send_static_file,
        needs_session=False,
        has_json=False,
    ),
)
