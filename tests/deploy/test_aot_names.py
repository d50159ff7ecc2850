"""The name of an AOT cache: equal where Java accepts the same cache, else another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.java import Java, Runtime

FILES = {
    "bin/java": "launcher",
    "release": 'JAVA_VERSION="25.0.2"',
    "lib/modules": "modules",
    "lib/server/libjvm.so": "machine",
}


def make_java(home: Path) -> Path:
    """Make the files of a Java by which its build is known."""
    for name, content in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)
    return home


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar of the class path."""
    path = tmp_path / "kafka.jar"
    path.write_text("classes")
    return path


def name_of(home: Path, jar: Path) -> str:
    return AotCache.of(Path("cache"), Runtime(Java(home / "bin/java", 25), (jar,))).path.name


def test_the_same_build_elsewhere_has_the_same_cache(tmp_path: Path, jar: Path) -> None:
    one = make_java(tmp_path / "one")
    other = tmp_path / "other"
    shutil.copytree(one, other)
    for name in FILES:
        os.utime(other / name, ns=(10**18, 10**18))
    assert name_of(one, jar) == name_of(other, jar)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "another release": lambda home, _: (home / "release").write_text('JAVA_VERSION="25.0.3"'),
    "other modules": lambda home, _: (home / "lib/modules").write_text("more modules"),
    "another machine": lambda home, _: (home / "lib/server/libjvm.so").write_text("other machine"),
    "no release file": lambda home, _: (home / "release").unlink(),
    "another jar": lambda _, jar: jar.write_text("other classes"),
    "a newer jar": lambda _, jar: os.utime(jar, ns=(10**18, 10**18)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_java_compares_is_in_the_name(
    tmp_path: Path, jar: Path, change: Callable[[Path, Path], object]
) -> None:
    home = make_java(tmp_path / "java")
    before = name_of(home, jar)
    change(home, jar)
    assert name_of(home, jar) != before


def test_a_java_without_a_release_file_is_known_by_its_path(tmp_path: Path, jar: Path) -> None:
    homes = [make_java(tmp_path / name) for name in ("one", "other")]
    for home in homes:
        (home / "release").unlink()
    assert len({name_of(home, jar) for home in homes}) == 2
