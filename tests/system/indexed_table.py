"""A table with indexes on a server that is killed: its writers, what they leave, what is left over.

Writers do not remember their answers: whatever rows are there at the end, the indexes must
agree with them. Of an index's rows in the store and in the changelog only their numbers are known
here, which are never used twice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.client.wire_row import Change, Delete, Increment, Key, Put, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.shard.index import PROGRESS, progress_of
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from rowtide.stream.shard.row_store import RowStore
from tests.api.calls import ask, batch_write, delete, put, update
from tests.system.server import Server
from tests.system.writing import Writing

__all__ = [
    "TABLE",
    "Writers",
    "changelog_numbers",
    "compare_index",
    "create",
    "fill",
    "has_followed",
    "index_meta",
    "log_starts",
    "store_numbers",
]

TABLE = "indexed"
KEY = ("PK1", "PK2")
PARTITIONS = 5
ROWS = 30
KNOCK_S = 0.05
Rows = list[dict[str, Any]]


def index_meta(name: str, kind: int) -> pb.IndexMeta:
    """Return an index by n that keeps s."""
    local = kind == pb.IT_LOCAL_INDEX
    return pb.IndexMeta(
        name=name,
        primary_key=["PK1", "n"] if local else ["n"],
        defined_column=["s"],
        index_type=kind,  # type: ignore[arg-type]
        index_update_mode=pb.IUM_SYNC_INDEX if local else pb.IUM_ASYNC_INDEX,
    )


def create(client: ProtocolClient, *indexes: pb.IndexMeta) -> None:
    """Create the table, keyed PK1 STRING, PK2 INTEGER, with defined columns n and s."""
    request = pb.CreateTableRequest(
        table_meta=pb.TableMeta(
            table_name=TABLE,
            primary_key=[
                pb.PrimaryKeySchema(name="PK1", type=pb.STRING),
                pb.PrimaryKeySchema(name="PK2", type=pb.INTEGER),
            ],
            defined_column=[
                pb.DefinedColumnSchema(name="n", type=pb.DCT_INTEGER),
                pb.DefinedColumnSchema(name="s", type=pb.DCT_STRING),
            ],
        ),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
        table_options=pb.TableOptions(max_versions=1, time_to_live=-1),
        index_metas=indexes,
    )
    ask(client, request)


def fill(client: ProtocolClient, count: int) -> None:
    """Put rows that no writer touches."""
    for start in range(0, count, 200):
        places = range(start, min(count, start + 200))
        many = [put(TABLE, _key("old", n), [Put("n", n % 11), Put("s", "old")]) for n in places]
        ask(client, batch_write([(TABLE, many)]))


def _key(first: str, second: int) -> Key:
    return ((KEY[0], first), (KEY[1], second))


class Writers(Writing["Writer"]):
    """Writers against ``server``, on threads; ``seed`` decides what they write."""

    def __init__(self, server: Server, *, seed: int, count: int = 3) -> None:
        stop = threading.Event()
        super().__init__(stop, [Writer(server, stop, number, seed) for number in range(count)])

    @property
    def answered(self) -> int:
        """Number of requests that were answered so far."""
        assert all(writer.is_alive() for writer in self.writers), "a writer failed"
        return sum(writer.answered for writer in self.writers)


class Writer(threading.Thread):
    """One client on a thread of its own; while the server is away it knocks."""

    def __init__(self, server: Server, stop: threading.Event, number: int, seed: int) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.answered = 0
        self._server = server
        self._halt = stop
        self._random = random.Random(seed * 1000 + number)
        self._client: ProtocolClient | None = None

    def run(self) -> None:
        """Write until the load stops."""
        while not self._halt.is_set():
            try:
                if self._client is None:
                    self._client = self._server.client()
                ask(self._client, self._request())
                self.answered += 1
            except (NoAnswer, ServerError, FileNotFoundError):
                if self._client is not None:
                    self._client.close()
                    self._client = None
                self._halt.wait(KNOCK_S)
        if self._client is not None:
            self._client.close()

    def _request(self) -> Any:
        """Return the next write: of one row, or of some of one partition key, all or none."""
        first = f"p{self._random.randrange(PARTITIONS)}"
        if self._random.random() < 0.7:
            return self._write(first, self._random.randrange(ROWS))
        many = [self._write(first, n) for n in self._random.sample(range(ROWS), 4)]
        return batch_write([(TABLE, many)], is_atomic=True)

    def _write(self, first: str, second: int) -> Any:
        row = _key(first, second)
        n, s = self._random.randrange(6), self._random.choice("abc")
        kind = self._random.random()
        if kind < 0.15:
            return delete(TABLE, row)
        if kind < 0.5:
            return put(TABLE, row, [Put("n", n), Put("s", s)] if kind < 0.4 else [Put("s", s)])
        changes: Sequence[Change] = self._random.choice(
            [[Put("n", n)], [Put("s", s)], [Delete("n")], [Increment("n", 1)], [Put("x", "other")]]
        )
        return update(TABLE, row, changes)


# What is there in the end.


def _read(client: ProtocolClient, name: str) -> Rows:
    names = [c.name for c in client.describe_table(name).table_meta.primary_key]
    low = tuple((column, Special.INF_MIN) for column in names)
    high = tuple((column, Special.INF_MAX) for column in names)
    page = pb.GetRangeRequest(direction=pb.FORWARD, max_versions=1)
    found = [row for rows in client.get_range(name, low, high, page=page) for row in rows]
    return [{**dict(row.key), **{p.name: p.value for p in row.columns}} for row in found]


def compare_index(client: ProtocolClient, index: pb.IndexMeta) -> int:
    """Hold an index to the table's rows as they are now; return how many it has."""
    shown = [*KEY, "n", "s"]
    table = [row for row in _read(client, TABLE) if "n" in row]
    names = [c.name for c in client.describe_table(index.name).table_meta.primary_key]
    wanted = sorted(
        ({name: row[name] for name in shown if name in row} for row in table),
        key=lambda row: [row[name] for name in names],
    )
    found = _read(client, index.name)
    assert found == wanted, f"{index.name} differs from its table: {_difference(found, wanted)}"
    return len(found)


