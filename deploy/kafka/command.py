"""The command lines and the configuration files with which Java runs Kafka."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.java import Java

__all__ = ["broker_command", "format_command", "logging_properties", "write_properties"]

# Measured (DESIGN.md): one small heap and few cores are served best by the serial collector, and
# a broker that lives for minutes spends more on the optimising compiler than it gets back.
JVM_OPTIONS = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",  # Else every JVM maps a file in /tmp.
    "-XX:+ExitOnOutOfMemoryError",  # A broker that has lost a thread is worse than a restart.
    "-Xss512k",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disable.jmx=true",
    # A thread keeps a direct buffer as large as its largest write: bound it.
    "-Djdk.nio.maxCachedBufferSize=262144",
]


def broker_command(
    java: Java,
    jars: Sequence[Path],
    config: EmbeddedConfig,
    directory: BrokerDirectory,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs the broker; its last two words tell it from all others."""
    return [
        *_java_command(java, jars, directory, [f"-Xmx{config.heap_mb}m", *options]),
        "kafka.Kafka",
        str(directory.properties),
    ]


def format_command(
    java: Java, jars: Sequence[Path], directory: BrokerDirectory, options: Sequence[str] = ()
) -> list[str]:
    """Return the command that makes an empty log directory one of our cluster."""
    return [
        *_java_command(java, jars, directory, ["-Xmx64m", *options]),
        *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
        *("-t", directory.cluster_id(), "-c", str(directory.properties)),
    ]


def _java_command(
    java: Java, jars: Sequence[Path], directory: BrokerDirectory, options: Sequence[str]
) -> list[str]:
    return [
        str(java.path),
        *JVM_OPTIONS,
        *options,
        f"-Djava.io.tmpdir={directory.tmp}",
        f"-XX:ErrorFile={directory.logs}/crash-%p.log",
        f"-Djava.util.logging.config.file={directory.logging}",
        *("-cp", os.pathsep.join(map(str, jars))),
    ]


def logging_properties(config: EmbeddedConfig, logs: Path) -> dict[str, str]:
    """Return the set-up of java.util.logging: Kafka's lines into files rotated by size.

    The JVM rotates by itself, so this holds when its parent is gone, and it needs no jar but
    the slf4j binding. ``kafka-0.log`` is the newest file.
    """
    handler = "java.util.logging.FileHandler"
    pattern = str(logs).replace("%", "%%") + "/kafka-%g.log"
    return {
        "handlers": handler,
        ".level": "INFO",
        f"{handler}.pattern": pattern,
        f"{handler}.limit": str(config.log_file_bytes),
        f"{handler}.count": str(config.log_files),
        f"{handler}.append": "true",
        f"{handler}.formatter": "java.util.logging.SimpleFormatter",
        "java.util.logging.SimpleFormatter.format": (
            "%1$tFT%1$tT.%1$tL%1$tz %4$s %3$s: %5$s%6$s%n"
        ),
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file."""
    lines = [f"{name}={_escaped(value)}\n" for name, value in properties.items()]
    path.write_text("".join(lines), encoding="ascii")


def _escaped(value: str) -> str:
    """Escape a value as java.util.Properties reads it: backslashes and all beyond ASCII."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in pairs)
