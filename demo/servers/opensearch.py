"""A real OpenSearch on loopback, which can be killed and restarted.

Java is the wheel's, the jars are downloaded once.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from demo.servers.search_folder import Distribution, lay_out
from demo.servers.search_server import SearchServer, java_of, runtime_of
from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.java import ENVIRONMENT, Runtime, find_java

__all__ = ["OpenSearch"]

CREATE_S_MAX = 120.0
# The wheel's Java has no word breaks for Thai, which the analyzers require; ICU's jar has.
LOCALES = "-Djava.locale.providers=CLDR,SPI"


class OpenSearch(SearchServer):
    """OpenSearch. The second one of a machine makes the AOT cache of later starts.

    The cache costs twice the CPU time of a start, so a machine that is used once has none.
    """

    distribution = Distribution(
        name="opensearch",
        version="3.8.0",
        prefix="opensearch",
        main="org.opensearch.bootstrap.OpenSearch",
        extends={"analysis-common": "lang-painless", "reindex": "lang-painless"},
    )

    def __init__(
        self, folder: Path, cache_dir: Path, *, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(folder, cache_dir, settings=settings)
        self._mark = cache_dir / "opensearch" / "started"
        self._records = self._mark.exists()

    def java(self, home: Path) -> list[str]:
        """Return the wheel's Java, with the cache, or recording for one, or neither."""
        runtime, cache = self._runtime(home)
        self._mark.touch()
        if cache.is_made:
            return java_of(runtime, [f"-XX:AOTCache={cache.path}"])
        return java_of(runtime, cache.record(self._record) if self._records else [])

    def stop(self) -> None:
        """Shut down; the second one of a machine makes the cache of later starts."""
        started = self._child is not None
        super().stop()
        if started:
            self._create_cache()

    def _runtime(self, home: Path) -> tuple[Runtime, AotCache]:
        runtime = runtime_of(home, find_java(None), LOCALES)
        return runtime, AotCache.of(self._cache_dir / "opensearch", runtime)

    @property
    def _record(self) -> Path:
        return self.folder / "record.aotconf"

    def _create_cache(self) -> None:
        """Make the AOT cache from the record of the run that ended.

        The server may not start a program, so Java cannot do this at its end. A failure only means
        slow starts.
        """
        runtime, cache = self._runtime(lay_out(self._cache_dir, self.distribution))
        if cache.is_made or not self._record.exists():
            return
        cache.path.parent.mkdir(parents=True, exist_ok=True)
        draft = cache.path.with_suffix(f".{os.getpid()}")
        try:
            command = java_of(runtime, cache.create(self._record, draft))
            subprocess.run(
                command, env=ENVIRONMENT, capture_output=True, check=False, timeout=CREATE_S_MAX
            )
            if draft.exists():
                cache.install(draft)
        except subprocess.TimeoutExpired:
            pass
        finally:
            draft.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)
