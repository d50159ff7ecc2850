"""A real schema registry on loopback: Apicurio, which speaks Confluent's protocol at ccompat/v7.

Its distribution is one archive on Maven Central (159 MB), fetched once and held to its digest.
Schemas are kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from rowtide.deploy.kafka.java import ENVIRONMENT, find_java
from rowtide.deploy.kafka.probe import is_free
from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["Apicurio", "ApicurioFailed"]

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
HOST = "127.0.0.1"
# Below the ephemeral ports, so that no client's own port is in the way of a restart.
PORTS = range(20_000, 32_768)
START_S_MAX = 240.0
POLL_S = 0.2
FETCH_S_MAX = 900


class ApicurioFailed(Exception):
    """The registry could not be fetched, or did not start."""


class Apicurio:
    """A registry in ``folder``; started and killed as a context manager."""

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        self.url = ""
        self._folder = folder.resolve()
        self._cache_dir = cache_dir
        self._child: TetheredProcess | None = None

    def __enter__(self) -> Self:
        home = unpacked(self._cache_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        free = (port for port in random.sample(PORTS, len(PORTS)) if is_free(HOST, port))
        port, health = next(free), next(free)
        with (self._folder / "output.log").open("ab") as output:
            self._child = TetheredProcess(
                [
                    *(str(find_java(None).path), "-Xmx384m", "-XX:+UseSerialGC"),
                    *("-XX:TieredStopAtLevel=1", f"-Dquarkus.http.port={port}"),
                    *(f"-Dquarkus.http.host={HOST}", f"-Dquarkus.management.host={HOST}"),
                    *(f"-Dquarkus.management.port={health}", "-jar"),
                    str(home / "quarkus-run.jar"),
                ],
                folder=self._folder,
                environment=ENVIRONMENT,
                output=output,
            )
        self.url = f"http://{HOST}:{port}/apis/ccompat/v7"
        self._wait_until_it_answers(self._child)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _wait_until_it_answers(self, child: TetheredProcess) -> None:
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/subjects", timeout=10).close()
            except (OSError, urllib.error.URLError) as error:
                if child.returncode() is not None or time.monotonic() > deadline:
                    text = (self._folder / "output.log").read_text(errors="replace")
                    self.__exit__(None, None, None)
                    raise ApicurioFailed(f"Apicurio does not start: {text[-3000:]}") from error
                time.sleep(POLL_S)
            else:
                return


def unpacked(cache_dir: Path) -> Path:
    """Return the folder of the distribution, fetched and unpacked at the first call."""
    home = cache_dir / "apicurio" / VERSION
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            archive = _fetched(draft)
            with tarfile.open(archive) as whole:
                whole.extractall(draft / "home", filter="data")
            [jar] = (draft / "home").rglob("quarkus-run.jar")
            os.rename(jar.parent, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home


def _fetched(folder: Path) -> Path:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=folder / "m2", local_repos=[], timeout=FETCH_S_MAX)
    project = context.project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
    try:
        path = Path(project.artifact("all", "tar.gz").resolve())
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors.
        raise ApicurioFailed(f"cannot fetch Apicurio {VERSION}: {error}") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise ApicurioFailed(f"what was downloaded has the sha256 {digest}, not {SHA256}")
    return path
