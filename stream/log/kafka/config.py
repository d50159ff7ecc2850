"""How to reach Kafka, and the settings that our topics must have.

There are two durabilities, and every topic of one cluster has the same. With ``fsync``
one broker flushes each batch before it acknowledges it. With ``replicated`` two of three
brokers have the batch before it is acknowledged. Sizes are bytes, times seconds. Nothing
here calls a broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rowtide.stream.log.topics import TopicSpec

__all__ = [
    "APPEND_TIME",
    "TIME_OF",
    "KafkaConfig",
    "Security",
    "settings_to_verify",
    "topic_settings",
]

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BATCH_OVERHEAD = 64 << 10
"""Bytes that a batch may need beyond its largest record: headers, and small records with it."""

TIME_OF = "message.timestamp.type"
APPEND_TIME = "LogAppendTime"
"""Records get the broker's time. A writer's time would have to be near it: Kafka rejects
a time an hour ahead of its clock, and a worker's clock may be wrong. rowtide reads
neither.
"""

INDEX_BYTES = 32 << 10

VERIFIED = (
    "cleanup.policy",
    "delete.retention.ms",
    "flush.messages",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "unclean.leader.election.enable",
)
"""Settings that every topic must have. Others cost time or space at most."""


@dataclass(frozen=True, slots=True)
class Security:
    """Protocol and credentials of a connection. Files are PEM."""

    protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    sasl_mechanism: str = "PLAIN"
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; only with a SASL protocol."""
    sasl_username: str | None = None
    """Required with a SASL protocol."""
    sasl_password: str | None = field(default=None, repr=False)
    """Required with a SASL protocol."""
    cafile: str | None = None
    """Authorities of the brokers' certificates; the system's by default."""
    certfile: str | None = None
    """The client certificate, if brokers require one."""
    keyfile: str | None = None
    """The key of the client certificate, if it is in another file."""

    def __post_init__(self) -> None:
        if self.protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r} is none of {SECURITY_PROTOCOLS}")
        if self.sasl_mechanism not in SASL_MECHANISMS:
            raise ValueError(f"sasl_mechanism {self.sasl_mechanism!r} is none of {SASL_MECHANISMS}")
        if self.uses_sasl and (self.sasl_username is None or self.sasl_password is None):
            raise ValueError(f"{self.protocol} needs sasl_username and sasl_password")
        if not self.uses_tls and (self.cafile or self.certfile or self.keyfile):
            raise ValueError(f"certificate files have no meaning with {self.protocol}")
        if self.keyfile and not self.certfile:
            raise ValueError("keyfile needs certfile")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """One Kafka cluster as rowtide uses it.

    ``bootstrap`` lists brokers as ``host:port``, with commas. ``request_s`` bounds one
    request: too small fails on a slow disk, too large detects a dead broker late.
    ``deadline_s`` bounds a read or an administrative call with all its retries.
    ``record_bytes_max`` bounds one record; topic, append and fetch limits follow from it.
    """

    bootstrap: str
    security: Security = Security()
    topic_prefix: str = "rowtide"
    durability: Literal["fsync", "replicated"] = "fsync"
    replication_factor: int = 1
    min_insync: int = 1
    request_s: float = 10.0
    deadline_s: float = 30.0
    record_bytes_max: int = 16 << 20

    def __post_init__(self) -> None:
        if not all(":" in server for server in self.servers):
            raise ValueError(f"bootstrap {self.bootstrap!r} must be host:port[,host:port ...]")
        if self.durability not in ("fsync", "replicated"):
            raise ValueError(f"durability {self.durability!r} is neither fsync nor replicated")
        if self.durability == "replicated" and not self.replication_factor > self.min_insync >= 2:
            raise ValueError(
                "replicated needs replication_factor > min_insync >= 2, got "
                f"{self.replication_factor} and {self.min_insync}"
            )
        if not self.replication_factor >= self.min_insync >= 1:
            raise ValueError(
                f"min_insync {self.min_insync} must lie between 1 and "
                f"replication_factor {self.replication_factor}"
            )
        if not 0 < self.request_s <= self.deadline_s:
            raise ValueError(f"request_s {self.request_s} must lie in (0, {self.deadline_s}]")
        if not 64 << 10 <= self.record_bytes_max <= 64 << 20:
            raise ValueError(f"record_bytes_max {self.record_bytes_max} must be 64 KiB to 64 MiB")
        if not self.topic_prefix or len(self.topic_prefix) > 64:
            raise ValueError(f"topic_prefix {self.topic_prefix!r} must have 1 to 64 characters")

    @classmethod
    def of(
        cls, bootstrap: str, durability: Literal["fsync", "replicated"], **more: Any
    ) -> KafkaConfig:
        """Return a cluster's config with the number of copies that its durability needs."""
        copies, needed = (3, 2) if durability == "replicated" else (1, 1)
        return cls(
            bootstrap,
            durability=durability,
            replication_factor=copies,
            min_insync=needed,
            **more,
        )

    @property
    def servers(self) -> list[str]:
        return [server.strip() for server in self.bootstrap.split(",")]

    def topic(self, name: str) -> str:
        """Return the full name of our topic ``name``."""
        return f"{self.topic_prefix}.{name}"

    @property
    def batch_bytes_max(self) -> int:
        """Largest record batch: a larger append is rejected before it is sent."""
        return self.record_bytes_max + BATCH_OVERHEAD


def _durable_settings(config: KafkaConfig) -> dict[str, str]:
    """Return the settings without which an acknowledged write could be lost."""
    if config.durability == "fsync":
        return {"flush.messages": "1", "min.insync.replicas": str(config.min_insync)}
    return {
        "min.insync.replicas": str(config.min_insync),
        "unclean.leader.election.enable": "false",
    }


def _index_settings(config: KafkaConfig) -> dict[str, str]:
    """Return how often a log's index gets an entry.

    A flush also writes the segment's two indexes if they have new entries. With the default of
    4 KiB nearly every append of a few rows waits for three writes to the disk. A read passes over
    the batches between an index entry and its offset, at most this many bytes.
    """
    return {"index.interval.bytes": str(INDEX_BYTES)} if config.durability == "fsync" else {}


def topic_settings(config: KafkaConfig, spec: TopicSpec) -> dict[str, str]:
    """Return every setting that a new topic gets."""
    settings = _durable_settings(config) | {
        "max.message.bytes": str(config.batch_bytes_max),
        # Readers get the bytes that the client wrote: no broker recompresses a batch.
        "compression.type": "producer",
        TIME_OF: APPEND_TIME,
    }
    if spec.kind == "log":
        settings |= _index_settings(config)
        return settings | {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
        }
    return settings | {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(int(spec.tombstone_retention_s * 1000)),
        # Rewriting at a tenth of waste reads the whole topic too often. The default half
        # keeps it up to twice as large as the rows, and a rebuild reads all of it.
        "min.cleanable.dirty.ratio": "0.3",
        # Only closed segments are compacted; a small one closes early.
        "segment.bytes": str(128 << 20),
    }


def settings_to_verify(config: KafkaConfig, spec: TopicSpec) -> dict[str, str]:
    """Return the settings without which a topic's entries could be lost, or not be read."""
    settings = topic_settings(config, spec)
    return {name: settings[name] for name in VERIFIED if name in settings}
