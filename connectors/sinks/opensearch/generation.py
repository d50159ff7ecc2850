"""One index of a table: made, filled, searched through an alias, replaced by another.

Users search the alias, ``flights``; it hides rows that are gone. Behind it is ``flights-r1``, the
index of generation 1. A rebuild fills ``flights-r2`` from a snapshot; once pages of rows have
covered every key there may be, the alias is moved in one step.

Documents are put through a second alias, ``flights-r1-write``, that goes with the index: a process
that was paused while the index was removed makes no index of that name by writing to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.opensearch.bulk import Bulk, Item
from rowtide.connectors.sinks.opensearch.cluster import ClusterRefused, OpenSearchCluster
from rowtide.connectors.sinks.opensearch.documents import (
    META,
    OWN_FIELDS,
    FieldPlan,
    id_of,
    tombstone,
)
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.errors import Rejected
from rowtide.core.values.key_ranges import Range, Ranges, left_of

__all__ = ["Generation", "IndexSettings"]

WHOLE: Range = (b"", b"")
PAGE = 1000
PLAN_ATTEMPTS = 10
"""How often other writers may be first with fields that clash with ours."""

BOUND_MAX = 512
"""Digits of a key in a query's range. Lucene 8, which Elasticsearch 7 is made of, refuses a range
with a bound of more than 1000. So a range is wider than asked where keys are long; what is behind
``search_after`` and before the end is exact."""

ABOVE_DIGITS = "g"
"""Sorts behind every hexadecimal digit."""

COVERS = "#covers"
"""Id of the document that says what pages have covered; no key's id begins so."""