def _difference(found: Rows, wanted: Rows) -> str:
    one, other = ({tuple(sorted(row.items())) for row in rows} for rows in (found, wanted))
    return f"too many {sorted(one - other)[:5]}, missing {sorted(other - one)[:5]}"


def has_followed(client: ProtocolClient) -> bool:
    """True if every index has all rows there were and is behind nothing."""
    indexes = client.call_json("RowtideListIndexes", {"table": TABLE})["indexes"]
    return all((one["phase"], one["behind"]) == ("following", 0) for one in indexes)


def store_numbers(server: Server) -> set[int]:
    """Return the numbers of the tables and indexes of which a stopped server's rows hold any."""
    found: set[int] = set()
    for path in sorted((server.data_dir / "rows").iterdir()):
        rows = RowStore(path)
        found |= {int.from_bytes(k[1:5], "big") for k, _ in rows.scan(b"r", b"s")}
        found |= {progress_of(k) for k, _ in rows.scan(PROGRESS, b"j")}
        rows.close()
    return found


async def changelog_numbers(bootstrap: str, prefix: str) -> set[int]:
    """Return the numbers of the tables and indexes of which the changelog holds any."""
    topic = f"{prefix}-rows-changelog"
    live: set[bytes] = set()
    async with KafkaCluster(KafkaConfig(bootstrap, topic_prefix=prefix)) as cluster:
        slots = (await cluster.topics())[f"{prefix}.lease"]
        for partition in range(slots):
            reader = KafkaChangelogReader(cluster.brokers, topic, partition)
            async for entries in reader.read(await reader.start()):
                for entry in entries:
                    (live.discard if entry.value is None else live.add)(entry.key)
    rows = {int.from_bytes(key[1:5], "big") for key in live if key[:1] == b"r"}
    return rows | {progress_of(key) for key in live if key[:1] == PROGRESS}


async def log_starts(bootstrap: str, prefix: str) -> list[int]:
    """Return where the log of each shard begins."""
    async with KafkaCluster(KafkaConfig(bootstrap, topic_prefix=prefix)) as cluster:
        names = [n for n in await cluster.topics() if n.startswith(f"{prefix}.shard.")]
        return [(await cluster.log(name).bounds())[0] for name in names]
