"""Jars are fetched once, checked by digest, repaired, and never fetched again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.deploy.kafka.errors import JarsUnavailable
from rowtide.deploy.kafka.jars import KAFKA_VERSION, Jar, read_lock, resolve_jars
from tests.deploy.maven_mirror import MavenMirror, maven_mirror

NOWHERE = "http://127.0.0.1:9"
"""The discard port: nothing listens there, so this is a machine that is offline."""


@pytest.fixture
def mirror() -> Iterator[MavenMirror]:
    with maven_mirror() as served:
        yield served


def some_jars(mirror: MavenMirror) -> list[Jar]:
    return [mirror.offer(name, name.encode() * 10_000) for name in ("red", "green", "blue")]


def test_the_lock_names_the_whole_class_path_of_one_kafka() -> None:
    jars = read_lock()
    assert f"kafka_2.13-{KAFKA_VERSION}.jar" in {jar.name for jar in jars}
    assert len({jar.name for jar in jars}) == len(jars)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)


def test_jars_come_in_class_path_order_and_progress_is_told(
    mirror: MavenMirror, tmp_path: Path
) -> None:
    steps: list[tuple[int, int, str]] = []
    paths = resolve_jars(
        tmp_path,
        some_jars(mirror),
        repository=mirror.url,
        progress=lambda *step: steps.append(step),
    )
    assert [path.name for path in paths] == ["red-1.0.jar", "green-1.0.jar", "blue-1.0.jar"]
    assert steps == [(1, 3, "red-1.0.jar"), (2, 3, "green-1.0.jar"), (3, 3, "blue-1.0.jar")]


def test_a_second_start_needs_no_network(mirror: MavenMirror, tmp_path: Path) -> None:
    jars = some_jars(mirror)
    first = resolve_jars(tmp_path, jars, repository=mirror.url)
    assert resolve_jars(tmp_path, jars, repository=NOWHERE) == first


def test_a_jar_torn_in_the_cache_is_fetched_again_and_no_other(
    mirror: MavenMirror, tmp_path: Path
) -> None:
    jars = some_jars(mirror)
    _, green, _ = resolve_jars(tmp_path, jars, repository=mirror.url)
    whole = green.read_bytes()
    os.truncate(green, 100)
    mirror.requested.clear()
    resolve_jars(tmp_path, jars, repository=mirror.url)
    assert green.read_bytes() == whole
    assert mirror.requested == [mirror.path("green")]


def test_a_download_that_breaks_off_is_tried_again(mirror: MavenMirror, tmp_path: Path) -> None:
    jars = some_jars(mirror)
    mirror.tear("blue")
    paths = resolve_jars(tmp_path, jars, repository=mirror.url)
    assert paths[2].read_bytes() == b"blue" * 10_000
    assert mirror.requested.count(mirror.path("blue")) == 2


def test_a_jar_with_another_digest_is_refused_and_not_kept(
    mirror: MavenMirror, tmp_path: Path
) -> None:
    jars = some_jars(mirror)
    mirror.offer("green", b"something else")
    with pytest.raises(
        JarsUnavailable, match=rf"green:1\.0.*has sha256 [0-9a-f]+, not {jars[1].sha256}"
    ):
        resolve_jars(tmp_path, jars, repository=mirror.url)
    assert not (tmp_path / "jars" / "green-1.0.jar").exists()
    assert not (tmp_path / "jars" / "incoming").exists()


def test_a_first_start_without_network_says_so(tmp_path: Path) -> None:
    jar = Jar("org.example", "red", "1.0", "00" * 32)
    with pytest.raises(JarsUnavailable, match="The first start needs the network"):
        resolve_jars(tmp_path, [jar], repository=NOWHERE)


RESOLVE = """
import json, sys
from pathlib import Path
from rowtide.deploy.kafka.jars import Jar, resolve_jars
cache, repository, jars = json.load(sys.stdin)
resolve_jars(Path(cache), [Jar(*jar) for jar in jars], repository=repository)
"""


def test_two_processes_on_one_empty_cache_both_succeed_and_fetch_once(
    mirror: MavenMirror, tmp_path: Path
) -> None:
    jars = some_jars(mirror)
    order = json.dumps(
        [
            str(tmp_path),
            mirror.url,
            [[jar.group, jar.artifact, jar.version, jar.sha256] for jar in jars],
        ]
    )
    both = [
        subprocess.Popen([sys.executable, "-c", RESOLVE], stdin=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in both:
        assert child.stdin is not None
        child.stdin.write(order)
        child.stdin.close()
    assert [child.wait(60) for child in both] == [0, 0]
    assert sorted(mirror.requested) == sorted(mirror.path(jar.artifact) for jar in jars)
