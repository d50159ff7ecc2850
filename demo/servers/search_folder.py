"""OpenSearch and Elasticsearch as they are distributed, made of jars from Maven Central.

There is no archive to unpack: the server is a jar with others in ``lib``, and each of its modules
a folder of jars beside a descriptor. ``NAME-VERSION.lock.json`` names every jar of each folder with
its sha256. What is left out next to a real distribution: the modules that no test or demo of ours
asks for or that Maven Central does not have, and OpenSearch's sandbox (an agent that takes rights
from plugins).
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demo.servers.made_once import made_once
from rowtide.deploy.kafka.jars import jars_of, resolve_jars

__all__ = ["Distribution", "laid_out"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """What is laid out, and how it is addressed.

    ``prefix`` is that of its system properties. ``extends`` names the module whose classes another
    one sees, ``policies`` the rights that a module needs beside those that every one has.
    """

    name: str
    version: str
    prefix: str
    main: str
    extends: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)


def laid_out(cache_dir: Path, wanted: Distribution) -> Path:
    """Return the folder of the server, made at the first call. Raises JarsUnavailable."""
    lock = (Path(__file__).parent / f"{wanted.name}-{wanted.version}.lock.json").read_text()
    digest = hashlib.sha256(f"{lock}{wanted}".encode()).hexdigest()
    home = cache_dir / wanted.name / f"{wanted.version}-{digest[:12]}"
    return made_once(home, lambda draft: _lay_out(draft, cache_dir, wanted, json.loads(lock)))


def _lay_out(
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
    for name in ("bin", "extensions", "plugins"):  # They must be there, though empty.
        (home / name).mkdir()


def _describe(folder: Path, wanted: Distribution) -> None:
    """Write what a distribution says of a module; its class is the one named like a plugin."""
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
