"""A Kafka topic with every change of a table, in Debezium's envelope.

A record's key is the primary key, so a row's records are in one partition, in order. A
delete is an envelope with ``op`` d, followed by a tombstone. Each record has its stamp in
the header ``rowtide.stamp``. ``marks.py`` and ``shard_writer.py`` say how repetitions are
dropped.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.kafka.avro_form import AvroForm
from rowtide.connectors.sinks.kafka.columns import (
    NOTHING,
    Columns,
    DeclaredColumns,
    parse_sink_columns,
)
from rowtide.connectors.sinks.kafka.envelope import Names
from rowtide.connectors.sinks.kafka.json_form import JsonForm
from rowtide.connectors.sinks.kafka.leftovers import Leftovers
from rowtide.connectors.sinks.kafka.marks import MARKS, read_marks
from rowtide.connectors.sinks.kafka.registry_client import RegistryClient
from rowtide.connectors.sinks.kafka.shard_writer import ShardWriter
from rowtide.connectors.sinks.kafka.topic_rows import STAMP, TopicRows
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.schema import KeyColumn
from rowtide.core.values.variant import Scalar
from rowtide.stream.log.changelog import Change
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import APPEND_TIME, TIME_OF, KafkaConfig, Security
from rowtide.stream.log.kafka.fetch import Place
from rowtide.stream.log.kafka.transaction import partition_of

__all__ = ["KafkaSink", "KafkaSinkSettings", "make_sink"]

Form = Literal["json", "json-schemas", "avro"]
RECORD_OVERHEAD = 1024
"""Upper bound of what a batch with one record adds to it, with headers."""
BATCH_BYTES_MAX = 1 << 20
RECORD_BYTES_NEW = 16 << 20
"""``max.message.bytes`` of a topic that is created here. An existing topic keeps its own."""


@dataclass(frozen=True, slots=True)
class KafkaSinkSettings:
    """The topic and its form.

    ``partitions``, ``replicas`` (0: three, or as many as there are brokers) and
    ``compacted`` apply to a new topic. An existing topic is left as it is.
    """

    kafka: KafkaConfig
    prefix: str
    instance: str
    topic: str = ""
    form: Form = "json"
    registry: RegistryClient | None = None
    columns: DeclaredColumns = NOTHING
    tombstones: bool = True
    compacted: bool = False
    partitions: int = 1
    replicas: int = 0


class KafkaSink:
    """One table's topic. Batches of several shards are written at once, each in a transaction."""

    every_change = True
    """A topic has each row of a key, not only the last of a batch."""
    batch_rows = 5000
    """Transactions of one shard are sequential, so larger batches are faster."""

    def __init__(self, settings: KafkaSinkSettings) -> None:
        self._settings = settings
        self._opened: KafkaCluster | None = None
        self._form: JsonForm | AvroForm | None = None
        self._rows: TopicRows | None = None
        self._writers: dict[str, ShardWriter] = {}
        self._leftovers: dict[str, Leftovers] = {}
        self._key_columns: tuple[KeyColumn, ...] = ()
        self._began_empty = False
        self._topic = ""
        self._partitions = 0
        self._record_bytes_max = 0

    @property
    def _cluster(self) -> KafkaCluster:
        assert self._opened is not None, "opened before"
        return self._opened

    async def open(self, table: TableShape) -> None:
        """Create the topic and the topic of its marks if they are missing."""
        settings = self._settings
        columns = Columns(table, settings.columns)
        names = Names(settings.prefix, settings.instance, table.name)
        self._topic = settings.topic or names.topic
        await self.close()
        # Created here because it reads certificate files.
        self._opened = KafkaCluster(settings.kafka)
        await self._cluster.start()
        await self._make_topics()
        found = await self._cluster.settings(self._topic)
        self._record_bytes_max = int(found["max.message.bytes"]) - RECORD_OVERHEAD
        if settings.registry is not None:
            self._form = AvroForm(columns, names, self._topic, settings.registry)
        else:
            schemas = settings.form == "json-schemas"
            self._form = JsonForm(columns, names, schemas=schemas)
        await self._form.open()
        brokers = self._cluster.brokers
        self._rows = TopicRows(brokers, self._topic, self._partitions, self._form)
        self._writers = {}
        self._leftovers = {}
        self._key_columns = table.key
        # Then the topic has only what is written from now on.
        self._began_empty = not await read_marks(brokers, self._topic + MARKS)

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Write a batch. Return the rows that the topic can't take."""
        form = self._form
        assert form is not None, "opened before"
        writer = self._writer(batch.shard_id)
        async with writer.turn:
            rows = await writer.new(batch, form.columns.merge)
            if batch.covers is not None and not writer.has(batch):
                rows = [*rows, *await self._find_missing(batch)]
            if not rows:
                return []
            rows, unfit = _divide_rows(rows, form.unfit)
            await form.prepare(rows)
            records, too_large = self._records(form, rows, batch.shard_id)
            # The mark needs the first refused row of each key first.
            refused = sorted([*unfit, *too_large], key=lambda refusal: refusal.row.sequence)
            kept = form.columns.types if self._settings.form == "json-schemas" else {}
            await writer.write(batch, records, kept, [refusal.row for refusal in refused])
        return refused

    async def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            await self._opened.stop()
        if self._settings.registry is not None:
            await self._settings.registry.close()

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return columns as they are read back, see ``Comparable``."""
        assert self._form is not None, "opened before"
        return self._form.convert_columns(columns)

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return the current rows by the topic's records, see ``Comparable``."""
        assert self._rows is not None, "opened before"
        assert self._form is not None, "opened before"
        marks = f"{self._topic}{MARKS}"
        for mark in (await read_marks(self._cluster.brokers, marks)).values():
            self._form.columns.merge(mark.columns)
        return await self._rows.read_rows(begin, end, limit=limit)

    async def _make_topics(self) -> None:
        settings = self._settings
        policy = {"cleanup.policy": "compact" if settings.compacted else "delete"}
        times = {TIME_OF: APPEND_TIME}
        self._partitions = await self._cluster.create_topic(
            self._topic,
            partitions=settings.partitions,
            replicas=settings.replicas,
            settings=policy | times | {"max.message.bytes": str(RECORD_BYTES_NEW)},
        )
        await self._cluster.create_topic(
            f"{self._topic}{MARKS}",
            partitions=1,
            replicas=settings.replicas,
            settings=times | {"cleanup.policy": "compact"},
        )

    def _writer(self, shard: str) -> ShardWriter:
        writer = self._writers.get(shard)
        if writer is None:
            size = min(BATCH_BYTES_MAX, self._record_bytes_max)
            writer = ShardWriter(self._cluster.brokers, self._topic, shard, batch_bytes=size)
            self._writers[shard] = writer
        return writer

    async def _find_missing(self, page: SinkBatch) -> list[SinkRow]:
        """Return deletes of rows in a page's range that the topic has and the table lacks."""
        if self._began_empty:
            return []
        assert self._rows is not None, "opened before"
        known = self._leftovers.get(page.shard_id)
        if known is None:
            known = self._leftovers[page.shard_id] = Leftovers(self._key_columns, self._rows)
        return await known.find_missing(page)

    def _records(
        self, form: JsonForm | AvroForm, rows: Sequence[SinkRow], shard: str
    ) -> tuple[Mapping[Place, Sequence[Change]], list[Refused]]:
        """Return rows as records by partition. Refuse too large ones and what follows them."""
        records: dict[Place, list[Change]] = defaultdict(list)
        now_ms = int(time.time() * 1000)

        def add(row: SinkRow) -> str:
            key, value = form.key(row), form.value(row, shard, now_ms)
            size, limit = len(key) + len(value), self._record_bytes_max
            if size > limit:
                return f"its record has {size} bytes, the limit is {limit}"
            headers = [(STAMP, str(row.stamp).encode())]
            place = (self._topic, partition_of(key, self._partitions))
            records[place].append((key, value, headers))
            if row.columns is None and self._settings.tombstones:
                records[place].append((key, None, headers))
            return ""

        return records, _divide_rows(rows, add)[1]


