"""The AOT cache is made beside the first start, is accepted by Java, and is never in the way."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rowtide.deploy.kafka.aot import AotCache
from rowtide.deploy.kafka.broker import EmbeddedBroker, prepare
from rowtide.deploy.kafka.command import java_command
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.jars import read_lock, resolve_jars
from rowtide.deploy.kafka.java import Runtime, find_java
from rowtide.deploy.kafka.orphan import find_broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def fresh_config(tmp_path: Path, cache_dir: Path) -> EmbeddedConfig:
    """The cache of a machine that has the jars and nothing else."""
    resolve_jars(cache_dir, read_lock())
    fresh = tmp_path / "cache"
    fresh.mkdir()
    (fresh / "jars").symlink_to(cache_dir / "jars")
    return EmbeddedConfig(tmp_path / "kafka", fresh)


def test_a_stop_during_the_training_leaves_neither_process_nor_file(
    fresh_config: EmbeddedConfig,
) -> None:
    with EmbeddedBroker(fresh_config):
        pass
    training = fresh_config.cache_dir / "aot" / "training"
    assert find_broker(training.resolve() / "server.properties") is None
    assert sorted(path.name for path in training.parent.iterdir()) == ["training.lock"]


@pytest.mark.slow
def test_without_the_cache_there_is_no_training(fresh_config: EmbeddedConfig) -> None:
    plain = EmbeddedConfig(fresh_config.data_dir, fresh_config.cache_dir, aot=False)
    with EmbeddedBroker(plain):
        pass
    assert not (fresh_config.cache_dir / "aot").exists()


ALONE: dict[str, str] = {}
ONE_OF_TWO = {"node.id": "2", "controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ALONE, ONE_OF_TWO], ids=["alone", "one of two"])
def test_a_prepared_cache_is_one_that_java_accepts(
    fresh_config: EmbeddedConfig, settings: dict[str, str]
) -> None:
    prepare(replace(fresh_config, settings=settings))
    jars = resolve_jars(fresh_config.cache_dir, read_lock(), repository="")
    runtime = Runtime(find_java(None), tuple(jars))
    cache = AotCache.of(fresh_config.cache_dir, runtime)
    assert cache.is_made
    # With AOTMode=on Java refuses to start when the cache does not fit it or the class path.
    command = java_command(cache.apply_to(runtime), ["-XX:AOTMode=on"])
    subprocess.run([*command, "-version"], check=True, cwd=fresh_config.cache_dir)


@pytest.mark.slow
def test_java_accepts_the_cache_of_the_same_build_elsewhere(
    fresh_config: EmbeddedConfig, tmp_path: Path
) -> None:
    """Each new environment has a Java of its own."""
    prepare(fresh_config)
    jars = tuple(resolve_jars(fresh_config.cache_dir, read_lock()))
    home = find_java(None).path.resolve().parent.parent
    shutil.copytree(home, tmp_path / "java", copy_function=shutil.copy)
    runtime = Runtime(find_java(tmp_path / "java"), jars)
    cache = AotCache.of(fresh_config.cache_dir, runtime)
    assert cache.is_made
    command = java_command(cache.apply_to(runtime), ["-XX:AOTMode=on"])
    subprocess.run([*command, "-version"], check=True, cwd=fresh_config.cache_dir)
