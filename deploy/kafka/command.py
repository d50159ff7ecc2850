"""The command lines and the configuration files with which Java runs Kafka.

Java runs *in* the data directory, and every path but one is relative to it. So a comma, a blank, a
percent sign or an umlaut in the directory's name cannot confuse Kafka, log4j or a properties file.
The exception is the path of ``server.properties`` in the command line, which identifies a broker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.directory import BrokerDirectory
from rowtide.deploy.kafka.java import Runtime

__all__ = [
    "JVM_OPTIONS",
    "broker_command",
    "format_command",
    "java_command",
    "logging_properties",
    "write_properties",
]

# For one small heap and few cores the serial collector is best. The optimising compiler (C2) pays
# off only after a minute of full load, and costs 40 MB: figures in DESIGN.md.
JVM_OPTIONS = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:-UsePerfData",  # Otherwise every JVM maps a file in /tmp.
    "-XX:+ExitOnOutOfMemoryError",  # A broker that has lost a thread is worse than a restart.
    "-Xss512k",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disable.jmx=true",
    # A thread keeps a direct buffer as large as its largest write: bound it.
    "-Djdk.nio.maxCachedBufferSize=262144",
]


def broker_command(
    runtime: Runtime,
    config: EmbeddedConfig,
    directory: BrokerDirectory,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs the broker. Its last two words identify the broker."""
    return [
        *java_command(runtime, ["-Xms64m", f"-Xmx{config.heap_mb}m", *options]),
        "kafka.Kafka",
        str(directory.properties),
    ]


def format_command(runtime: Runtime, directory: BrokerDirectory) -> list[str]:
    """Return the command that formats an empty log directory for our cluster."""
    return [
        *java_command(runtime, ["-Xmx64m"]),
        *("kafka.tools.StorageTool", "format", "--ignore-formatted"),
        *("-t", directory.cluster_id(), "-c", str(directory.properties)),
    ]


def java_command(runtime: Runtime, options: Sequence[str]) -> list[str]:
    """Return the command before the main class. Run it in a data directory."""
    return [
        str(runtime.java.path),
        *JVM_OPTIONS,
        *runtime.options,
        *options,
        "-Djava.io.tmpdir=tmp",
        "-XX:ErrorFile=logs/crash-%p.log",
        "-Dlog4j2.configurationFile=log4j2.properties",
        *("-cp", os.pathsep.join(map(str, runtime.jars))),
    ]


def logging_properties(config: EmbeddedConfig) -> dict[str, str]:
    """Return the configuration of log4j, which is part of Kafka: one file, rotated by size.

    The JVM itself rotates, so the bound of ``log_file_bytes * log_files`` holds also without its
    parent.
    """
    return {
        "status": "error",
        # Its own hook would close the file while Kafka still logs its shutdown.
        "shutdownHook": "disable",
        "appender.file.type": "RollingFile",
        "appender.file.name": "file",
        "appender.file.fileName": "logs/kafka.log",
        "appender.file.filePattern": "logs/kafka-%i.log",
        "appender.file.layout.type": "PatternLayout",
        "appender.file.layout.pattern": "%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %p %c: %m%n%ex",
        "appender.file.policies.type": "Policies",
        "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
        "appender.file.policies.size.size": f"{config.log_file_bytes} B",
        "appender.file.strategy.type": "DefaultRolloverStrategy",
        "appender.file.strategy.max": str(config.log_files - 1),
        "rootLogger.level": "info",
        "rootLogger.appenderRef.file.ref": "file",
        # 400 lines of settings at each start, most of them defaults.
        "logger.settings.name": "org.apache.kafka.common.config.AbstractConfig",
        "logger.settings.level": "warn",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file. The values are ours and simple: nothing needs escaping."""
    lines = [f"{name}={value}\n" for name, value in properties.items()]
    path.write_text("".join(lines), encoding="ascii")
