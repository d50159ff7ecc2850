"""Requests to a search cluster, OpenSearch or Elasticsearch, and the meaning of its
errors.

An unknown outcome counts as not done. Documents carry versions, so every write can be
repeated.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp

from rowtide.core.values.errors import Unavailable

__all__ = ["ClusterRefused", "ClusterSettings", "OpenSearchCluster", "TooLarge"]

_BUSY = frozenset((429, 502, 503, 504))
REQUEST_S_MAX = 60.0
REASON_CHARACTERS_MAX = 500


class ClusterRefused(Exception):
    """The cluster rejected a request. ``status`` and ``kind`` are the cluster's."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(f"{kind or status}: {reason}")
        self.status = status
        self.kind = kind


class TooLarge(Exception):
    """A request was larger than the cluster accepts."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster and the credentials. ``ca_file`` verifies its certificate."""

    url: str
    user: str = ""
    password: str = ""
    api_key: str = ""
    ca_file: str = ""
    verify: bool = True

    def headers(self) -> dict[str, str]:
        """Return the authorisation header."""
        if self.api_key:
            return {"Authorization": f"ApiKey {self.api_key}"}
        if self.user:
            pair = f"{self.user}:{self.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    def tls(self) -> ssl.SSLContext | bool:
        """Return how the server's certificate is verified."""
        if not self.url.startswith("https://") or (self.verify and not self.ca_file):
            return True
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class OpenSearchCluster:
    """One cluster. It belongs to one event loop. Close it when done."""

    def __init__(self, settings: ClusterSettings, *, connections: int) -> None:
        self._url = settings.url.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=settings.tls()),
            timeout=aiohttp.ClientTimeout(total=REQUEST_S_MAX),
            headers=settings.headers(),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def get(self, path: str, *, absent: Any = None) -> Any:
        """Return a resource, or ``absent`` if the cluster reports 404."""
        try:
            return await self.call("GET", path)
        except ClusterRefused as error:
            if error.status == 404 and absent is not None:
                return absent
            raise

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return its response. Raises ``Unavailable``, ``ClusterRefused``."""
        text = None if body is None else json.dumps(body).encode()
        return await self.send(method, path, text, kind="application/json")

    async def send(self, method: str, path: str, body: bytes | None, *, kind: str) -> Any:
        """Send a body as it is. Also raises ``TooLarge``."""
        headers = {"Content-Type": kind} if body is not None else {}
        try:
            async with self._session.request(
                method, f"{self._url}{path}", data=body, headers=headers
            ) as answer:
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"No answer from {self._url}: {why}") from error
        if status == 413:
            raise TooLarge(f"{self._url} refuses a request of {len(body or b'')} bytes")
        if status in _BUSY:
            raise Unavailable(f"{self._url} is busy ({status}): {_reason(content)[1]}")
        if status >= 400:
            raise ClusterRefused(status, *_reason(content))
        return json.loads(content)


def _reason(content: bytes) -> tuple[str, str]:
    """Return kind and text of the cluster's error."""
    try:
        error = json.loads(content)["error"]
        kind, reason = str(error["type"]), str(error["reason"])
        # The top error of a search is only "all shards failed".
        for cause in error.get("root_cause", [])[:1]:
            if cause["reason"] != reason:
                reason += f": {cause['reason']}"
        return kind, reason[:REASON_CHARACTERS_MAX]
    except (ValueError, KeyError, TypeError):
        return "", content[:REASON_CHARACTERS_MAX].decode(errors="replace")
