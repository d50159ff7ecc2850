"""Builds and runs a program that another language's SDK is in, and reads what it found.

A program prints a line per check, ``ok NAME`` or ``FAILED NAME: why``; which names it owes stands
in ``scenarios.txt``. Sources are copied to a folder of the test's own, so that no build leaves a
trace in the tree; downloads stay in the user's caches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rowtide.deploy.up import Ready

__all__ = [
    "JAVA",
    "build_java",
    "checks_of",
    "copy_program",
    "environment_of",
    "need",
    "run",
    "run_program",
]

HERE = Path(__file__).parent
BUILD_S_MAX = 600.0
"""A first build downloads the SDK; a warm one takes seconds."""
RUN_S_MAX = 600.0
"""A program that hangs ends some time; on two idle cores each takes less than half a minute."""


JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A JVM of a few seconds spends most of its CPU time on compiling, and on threads that collect."""


def checks_of(language: str) -> list[str]:
    """Return the names of the checks that a language's program owes."""
    lines = (HERE / "scenarios.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [name for name, *languages in words if language in languages]


def need(*tools: str) -> None:
    """Skip where a tool is missing, and say which."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"NOT CHECKED: {', '.join(missing)} is not on the PATH")


def copy_program(language: str, target: Path) -> Path:
    """Return a copy of a program's sources to build in."""
    return Path(shutil.copytree(HERE / language, target / language))


def run(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    timeout_s: float = BUILD_S_MAX,
) -> str:
    """Run a build's step; return what it printed, and fail with it where it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{command[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def build_java(target: Path) -> tuple[Path, str]:
    """Build the Java programs in a folder; return where they are, and their class path."""
    need("mvn", "java")
    folder = copy_program("java", target)
    goals = ["compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath"]
    run(["mvn", "-q", "-B", *goals], folder, {"MAVEN_OPTS": " ".join(JAVA[1:])})
    return folder, f"target/classes:{(folder / 'classpath').read_text(encoding='utf-8')}"


def environment_of(server: Ready) -> dict[str, str]:
    """Return the variables that tell a program its server."""
    return {
        "ROWTIDE_ENDPOINT": server.endpoint,
        "ROWTIDE_INSTANCE": server.instance,
        "ROWTIDE_KEY_ID": server.access_key_id,
        "ROWTIDE_KEY_SECRET": server.access_key_secret,
    }


def run_program(command: Sequence[str | Path], folder: Path, server: Ready) -> dict[str, str]:
    """Run a program against the server; return per check ``ok`` or why it failed."""
    environment = {**os.environ, **environment_of(server)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, why = rest.partition(": ")
        if verdict in ("ok", "FAILED"):
            found[name] = "ok" if verdict == "ok" else why
    if not found:
        pytest.fail(f"no check was made:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return found
