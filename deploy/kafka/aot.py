"""The AOT cache: classes already loaded and linked, so that a start takes a third of the CPU.

Java 25 makes it in two steps: a run that *records* what it loads (``AOTMode=record``), and a second
JVM that *creates* the cache from the record. In Kafka's own exit this would take 3-8 s, which a
user would notice at the first Ctrl-C. So a training broker on scratch data does it in the
background, at the lowest priority, while the real broker already serves.

A cache fits one JVM and one set of jars. Java silently ignores a cache that does not fit or is
damaged, and starts slowly. So the cache's name has everything on which it depends.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from rowtide.deploy.kafka.command import JVM_OPTIONS
from rowtide.deploy.kafka.java import Runtime

__all__ = ["AotCache"]

KEPT = 3
"""Caches that are kept when a new one is made: other environments may use them (63 MB each)."""


@dataclass(frozen=True, slots=True)
class AotCache:
    """The path of a runtime's cache, and the options that record, create and use it."""

    path: Path

    @classmethod
    def of(cls, cache_dir: Path, runtime: Runtime) -> AotCache:
        return cls(cache_dir / "aot" / f"{_fingerprint(runtime)}.aot")

    @property
    def is_made(self) -> bool:
        return self.path.exists()

    def apply_to(self, runtime: Runtime) -> Runtime:
        """Return ``runtime`` with this cache, or unchanged while the cache does not exist."""
        options = (f"-XX:AOTCache={self.path}",) if self.is_made else ()
        return replace(runtime, options=options)

    def record(self, record: Path) -> list[str]:
        return ["-XX:AOTMode=record", f"-XX:AOTConfiguration={record}"]

    def create(self, record: Path, draft: Path) -> list[str]:
        return ["-XX:AOTMode=create", f"-XX:AOTConfiguration={record}", f"-XX:AOTCache={draft}"]

    def install(self, draft: Path) -> None:
        """Move a finished cache into place, and delete the oldest ones."""
        draft.replace(self.path)
        caches = sorted(self.path.parent.glob("*.aot"), key=lambda cache: -cache.stat().st_mtime)
        for old in caches[KEPT:]:
            old.unlink(missing_ok=True)


def _fingerprint(runtime: Runtime) -> str:
    """Return a name by the runtime's options, the build of its Java, and path, size and mtime of
    its jars, which Java compares. It does not compare its own path: each new environment has the
    same build elsewhere.
    """
    status = [(jar, jar.stat()) for jar in runtime.jars if jar.exists()]
    jars = [f"{jar} {entry.st_size} {entry.st_mtime_ns}" for jar, entry in status]
    facts = [*JVM_OPTIONS, *_build_of(runtime.java.path.resolve()), *jars]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _build_of(java: Path) -> list[str]:
    """Return what differs between two builds of Java: release notes and sizes of its large files.

    A Java whose home is not around its launcher is known by path and mtime.
    """
    home = java.parent.parent
    release = home / "release"
    if not release.exists():
        return [f"{java} {java.stat().st_mtime_ns}"] if java.exists() else []
    large = [home / "lib" / "modules", *sorted(home.glob("*/server/*jvm.*"))]
    sizes = [f"{path.relative_to(home)} {path.stat().st_size}" for path in large if path.exists()]
    return [release.read_text(encoding="utf-8", errors="replace"), *sizes]
