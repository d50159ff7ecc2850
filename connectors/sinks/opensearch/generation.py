"""One index of a table. It is created, filled, searched through an alias, and replaced by
another.

Users search the alias, ``flights``, which hides deleted rows. Behind it is
``flights-r1``, the index of generation 1. A rebuild fills ``flights-r2`` from a snapshot.
Once pages have covered every possible key, the alias is moved in one step.

Documents are written through a second alias, ``flights-r1-write``, which is removed with
the index. So a process that was paused during the removal does not create the index again
by writing to it.
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
from rowtide.core.values.key_ranges import Range, Ranges, subtract_ranges

__all__ = ["Generation", "IndexSettings"]

WHOLE: Range = (b"", b"")
PAGE = 1000
PLAN_ATTEMPTS = 10
"""Retries while other writers add fields that conflict with ours."""

BOUND_MAX = 512
"""Digits of a key in a query's range. Lucene 8, in Elasticsearch 7, refuses a range with a
bound of more than 1000. So the range of long keys is wider than requested. The results after
``search_after`` and before the end are exact."""

ABOVE_DIGITS = "g"
"""Sorts after every hexadecimal digit."""

COVERS = "#covers"
"""Id of the document with the covered ranges. No key's id begins like this."""

_LIVING = {"bool": {"must_not": {"term": {f"{META}.gone": True}}}}


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How an index is created. ``replicas`` None: one if there is a second node."""

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
        """Create the index if it is missing. Raises ``Rejected`` if it is another table's."""
        if not await self.exists():
            try:
                await self._cluster.call("PUT", self._path, self._make_index_body(table))
            except ClusterRefused as error:
                if error.kind != "resource_already_exists_exception":
                    raise
        await self.load(table)

    async def exists(self) -> bool:
        """True if the index exists."""
        return bool(await self._cluster.get(f"{self._path}/_settings", absent={}))

    async def load(self, table: TableShape) -> None:
        """Read the index's fields."""
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
        """Write the last row of each key in a batch, and delete older rows that a page lacks."""
        rows = list({row.key_bytes: row for row in batch.rows}.values())
        await self._give_fields(rows, table)
        items = [Item(id_of(row.key_bytes), row.stamp, self._plan.document(row)) for row in rows]
        refused = [Refused(rows[one.place], one.reason) for one in await self._bulk.put(items)]
        if batch.covers is not None:
            named = {row.key_bytes for row in batch.rows}
            await self._end_older(batch.covers, batch.stamp, named)
        return refused

    async def read_rows(
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
        # Another writer may have added fields, so read them before the documents.
        await self.load(table)
        names = frozenset(column.name for column in table.key)
        return [self._plan.row(document, names) for document in found]

    async def cover(self, covered: Range) -> bool:
        """Record a page's range. True if the pages of all writers cover every key."""
        while True:
            ranges, standing = await self._read_covers()
            left = _find_gaps([*ranges, covered])
            ranges = list(subtract_ranges(WHOLE, left))
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

    async def is_complete(self) -> bool:
        """True if pages have covered every key."""
        ranges, _ = await self._read_covers()
        return not _find_gaps(ranges)

    async def purge(self, before: int) -> None:
        """Remove rows that were deleted before a stamp. The cluster continues after its
        response.
        """
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
        """Add the fields that rows need. Another writer may add others at the same time."""
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
        """Write a tombstone for each row of a page's range that is older and not in the page."""
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
        """Return living documents of a range in key order, after ``after``."""
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

    async def _read_covers(self) -> tuple[list[Range], str]:
        """Return the covered ranges, and the parameters that make a concurrent write fail."""
        path = f"{self._path}/_doc/{quote(COVERS)}"
        found = await self._cluster.get(path, absent={})
        if "_source" not in found:
            return [], "op_type=create"
        ranges = json.loads(found["_source"][META]["covers"])
        standing = f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}"
        return [(bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in ranges], standing

    def _make_index_body(self, table: TableShape) -> dict[str, object]:
        settings = self._settings
        copies: dict[str, object] = {"auto_expand_replicas": "0-1"}
        if settings.replicas is not None:
            copies = {"number_of_replicas": settings.replicas}
        return {
            "settings": {
                "number_of_shards": settings.shards,
                **copies,
                "refresh_interval": f"{settings.refresh_ms}ms",
                # A request is on disk before its response. This is the default, and must
                # stay.
                "translog.durability": "request",
                # Room for our own fields, and for two writers that add fields at the same
                # time.
                "mapping.total_fields.limit": settings.fields_max + 50,
                "analysis": {"analyzer": {"default": {"type": settings.language}}},
            },
            "aliases": {f"{self.index}-write": {}},
            "mappings": {
                # Fields are added only by the sink: the cluster would guess types from
                # first values.
                "dynamic": False,
                "_meta": {"rowtide": {"table": table.name}},
                "properties": OWN_FIELDS,
            },
        }


def _find_gaps(covered: Sequence[Range]) -> Ranges:
    """Return what pages have not covered, without single keys: those are parked."""
    return tuple(
        (begin, end) for begin, end in subtract_ranges(WHOLE, covered) if end != begin + b"\0"
    )


def _below(digits: str) -> str:
    """Return a text just below some hexadecimal digits, above all lower keys."""
    return f"{digits[:-1]}{chr(ord(digits[-1]) - 1)}{ABOVE_DIGITS}"
