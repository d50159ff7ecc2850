"""Jars for the broker and others: downloaded from Maven Central once, by digest, then offline.

A committed lock names every jar of a class path with its sha256. Three properties of jgo, the
resolver, shape this module:

- It writes a download straight to its final path and only warns about a wrong checksum. So a killed
  download would leave a damaged jar that is trusted forever. Here downloads go to a staging folder,
  and only a jar with the right digest is renamed into place.
- Two processes on one cache make each other fail, so a file lock guards the cache.
- It derives versions from POMs, so "the same" version may bring other jars. Only the artifacts of
  the lock are requested, so no POM is read.

After a full check, size and mtime of every jar go into a stamp file. While they are unchanged, a
later call is one ``stat`` per jar (46 take about 1 ms), imports no jgo and needs no network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rowtide.deploy.kafka.errors import JarsUnavailable, convert_os_errors

__all__ = ["KAFKA_VERSION", "Jar", "Progress", "jars_of", "read_lock", "resolve_jars"]

KAFKA_VERSION = "4.3.1"

Progress = Callable[[int, int, str], None]
"""Called with (jars done, all jars, name of the last one), from one thread at a time."""

DOWNLOADS_AT_ONCE = 4
ATTEMPTS = 3
TIMEOUT_S = 60  # jgo's default of 10 s is too short for scala-library on a slow line.


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of the lock."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def read_lock() -> list[Jar]:
    """Return the committed class path, in Java's order."""
    lock = resources.files("rowtide.deploy.kafka") / f"kafka-{KAFKA_VERSION}.lock.json"
    return jars_of(json.loads(lock.read_text()))


def jars_of(digests: Mapping[str, str]) -> list[Jar]:
    """Return the jars of a lock, which maps group:artifact:version to sha256."""
    return [_parse_jar(coordinate, sha256) for coordinate, sha256 in digests.items()]


def _parse_jar(coordinate: str, sha256: str) -> Jar:
    group, artifact, version = coordinate.split(":")
    return Jar(group, artifact, version, sha256)


def resolve_jars(
    cache_dir: Path,
    jars: list[Jar],
    *,
    repository: str | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Return the paths of ``jars`` in ``cache_dir``, each complete and with its locked digest."""
    folder = cache_dir / "jars"
    stamp = folder / f"{_name_of(jars)}.verified"
    if not _is_unchanged(folder, jars, stamp):  # First, because a complete cache may be read-only.
        with convert_os_errors(JarsUnavailable, f"cannot keep the jars in {cache_dir}"):
            folder.mkdir(parents=True, exist_ok=True)
            with _exclusive(cache_dir / "jars.lock"):
                if not _is_unchanged(folder, jars, stamp):  # Another process may have done it.
                    _complete(folder, jars, repository, progress or _silent)
                    _write_stamp(folder, jars, stamp)
    return [folder / jar.name for jar in jars]


def _complete(folder: Path, jars: list[Jar], repository: str | None, progress: Progress) -> None:
    """Check the digest of every jar in ``folder``; download missing or damaged ones."""
    lacking = [jar for jar in jars if not _has_digest(folder / jar.name, jar)]
    done = len(jars) - len(lacking)
    if done:
        progress(done, len(jars), "already here")
    staging = folder / "incoming"
    shutil.rmtree(staging, ignore_errors=True)  # A killed process may have left it.
    try:
        for jar in _fetch_all(repository, staging, lacking):
            done += 1
            os.replace(staging / jar.name, folder / jar.name)
            progress(done, len(jars), jar.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fetch_all(repository: str | None, staging: Path, jars: list[Jar]) -> Iterator[Jar]:
    """Yield each jar once its checked file is in ``staging``."""
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as threads:
        pending = [threads.submit(_fetch, repository, staging, jar) for jar in jars]
        try:
            for fetch in pending:
                yield fetch.result()
        finally:
            threads.shutdown(cancel_futures=True)


def _fetch(repository: str | None, staging: Path, jar: Jar) -> Jar:
    """Download ``jar`` into ``staging``; retry if the file is damaged or a wrong one."""
    # Imported here, because a warm start needs neither jgo nor its HTTP client (0.2 s).
    from jgo.maven import MavenContext

    failure = "no attempt was made"
    for attempt in range(ATTEMPTS):
        context = MavenContext(
            repo_cache=staging / f"{jar.artifact}-{attempt}",
            local_repos=[],
            remote_repos=None if repository is None else {"mirror": repository},
            timeout=TIMEOUT_S,
        )
        artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact()
        try:
            path = Path(artifact.resolve())
        except (OSError, RuntimeError) as error:  # requests' errors are OSErrors.
            failure = str(error)
            continue
        if _has_digest(path, jar):
            os.replace(path, staging / jar.name)
            return jar
        failure = f"the downloaded file has sha256 {_sha256(path)}, not {jar.sha256}"
    place = repository or "Maven Central"
    raise JarsUnavailable(
        f"cannot fetch {jar.group}:{jar.artifact}:{jar.version} from {place}: {failure}. "
        "The first start needs the network; later ones do not."
    )


def _has_digest(path: Path, jar: Jar) -> bool:
    return path.is_file() and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name_of(jars: list[Jar]) -> str:
    """Return a name of a class path by its digests, so that no upgrade trusts an older stamp."""
    return hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]


def _fingerprints(folder: Path, jars: list[Jar]) -> Mapping[str, list[int]]:
    """Return size and mtime_ns per jar. Raises OSError if one is missing."""
    status = {jar.name: os.stat(folder / jar.name) for jar in jars}
    return {name: [entry.st_size, entry.st_mtime_ns] for name, entry in status.items()}


def _is_unchanged(folder: Path, jars: list[Jar], stamp: Path) -> bool:
    try:
        return bool(json.loads(stamp.read_text()) == _fingerprints(folder, jars))
    except (OSError, ValueError):
        return False


def _write_stamp(folder: Path, jars: list[Jar], stamp: Path) -> None:
    draft = stamp.with_suffix(".draft")
    draft.write_text(json.dumps(_fingerprints(folder, jars)))
    os.replace(draft, stamp)


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock on ``path``; the kernel releases it when the process ends in any way."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _silent(_done: int, _total: int, _name: str) -> None:
    """Report nothing."""
