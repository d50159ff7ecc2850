"""Queries to a ClickHouse server over HTTP, and the meaning of its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp

from rowtide.connectors.sinks.clickhouse.native_format import decode_columns
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

__all__ = ["ClickHouseServer", "ClickhouseRefused"]

# Codes of src/Common/ErrorCodes.cpp after which a retry may succeed. A code never changes
# its meaning.
_LATER = {
    159: "TIMEOUT_EXCEEDED",
    160: "TOO_SLOW",
    173: "CANNOT_ALLOCATE_MEMORY",
    198: "DNS_ERROR",
    201: "QUOTA_EXCEEDED",
    202: "TOO_MANY_SIMULTANEOUS_QUERIES",
    203: "NO_FREE_CONNECTION",
    209: "SOCKET_TIMEOUT",
    210: "NETWORK_ERROR",
    225: "NO_ZOOKEEPER",
    236: "ABORTED",
    241: "MEMORY_LIMIT_EXCEEDED",
    242: "TABLE_IS_READ_ONLY",
    243: "NOT_ENOUGH_SPACE",
    252: "TOO_MANY_PARTS",
    279: "ALL_CONNECTION_TRIES_FAILED",
    285: "TOO_FEW_LIVE_REPLICAS",
    286: "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE",
    319: "UNKNOWN_STATUS_OF_INSERT",
    394: "QUERY_WAS_CANCELLED",
    439: "CANNOT_SCHEDULE_TASK",
    473: "DEADLOCK_AVOIDED",
    999: "KEEPER_EXCEPTION",
}
# From a load balancer, or from a server that is shutting down.
_LATER_STATUS = {502, 503, 504}
_CODE = re.compile(r"Code: (\d+)")


class ClickhouseRefused(Exception):
    """The server rejected a query. ``code`` is the server's error code, 0 if it gave none."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClickHouseServer:
    """One server, or a load balancer, at ``url``. Create it within a running loop."""

    def __init__(self, url: str, database: str, *, user: str, password: str, time_s: float) -> None:
        self._url = url
        self._parameters = {"database": database, "wait_end_of_query": "1"}
        self._session = aiohttp.ClientSession(
            headers={"X-ClickHouse-User": user, "X-ClickHouse-Key": password},
            timeout=aiohttp.ClientTimeout(total=time_s),
        )

    async def close(self) -> None:
        await self._session.close()

    async def run(self, query: str, *, settings: Mapping[str, str] | None = None) -> bytes:
        """Run a query and return its response. Raises Unavailable and ClickhouseRefused."""
        return await self._post({**self._parameters, **(settings or {})}, query.encode())

    async def rows(self, query: str) -> dict[str, list[Scalar | None]]:
        """Return the columns of a query."""
        return decode_columns(await self.run(f"{query} FORMAT Native"))

    async def insert(self, query: str, block: bytes) -> None:
        """Insert a block in Native format. It is as durable as the server makes it."""
        await self._post({**self._parameters, "query": f"{query} FORMAT Native"}, block)

    async def _post(self, parameters: Mapping[str, str], body: bytes) -> bytes:
        try:
            async with self._session.post(self._url, params=parameters, data=body) as answer:
                content = await answer.read()
                if answer.status == 200:
                    return content
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"ClickHouse at {self._url}: {error or type(error)}") from error
        text = content.decode(errors="replace").strip()[:1000]
        found = _CODE.search(text)
        code = int(found[1]) if found else 0
        if code in _LATER or (not code and status in _LATER_STATUS):
            raise Unavailable(f"ClickHouse at {self._url}: {text}")
        raise ClickhouseRefused(code, f"ClickHouse at {self._url}: {text or status}")
