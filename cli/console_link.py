"""One-time links into a running console, made with a key over the console's HTTP.

``console.json`` in the data directory says where the console of ``rowtide up`` is.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from rowtide.cli.settings import CONSOLE_PORT_OFFSET, Settings

__all__ = [
    "CONSOLE_FILE",
    "LinkRefused",
    "NoConsole",
    "console_beside",
    "make_link",
    "read_console_url",
]

CONSOLE_FILE = "console.json"
TIMEOUT_S = 15.0
"""The console asks the worker, which may be busy."""


class NoConsole(Exception):
    """No console answers at an address."""


class LinkRefused(Exception):
    """The console makes no link for this key; the text says why."""


def read_console_url(data_dir: Path) -> str | None:
    """Return where the console of a data directory is, None if none runs."""
    try:
        found = json.loads((data_dir / CONSOLE_FILE).read_text(encoding="utf-8"))
        return str(found["url"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None


def console_beside(endpoint: str) -> str:
    """Return where the console of a worker is by default."""
    parts = urlsplit(endpoint)
    port = (parts.port or Settings().port) + CONSOLE_PORT_OFFSET
    host = parts.hostname or "127.0.0.1"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def make_link(
    url: str, instance: str, access_key_id: str, access_key_secret: str, *, to: str = ""
) -> str:
    """Return a link that logs in once, within a minute, and leads to the page ``to``.

    Raises ``NoConsole``, ``LinkRefused``.
    """
    import http.client  # With the parser of mail; only who makes a link waits for it.

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoConsole(f"the console's address must be http://HOST:PORT, not {url!r}")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    wanted = {
        "instance": instance,
        "access_key_id": access_key_id,
        "access_key_secret": access_key_secret,
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        connection.request("POST", "/links", json.dumps(wanted), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoConsole(f"no console answers at {url}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise LinkRefused(str(found.get("error", {}).get("message", answer.status)))
    query = f"?{urlencode({'to': to})}" if to else ""
    return f"{url.rstrip('/')}{found['path']}{query}#{found['code']}"
