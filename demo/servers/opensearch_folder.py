"""OpenSearch as its distribution lays it out, made of jars from Maven Central.

There is no archive to unpack: the server is a jar with sixty others in ``lib``, and each of its
modules a folder of jars beside a descriptor. ``opensearch-VERSION.lock.json`` names every jar of
each folder with its sha256. What is left out next to a real distribution: the sandbox (an agent
that takes rights from plugins), and the modules that no test or demo of ours asks for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from rowtide.deploy.kafka.jars import jars_of, resolve_jars

__all__ = ["VERSION", "laid_out"]

VERSION = "3.8.0"
EXTENDS = {"analysis-common": "lang-painless", "reindex": "lang-painless"}
"""Modules that see another's classes."""


def laid_out(cache_dir: Path) -> Path:
    """Return the folder of the server, made at the first call. Raises JarsUnavailable."""
    lock = (Path(__file__).parent / f"opensearch-{VERSION}.lock.json").read_text()
    name = f"{VERSION}-{hashlib.sha256(lock.encode()).hexdigest()[:12]}"
    home = cache_dir / "opensearch" / name
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            _lay_out(draft, cache_dir, json.loads(lock))
            draft.chmod(0o755)
            _moved(draft, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home


def _lay_out(home: Path, cache_dir: Path, folders: dict[str, dict[str, str]]) -> None:
    jars = {name: jars_of(digests) for name, digests in folders.items()}
    wanted = {jar.name: jar for group in jars.values() for jar in group}
    resolve_jars(cache_dir, list(wanted.values()))
    for name, group in jars.items():
        folder = home / "lib" if name == "lib" else home / "modules" / name
        folder.mkdir(parents=True)
        for jar in group:
            os.link(cache_dir / "jars" / jar.name, folder / jar.name)
        if name != "lib":
            _describe(folder)
    for name in ("bin", "extensions", "plugins"):  # They must be there, though empty.
        (home / name).mkdir()


def _describe(folder: Path) -> None:
    """Write what a distribution says of a module; its class is the one named like a plugin."""
    name = folder.name
    plugins = [
        entry.removesuffix(".class").replace("/", ".")
        for jar in folder.glob(f"{name}*-{VERSION}.jar")
        for entry in zipfile.ZipFile(jar).namelist()
        if entry.endswith("Plugin.class") and "$" not in entry
    ]
    (folder / "plugin-descriptor.properties").write_text(
        f"name={name}\ndescription={name}\nversion={VERSION}\nopensearch.version={VERSION}\n"
        f"classname={plugins[0]}\nextended.plugins={EXTENDS.get(name, '')}\n"
        "java.version=21\nhas.native.controller=false\n"
    )


def _moved(draft: Path, home: Path) -> None:
    """Put a finished folder into place; another process may have been first."""
    try:
        os.rename(draft, home)
    except OSError:
        if not home.exists():
            raise