_LIVING = {"bool": {"must_not": {"term": {f"{META}.gone": True}}}}


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How an index is made. ``replicas`` None: one, where there is a second node."""

    alias: str
    language: str = "standard"
    shards: int = 1
    replicas: int | None = None
    refresh_ms: int = 1000
    fields_max: int = 1000
    request_bytes: int = 5 * 1024 * 1024


class Generation:
    """The index of one generation."""

    def __init__(self, cluster: OpenSearchCluster, settings: IndexSettings, number: int) -> None:
        self.number = number
        self.index = f"{settings.alias}-r{number}"
        self._cluster = cluster
        self._settings = settings
        self._path = f"/{quote(self.index)}"
        self._plan = FieldPlan(settings.fields_max)
        self._bulk = Bulk(
            cluster, quote(f"{self.index}-write"), request_bytes=settings.request_bytes
        )

    async def make(self, table: TableShape) -> None:
        """Make the index where it is missing. Raises ``Rejected`` where it is another table's."""
        if not await self.exists():
            try:
                await self._cluster.call("PUT", self._path, self._described(table))
            except ClusterRefused as error:
                if error.kind != "resource_already_exists_exception":
                    raise
        await self.load(table)

    async def exists(self) -> bool:
        """True if the index exists."""
        return bool(await self._cluster.get(f"{self._path}/_settings", absent={}))

    async def load(self, table: TableShape) -> None:
        """Learn its fields."""
        found = await self._cluster.get(f"{self._path}/_mapping")
        mapping = found[self.index]["mappings"]
        of = mapping.get("_meta", {}).get("rowtide", {}).get("table")
        if of != table.name:
            raise Rejected(
                "OTSParameterInvalid",
                f"Index {self.index} is of table {of}, not of {table.name}: name another one."
                if of
                else f"Index {self.index} was not made by rowtide: name another one.",
            )
        self._plan.load(mapping["properties"])

    async def apply(self, batch: SinkBatch, table: TableShape) -> list[Refused]:
        """Put a batch's rows, the last of each key, and end those that a page has not."""
        rows = list({row.key_bytes: row for row in batch.rows}.values())
        await self._give_fields(rows, table)
        items = [Item(id_of(row.key_bytes), row.stamp, self._plan.document(row)) for row in rows]
        refused = [Refused(rows[one.place], one.reason) for one in await self._bulk.put(items)]
        if batch.covers is not None:
            named = {row.key_bytes for row in batch.rows}
            await self._end_older(batch.covers, batch.stamp, named)
        return refused

    async def held(
        self, begin: bytes, end: bytes, *, limit: int, table: TableShape
    ) -> list[HeldRow]:
        """Return the first living rows of a range."""
        await self._cluster.call("POST", f"{self._path}/_refresh")
        found: list[dict[str, Any]] = []
        after = ""
        while len(found) < limit:
            hits = await self._page((begin, end), after, [], limit=min(PAGE, limit - len(found)))
            if not hits:
                break
            found += [hit["_source"] for hit in hits]
            after = hits[-1]["sort"][0]
        # Another writer may have given the index fields: documents are read as it is by now.
        await self.load(table)
        names = frozenset(column.name for column in table.key)
        return [self._plan.row(document, names) for document in found]

    async def cover(self, covered: Range) -> bool:
        """Record what a page has covered. True if all writers' pages cover everything."""
        while True:
            ranges, standing = await self._covered()
            left = _left([*ranges, covered])
            ranges = list(left_of(WHOLE, left))
            text = json.dumps([[begin.hex(), end.hex()] for begin, end in ranges])
            path = f"{self._path}/_doc/{quote(COVERS)}?{standing}"
            try:
                body = {META: {"gone": True, "covers": text}}
                await self._cluster.call("PUT", path, body)
            except ClusterRefused as error:
                if error.status != 409:
                    raise
            else:
                return not left

    async def covered_whole(self) -> bool:
        """True if pages have covered every key."""
        ranges, _ = await self._covered()
        return not _left(ranges)

    async def purge(self, before: int) -> None:
        """Forget rows that were deleted before a stamp; the cluster goes on after the answer."""
        query = {
            "bool": {
                "filter": [
                    {"term": {f"{META}.gone": True}},
                    {"range": {f"{META}.stamp": {"lt": before}}},
                ]
            }
        }
        path = f"{self._path}/_delete_by_query?conflicts=proceed&wait_for_completion=false"
        await self._cluster.call("POST", path, {"query": query})

    async def _give_fields(self, rows: Sequence[SinkRow], table: TableShape) -> None:
        """Give the index the fields that rows need. Another writer may be first with others."""
        for _ in range(PLAN_ATTEMPTS):
            lacking = self._plan.lacking(rows)
            if not lacking:
                return
            try:
                await self._cluster.call("PUT", f"{self._path}/_mapping", {"properties": lacking})
            except ClusterRefused as error:
                if error.status != 400:
                    raise
                if "total fields" in str(error):
                    self._plan.fill()
            await self.load(table)
        self._plan.fill()

    async def _end_older(self, covered: Range, stamp: int, named: set[bytes]) -> None:
        """Put a tombstone for each row of a range that is older than a page without it."""
        await self._cluster.call("POST", f"{self._path}/_refresh")
        older = [{"range": {f"{META}.stamp": {"lt": stamp}}}]
        after = ""
        while hits := await self._page(covered, after, older, limit=PAGE):
            after = hits[-1]["sort"][0]
            keys = [bytes.fromhex(hit["sort"][0]) for hit in hits]
            gone = [Item(id_of(k), stamp, tombstone(k, stamp)) for k in keys if k not in named]
            await self._bulk.put(gone)

    async def _page(
        self, covered: Range, after: str, filters: Sequence[object], *, limit: int
    ) -> list[dict[str, Any]]:
        """Return living documents of a range in keys' order, behind ``after``."""
        begin, end = (bound.hex() for bound in covered)
        behind = after or (_below(begin) if begin else "")
        keys = {"gte": (after or begin)[:BOUND_MAX]}
        if end:
            keys["lt"] = end if len(end) <= BOUND_MAX else f"{end[:BOUND_MAX]}{ABOVE_DIGITS}"
        within = {"range": {f"{META}.key": keys}}
        body = {
            "size": limit,
            "query": {"bool": {"filter": [within, _LIVING, *filters]}},
            "sort": [{f"{META}.key": "asc"}],
            "track_total_hits": False,
            **({"search_after": [behind]} if behind else {}),
        }
        answer = await self._cluster.call("POST", f"{self._path}/_search", body)
        hits: list[dict[str, Any]] = answer["hits"]["hits"]
        return [hit for hit in hits if not end or hit["sort"][0] < end]

    async def _covered(self) -> tuple[list[Range], str]:
        """Return what was covered, and what makes a write fail when it says otherwise by then."""
        path = f"{self._path}/_doc/{quote(COVERS)}"
        found = await self._cluster.get(path, absent={})
        if "_source" not in found:
            return [], "op_type=create"
        ranges = json.loads(found["_source"][META]["covers"])
        standing = f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}"
        return [(bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in ranges], standing

    def _described(self, table: TableShape) -> dict[str, object]:
        settings = self._settings
        copies: dict[str, object] = {"auto_expand_replicas": "0-1"}
        if settings.replicas is not None:
            copies = {"number_of_replicas": settings.replicas}
        return {
            "settings": {
                "number_of_shards": settings.shards,
                **copies,
                "refresh_interval": f"{settings.refresh_ms}ms",
                # An answered request is on disk. It is the default, and must stay.
                "translog.durability": "request",
                # Room for our own, and for two writers that add fields at the same time.
                "mapping.total_fields.limit": settings.fields_max + 50,
                "analysis": {"analyzer": {"default": {"type": settings.language}}},
            },
            "aliases": {f"{self.index}-write": {}},
            "mappings": {
                # Fields are ours to give: what the cluster guesses of a first value, it keeps.
                "dynamic": False,
                "_meta": {"rowtide": {"table": table.name}},
                "properties": OWN_FIELDS,
            },
        }


def _left(covered: Sequence[Range]) -> Ranges:
    """Return what pages have not covered, single keys left out: those are parked."""
    return tuple((begin, end) for begin, end in left_of(WHOLE, covered) if end != begin + b"\0")


def _below(digits: str) -> str:
    """Return a text below some hexadecimal digits, with nothing but other texts between them."""
    return f"{digits[:-1]}{chr(ord(digits[-1]) - 1)}{ABOVE_DIGITS}"
