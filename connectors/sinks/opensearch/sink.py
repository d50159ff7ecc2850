"""A table in OpenSearch or Elasticsearch.

    sink: {kind: opensearch, url: "https://search:9200", user: rowtide, password: "${SEARCH}"}

The external version of a row's document is the row's stamp, so the cluster itself drops
older rows. A deleted row stays as a document that the alias hides, because a cluster
forgets the versions of deleted documents after a minute.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.opensearch.cluster import (
    ClusterRefused,
    ClusterSettings,
    OpenSearchCluster,
)
from rowtide.connectors.sinks.opensearch.documents import META
from rowtide.connectors.sinks.opensearch.generation import Generation, IndexSettings
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["OpenSearchSink", "make_sink"]

logger = logging.getLogger(__name__)

PURGE_EVERY_S = 3600.0
DAY_US = 86_400 * 1_000_000
# Names that a cluster accepts, except those that begin like its own.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
LANGUAGES = (
    *("standard", "arabic", "armenian", "basque", "bengali", "brazilian", "bulgarian", "catalan"),
    *("cjk", "czech", "danish", "dutch", "english", "estonian", "finnish", "french", "galician"),
    *("german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "latvian"),
    *("lithuanian", "norwegian", "persian", "portuguese", "romanian", "russian", "sorani"),
    *("spanish", "swedish", "thai", "turkish"),
)


def make_sink(fields: Fields, _surroundings: ConnectorContext) -> OpenSearchSink:
    """Return the sink that settings describe. See ``docs/guides/connectors/search.md``."""
    url = fields.url("url")
    alias = fields.text("index", "")
    if alias and not _NAME.fullmatch(alias):
        raise SettingsRefused(
            f"{fields.where}.index must be lower-case letters, digits, '_', '-' and '.', "
            f"but is {alias!r}."
        )
    cluster = ClusterSettings(
        url,
        fields.text("user", ""),
        fields.text("password", ""),
        fields.text("api_key", ""),
        fields.text("ca_file", ""),
        fields.flag("verify", True),
    )
    index = IndexSettings(
        alias,
        fields.choice("language", LANGUAGES, "standard"),
        fields.integer("shards", 1, least=1, most=1024),
        fields.integer("replicas", least=0, most=16) if fields.has("replicas") else None,
        fields.integer("refresh_ms", 1000, least=50, most=3_600_000),
        fields.integer("fields_max", 1000, least=50, most=100_000),
        fields.integer("request_bytes", 5 * 1024 * 1024, least=1024, most=90 * 1024 * 1024),
    )
    return OpenSearchSink(
        cluster,
        index,
        rebuild=fields.integer("rebuild", 1, least=1, most=1_000_000),
        keep_former=fields.flag("keep_former", False),
        deletes_days=fields.integer("deletes_days", 30, least=0, most=36_500),
        requests_at_once=fields.integer("requests_at_once", 4, least=1, most=64),
    )


class OpenSearchSink:
    """One table's documents. Deleted rows are kept for ``deletes_days``, 0: for ever."""

    def __init__(
        self,
        cluster: ClusterSettings,
        index: IndexSettings,
        *,
        rebuild: int = 1,
        keep_former: bool = False,
        deletes_days: int = 30,
        requests_at_once: int = 4,
    ) -> None:
        self._cluster_settings = cluster
        self._settings = index
        self._rebuild = rebuild
        self._keep_former = keep_former
        self._deletes_days = deletes_days
        self._requests_at_once = requests_at_once
        self._turns = asyncio.Semaphore(requests_at_once)
        self._cluster: OpenSearchCluster | None = None
        self._purged_s = float("-inf")
        self._former: Generation | None = None
        """The index that the alias shows during a rebuild. It still gets every batch."""

    async def open(self, table: TableShape) -> None:
        """Create the index. Move the alias to it unless an earlier generation has the alias."""
        self._connect(table)
        live = await self._live()
        if live and max(live) > self._rebuild:
            raise Rejected(
                "OTSParameterInvalid",
                f"The alias {self._alias} shows rebuild {max(live)}, later than {self._rebuild}.",
            )
        await self._mine.make(table)
        if live and max(live) < self._rebuild:
            self._former = self._generation(max(live))
            await self._former.load(table)
            if await self._mine.is_complete():
                await self._move_alias()
        elif not live:
            await self._move_alias()

    async def open_to_read(self, table: TableShape) -> None:
        """Create nothing. Raises ``Rejected`` if there is no index."""
        self._connect(table)
        if not await self._mine.exists():
            raise Rejected("OTSObjectNotExist", f"There is no index {self._mine.index}.")

    def _connect(self, table: TableShape) -> None:
        self._table = table
        if not self._settings.alias:
            self._settings = replace(self._settings, alias=_alias_of(table))
        self._alias = self._settings.alias
        self._cluster = OpenSearchCluster(
            self._cluster_settings, connections=2 * self._requests_at_once
        )
        self._mine = self._generation(self._rebuild)

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Write a batch's rows. During a rebuild write them to the former index too."""
        async with self._turns:
            if self._former is not None:
                await self._apply_to_former(self._former, batch)
            refused = await self._mine.apply(batch, self._table)
            covers = batch.covers if self._former is not None else None
            if covers is not None and await self._mine.cover(covers):
                await self._move_alias()
            await self._purge_now_and_then()
        return refused

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the columns: every value is stored as it is."""
        return columns

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return rows of the newest generation. All applied batches are visible."""
        return await self._mine.read_rows(begin, end, limit=limit, table=self._table)

    def _generation(self, number: int) -> Generation:
        assert self._cluster is not None, "not open"
        return Generation(self._cluster, self._settings, number)

    async def _live(self) -> list[int]:
        """Return the generations that the alias shows: one, or none yet."""
        assert self._cluster is not None, "not open"
        found = await self._cluster.get(f"/_alias/{self._alias}", absent={})
        numbers = [re.fullmatch(rf"{re.escape(self._alias)}-r(\d+)", index) for index in found]
        return [int(number[1]) for number in numbers if number]

    async def _apply_to_former(self, former: Generation, batch: SinkBatch) -> None:
        try:
            await former.apply(batch, self._table)
        except ClusterRefused as error:
            if error.status != 404:
                raise
            self._former = None  # Another process finished the rebuild.

    async def _move_alias(self) -> None:
        """Make the alias show this generation and no other."""
        assert self._cluster is not None, "not open"
        hidden = {"bool": {"must_not": {"term": {f"{META}.gone": True}}}}
        shown = {"index": self._mine.index, "alias": self._alias, "filter": hidden}
        while True:
            actions: list[dict[str, object]] = [{"add": shown}]
            for number in await self._live():
                if number != self._rebuild:
                    former = self._generation(number).index
                    actions.append(
                        {"remove": {"index": former, "alias": self._alias}}
                        if self._keep_former
                        else {"remove_index": {"index": former}}
                    )
            try:
                await self._cluster.call("POST", "/_aliases", {"actions": actions})
                break
            except ClusterRefused as error:
                if error.status != 404:  # Otherwise another process was first.
                    raise
        self._former = None

    async def _purge_now_and_then(self) -> None:
        if self._deletes_days and time.monotonic() - self._purged_s > PURGE_EVERY_S:
            self._purged_s = time.monotonic()
            try:
                await self._mine.purge(time.time_ns() // 1000 - self._deletes_days * DAY_US)
            except ClusterRefused as error:
                # Some users lack the permission. The rows then only take space.
                logger.warning("deleted rows are not purged from %s: %s", self._mine.index, error)


def _alias_of(table: TableShape) -> str:
    """Return the default alias of a table."""
    alias = table.name.lower()
    if not _NAME.fullmatch(alias):
        raise Rejected(
            "OTSParameterInvalid", f"Table {table.name} can't name an index: set 'index'."
        )
    return alias
