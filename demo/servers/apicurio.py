"""A real schema registry on loopback: Apicurio, with Confluent's protocol at ccompat/v7.

Its distribution is one archive on Maven Central (159 MB), downloaded once and checked by its
digest. Schemas are kept in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from demo.servers.server import HOST, Answered, NotStarted, Server, fetch, free_port
from rowtide.deploy.kafka.java import ENVIRONMENT, find_java

__all__ = ["Apicurio"]

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
FETCH_S_MAX = 900


class Apicurio(Server):
    """A registry that loses its schemas when it ends."""

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
        home = unpack(self._cache_dir)
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

    def is_up(self) -> bool:
        """True if it lists its subjects."""
        try:
            fetch(f"{self.url}/subjects")
        except (OSError, Answered):
            return False
        return True


def unpack(cache_dir: Path) -> Path:
    """Return the distribution's folder; the first call downloads and unpacks it."""
    home = cache_dir / "apicurio" / VERSION
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            archive = _download(draft)
            with tarfile.open(archive) as whole:
                # Python 3.11.3 and older have no filters; the archive has the known digest.
                whole.extraction_filter = getattr(tarfile, "data_filter", None)
                whole.extractall(draft / "home")
            [jar] = (draft / "home").rglob("quarkus-run.jar")
            os.rename(jar.parent, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home


def _download(folder: Path) -> Path:
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
        raise NotStarted(f"the downloaded file has sha256 {digest}, not {SHA256}")
    return path
