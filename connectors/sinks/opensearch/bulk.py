"""Writes documents to an index, many in one request, each with a result of its own.

The cluster's result for a document is one of four. It is written, or dropped because a
newer version exists, or the cluster is too busy, or it is refused with a reason. Only
documents of the third kind are sent again, after a pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rowtide.connectors.sinks.opensearch.cluster import ClusterRefused, OpenSearchCluster, TooLarge
from rowtide.core.values.errors import Unavailable

__all__ = ["Bulk", "Item", "RefusedItem"]

PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses before the next attempt. After the last one the cluster counts as unavailable."""

DOCUMENTS_MAX = 1000
_ANSWER = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason"
_BLOCKED = "cluster_block_exception"
"""The cluster accepts no writes, for example because a disk is full."""


class Item(NamedTuple):
    """A document to be written under an id, unless a higher version exists."""

    id: str
    version: int
    document: str

    def lines(self) -> bytes:
        """Return the lines of a bulk request. An id has no character that JSON escapes."""
        return (
            f'{{"index":{{"_id":"{self.id}","version":{self.version},"version_type":"external_gte"}}}}\n'
            f"{self.document}\n"
        ).encode()


class RefusedItem(NamedTuple):
    """A document that the cluster will never accept, by its index among those sent."""

    place: int
    reason: str


class _Sending(NamedTuple):
    place: int
    lines: bytes


class Bulk:
    """Sends documents to ``alias``. A request never creates an index of that name."""

    def __init__(self, cluster: OpenSearchCluster, alias: str, *, request_bytes: int) -> None:
        self._cluster = cluster
        self._path = f"/{alias}/_bulk?require_alias=true&{_ANSWER}"
        self._request_bytes = request_bytes

    async def put(self, items: Sequence[Item]) -> list[RefusedItem]:
        """Write documents. Return those that are refused for good. Raises ``Unavailable``."""
        refused: list[RefusedItem] = []
        sending = [_Sending(place, item.lines()) for place, item in enumerate(items)]
        for pause_s in (*PAUSES_S, None):
            again: list[_Sending] = []
            for part in self._parts(sending):
                again += await self._send(part, refused)
            if not again:
                return refused
            if pause_s is not None:
                await asyncio.sleep(pause_s)
            sending = again
        raise Unavailable(
            f"The cluster was too busy for {len(sending)} documents, in {len(PAUSES_S) + 1} tries."
        )

    def _parts(self, sending: Sequence[_Sending]) -> Iterator[list[_Sending]]:
        """Yield requests of bounded size. One document may exceed the bound alone."""
        part: list[_Sending] = []
        size = 0
        for one in sending:
            full = size + len(one.lines) > self._request_bytes or len(part) == DOCUMENTS_MAX
            if part and full:
                yield part
                part, size = [], 0
            part.append(one)
            size += len(one.lines)
        if part:
            yield part

    async def _send(self, part: list[_Sending], refused: list[RefusedItem]) -> list[_Sending]:
        """Send one request. Return the documents to send again, and add refused ones."""
        body = b"".join(one.lines for one in part)
        try:
            answer = await self._cluster.send("POST", self._path, body, kind="application/x-ndjson")
        except TooLarge as error:
            if len(part) == 1:
                refused.append(RefusedItem(part[0].place, str(error)))
                return []
            half = len(part) // 2
            again = await self._send(part[:half], refused)
            return again + await self._send(part[half:], refused)
        if not answer.get("errors"):
            return []
        return [
            one
            for one, result in zip(part, answer["items"], strict=True)
            if _again(one, result["index"], refused)
        ]


def _again(one: _Sending, result: dict[str, Any], refused: list[RefusedItem]) -> bool:
    """True if a document must be sent again. Add it to ``refused`` if it is refused."""
    status = result["status"]
    if status < 300 or status == 409:  # 409: a later stamp exists.
        return False
    kind, reason = result["error"]["type"], result["error"]["reason"]
    if status == 429 or status >= 500 or kind == _BLOCKED:
        return True
    if status not in (400, 413):
        # The index is gone, or writing is forbidden. The document is not the cause.
        raise ClusterRefused(status, kind, reason)
    refused.append(RefusedItem(one.place, f"{kind}: {reason}"))
    return False
