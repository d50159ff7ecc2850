"""OpenSearch and Elasticsearch like their distributions, assembled from jars of Maven Central.

There is no archive to unpack. The server is a jar with others in ``lib``, and each of its modules
is a folder of jars and a descriptor. ``NAME-VERSION.lock.json`` has every jar of each folder with
its sha256. A real distribution also has the modules that our tests and demos do not need or that
Maven Central lacks, and OpenSearch's sandbox (an agent that restricts plugins).
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.servers.made_once import make_once
from rowtide.deploy.kafka.jars import jars_of, resolve_jars

__all__ = ["Distribution", "lay_out"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: its jars, and how it is started.

    ``prefix`` is that of its system properties. ``extends`` names the module whose classes another
    one sees, ``policies`` the additional permissions of a module.
    """

    name: str
    version: str
    prefix: str
    main: str
    extends: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)


def lay_out(cache_dir: Path, wanted: Distribution) -> Path:
    """Return the server's folder; the first call creates it. Raises JarsUnavailable."""
    lock = (Path(__file__).parent / f"{wanted.name}-{wanted.version}.lock.json").read_text()
    digest = hashlib.sha256(f"{lock}{wanted}".encode()).hexdigest()
    home = cache_dir / wanted.name / f"{wanted.version}-{digest[:12]}"
    return make_once(home, lambda draft: _fill_folder(draft, cache_dir, wanted, json.loads(lock)))


def _fill_folder(
    home: Path, cache_dir: Path, wanted: Distribution, folders: dict[str, dict[str, str]]
) -> None:
    jars = {name: jars_of(digests) for name, digests in folders.items()}
    everything = {jar.name: jar for group in jars.values() for jar in group}
    resolve_jars(cache_dir, list(everything.values()))
    for name, group in jars.items():
        folder = home / "lib" if name == "lib" else home / "modules" / name
        folder.mkdir(parents=True)
        for jar in group:
            os.link(cache_dir / "jars" / jar.name, folder / jar.name)
        if name != "lib":
            _describe(folder, wanted)
    for name in ("bin", "extensions", "plugins"):  # They must exist, though empty.
        (home / name).mkdir()


def _describe(folder: Path, wanted: Distribution) -> None:
    """Write a module's descriptor; its class is the one whose name ends like a plugin's."""
    name = folder.name
    plugins = [
        entry.removesuffix(".class").replace("/", ".")
        for jar in folder.glob(f"{name}*-{wanted.version}.jar")
        for entry in zipfile.ZipFile(jar).namelist()
        if entry.endswith("Plugin.class") and "$" not in entry
    ]
    (folder / "plugin-descriptor.properties").write_text(
        f"name={name}\ndescription={name}\nversion={wanted.version}\n"
        f"{wanted.name}.version={wanted.version}\n"
        f"classname={plugins[0]}\nextended.plugins={wanted.extends.get(name, '')}\n"
        "java.version=1.8\nhas.native.controller=false\n"
    )
    if policy := wanted.policies.get(name):
        (folder / "plugin-security.policy").write_text(policy)
