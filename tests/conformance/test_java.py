"""The official Java SDK, where ``mvn`` is on the PATH: a test per check of the program in java/."""

from __future__ import annotations

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.program import checks_of, copy_program, need, run, run_program

pytestmark = pytest.mark.system

SHORT_LIFE = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A JVM of a few seconds spends most of its CPU time on compiling, and on threads that collect."""


@pytest.fixture(scope="module")
def results(server: Ready, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the program found."""
    need("mvn", "java")
    folder = copy_program("java", tmp_path_factory.mktemp("java"))
    goals = ["compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    run(["mvn", "-q", "-B", *goals], folder, {"MAVEN_OPTS": " ".join(SHORT_LIFE)})
    classes = f"target/classes:{(folder / 'classpath').read_text(encoding='utf-8')}"
    return run_program(["java", *SHORT_LIFE, "-cp", classes, "rowtide.Conformance"], folder, server)


@pytest.mark.parametrize("check", checks_of("java"))
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, "not made") == "ok"


def test_java_checks_nothing_that_is_not_listed(results: dict[str, str]) -> None:
    assert set(results) == set(checks_of("java"))