def _divide_rows(
    rows: Sequence[SinkRow], reason_of: Callable[[SinkRow], str]
) -> tuple[list[SinkRow], list[Refused]]:
    """Return the accepted rows, and the refused rows with the later rows of their keys.

    ``reason_of`` is not called for later rows of a refused key.
    """
    kept: list[SinkRow] = []
    refused: list[Refused] = []
    keys: dict[bytes, str] = {}
    for row in rows:
        if why := keys.get(row.key_bytes):
            # If this row were written, a retry of the refused one would follow it and
            # look newer.
            refused.append(Refused(row, f"behind a refused row of its key: {why}"))
        elif why := reason_of(row):
            keys[row.key_bytes] = why
            refused.append(Refused(row, why))
        else:
            kept.append(row)
    return kept, refused


def make_sink(fields: Fields, surroundings: ConnectorContext) -> KafkaSink:
    """Return the sink that settings describe."""
    form = fields.choice("format", ("json", "json-schemas", "avro"), "json")
    registry = fields.inner("registry")
    url = registry.url("url") if registry.has("url") else ""
    if (form == "avro") != bool(url):
        raise SettingsRefused(f"{fields.where}: avro, and only avro, needs registry.url.")
    client = RegistryClient(
        url,
        user=registry.text("user", ""),
        password=registry.text("password", ""),
        timeout_s=float(registry.integer("timeout_s", 10, least=1, most=300)),
    )
    registry.refuse_unknown()
    columns = parse_sink_columns(fields.inner("columns"))
    if form == "json" and columns.logical:
        raise SettingsRefused(
            f"{fields.where}.columns has logical types, such as that of "
            f"{min(columns.logical)}, which the format json lacks: use json-schemas or avro."
        )
    settings = KafkaSinkSettings(
        _kafka(fields),
        prefix=fields.text("prefix", "rowtide"),
        instance=fields.text("instance", ""),
        topic=fields.text("topic", ""),
        form=form,  # type: ignore[arg-type]  # One of the three, by `choice`.
        registry=client if url else None,
        columns=columns,
        tombstones=fields.flag("tombstones", True),
        compacted=fields.flag("compacted", False),
        partitions=fields.integer("partitions", 1, least=1, most=10_000),
        replicas=fields.integer("replicas", 0, least=0, most=100),
    )
    return KafkaSink(settings)


def _kafka(fields: Fields) -> KafkaConfig:
    security = fields.inner("security")
    bootstrap = fields.text("brokers")
    names = ("user", "password", "cafile", "certfile", "keyfile")
    who = [security.text(name, "") or None for name in names]
    protocol, mechanism = (
        security.text("protocol", "PLAINTEXT"),
        security.text("mechanism", "PLAIN"),
    )
    try:
        proof = Security(protocol, mechanism, *who)
        config = KafkaConfig(bootstrap, proof, record_bytes_max=64 << 20)
    except ValueError as error:
        raise SettingsRefused(f"{fields.where}: {error}") from error
    security.refuse_unknown()
    return config
