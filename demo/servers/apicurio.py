"""A real schema registry on loopback: Apicurio, which speaks Confluent's protocol at ccompat/v7.

Its distribution is one archive on Maven Central (159 MB), fetched once and held to its digest.
Schemas are kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from demo.servers.server import HOST, Answered, NotStarted, Server, fetched, free_port
from rowtide.deploy.kafka.java import ENVIRONMENT, find_java

__all__ = ["Apicurio"]

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
FETCH_S_MAX = 900


class Apicurio(Server):
    """A registry that forgets its schemas when it ends."""

    start_s_max = 240.0
    poll_s = 0.2

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        super().__init__(folder)
        self._cache_dir = cache_dir

    @property
    def url(self) -> str:
        return f"{super().url}/apis/ccompat/v7"

    def start(self) -> None:
        """Start, and return when it answers. Raises NotStarted."""
        home = unpacked(self._cache_dir)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        health = free_port(other=self.port)
        command = [
            *(str(find_java(None).path), "-Xmx384m", "-XX:+UseSerialGC"),
            *("-XX:TieredStopAtLevel=1", f"-Dquarkus.http.port={self.port}"),
            *(f"-Dquarkus.http.host={HOST}", f"-Dquarkus.management.host={HOST}"),
            *(f"-Dquarkus.management.port={health}", "-jar"),
            str(home / "quarkus-run.jar"),
        ]
        self.launch(command, ENVIRONMENT)

    def answers(self) -> bool:
        """True if it lists its subjects."""
        try:
            fetched(f"{self.url}/subjects")
        except (OSError, Answered):
            return False
        return True


def unpacked(cache_dir: Path) -> Path:
    """Return the folder of the distribution, fetched and unpacked at the first call."""
    home = cache_dir / "apicurio" / VERSION
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            archive = _fetched(draft)
            with tarfile.open(archive) as whole:
                # Python 3.11.3 and before have no filters; what is unpacked has the known digest.
                whole.extraction_filter = getattr(tarfile, "data_filter", None)
                whole.extractall(draft / "home")
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
        raise NotStarted(f"cannot fetch Apicurio {VERSION}: {error}") from error
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise NotStarted(f"what was downloaded has the sha256 {digest}, not {SHA256}")
    return path
