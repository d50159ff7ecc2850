"""The AOT cache: classes already loaded and linked, so that a start takes a third of the CPU.

Java 25 makes it in two steps: a run that *records* what it loads (``AOTMode=record``), and a
second JVM that *creates* the cache from the record. Kafka's own exit would take 3-8 s for this,
which a user would meet at the first Ctrl-C. So a training broker on scratch data does it
in the background, at the lowest priority, while the real broker already serves.

A cache fits one JVM and one set of jars. One that does not fit, or is torn, is ignored by
Java without a word and the start is a slow one, so everything it depends on is in its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rowtide.deploy.kafka.command import JVM_OPTIONS
from rowtide.deploy.kafka.java import Runtime

__all__ = ["AotCache"]

KEPT = 3
"""Caches that stay when a new one is made: other environments may use them (63 MB each)."""


@dataclass(frozen=True, slots=True)
class AotCache:
    """Where the cache of one runtime is, and the options that record, create and use it."""

    path: Path

    @classmethod
    def of(cls, cache_dir: Path, runtime: Runtime) -> AotCache:
        return cls(cache_dir / "aot" / f"{_fingerprint(runtime)}.aot")

    @property
    def made(self) -> bool:
        return self.path.exists()

    def used_by(self, runtime: Runtime) -> Runtime:
        """Return ``runtime`` with this cache, or as it is while there is none."""
        options = (f"-XX:AOTCache={self.path}",) if self.made else ()
        return replace(runtime, options=options)

    def record(self, record: Path) -> list[str]:
        return ["-XX:AOTMode=record", f"-XX:AOTConfiguration={record}"]

    def create(self, record: Path, draft: Path) -> list[str]:
        return ["-XX:AOTMode=create", f"-XX:AOTConfiguration={record}", f"-XX:AOTCache={draft}"]

    def install(self, draft: Path) -> None:
        """Put a finished cache into place, and forget those that nobody has made for long."""
        draft.replace(self.path)
        caches = sorted(self.path.parent.glob("*.aot"), key=lambda cache: -cache.stat().st_mtime)
        for old in caches[KEPT:]:
            old.unlink(missing_ok=True)


def _fingerprint(runtime: Runtime) -> str:
    """Name a runtime by its options, and by path, size and mtime of its Java and its jars."""
    modules = runtime.java.path.resolve().parent.parent / "lib" / "modules"
    facts = [*JVM_OPTIONS, *_facts([runtime.java.path, modules, *runtime.jars])]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _facts(paths: Sequence[Path]) -> list[str]:
    status = [(path, path.stat()) for path in paths if path.exists()]
    return [f"{path} {entry.st_size} {entry.st_mtime_ns}" for path, entry in status]
