"""A schema registry over HTTP, with the interface of Confluent's and of Apicurio's ccompat/v7."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp

from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["RegistryClient", "Subject"]

CONTENT = "application/vnd.schemaregistry.v1+json"
NO_SUBJECT = 404
TEXT_CHARACTERS_MAX = 500


class Subject(NamedTuple):
    """The latest schema of a subject."""

    id: int
    schema: dict[str, Any]


class RegistryClient:
    """One registry. Methods raise ``Unavailable``, and ``Rejected`` if the registry refuses."""

    def __init__(self, url: str, *, user: str, password: str, timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._auth = aiohttp.BasicAuth(user, password) if user else None
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def latest(self, subject: str) -> Subject | None:
        """Return the latest schema of a subject, None if it has none."""
        found = await self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return None if found is None else Subject(found["id"], json.loads(found["schema"]))

    async def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Register a schema and return its id. An existing schema keeps its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found = await self._ask("POST", path, {"schema": json.dumps(schema)})
        if found is None:
            raise Rejected("OTSObjectNotExist", f"schema registry: no {path}")
        return int(found["id"])

    async def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the schema of an id."""
        found = await self._ask("GET", f"/schemas/ids/{schema_id}")
        if found is None:
            raise Rejected("OTSObjectNotExist", f"schema registry: no schema {schema_id}")
        schema: dict[str, Any] = json.loads(found["schema"])
        return schema

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(auth=self._auth, timeout=self._timeout)
        headers = {"Content-Type": CONTENT, "Accept": CONTENT}
        text = None if body is None else json.dumps(body)
        try:
            async with self._session.request(
                method, self._url + path, data=text, headers=headers
            ) as response:
                answer = await response.text()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"schema registry: {error or type(error).__name__}") from error
        if status == NO_SUBJECT:
            return None
        summary = f"schema registry, {method} {path}: {status} {answer[:TEXT_CHARACTERS_MAX]}"
        if status >= 500 or status == 429:
            raise Unavailable(summary)
        if status >= 300:
            raise Rejected("OTSParameterInvalid", summary)
        return json.loads(answer)
