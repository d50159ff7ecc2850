"""What the configuration rejects, where the cache lies, the settings of the broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rowtide.deploy.kafka.config import (
    Addresses,
    EmbeddedConfig,
    default_cache_dir,
    server_properties,
)

CONFIG = EmbeddedConfig(Path("/data"), Path("/cache"))
ADDRESSES = Addresses("127.0.0.1", 20001, 20002)


@pytest.mark.parametrize(
    ("environment", "platform", "expected"),
    [
        ({"HOME": "/home/ada"}, "linux", "/home/ada/.cache/rowtide"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": "/fast"}, "linux", "/fast/rowtide"),
        (
            {"HOME": "/home/ada", "XDG_CACHE_HOME": "not/absolute"},
            "linux",
            "/home/ada/.cache/rowtide",
        ),
        ({"HOME": "/Users/ada"}, "darwin", "/Users/ada/Library/Caches/rowtide"),
    ],
)
def test_the_cache_lies_where_the_platform_keeps_caches(
    environment: dict[str, str], platform: str, expected: str
) -> None:
    assert default_cache_dir(environment, platform) == Path(expected)


@pytest.mark.parametrize(
    ("setting", "value"), [("heap_mb", 128), ("session_timeout_ms", 500), ("port", 70_000)]
)
def test_a_setting_out_of_bounds_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be .* not {value}"):
        replace(CONFIG, **{setting: value})


def test_nothing_is_lost_by_a_default_of_kafka() -> None:
    properties = server_properties(CONFIG, ADDRESSES)
    assert properties["log.retention.ms"] == "-1"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["log.flush.interval.messages"] == "1"


def test_settings_come_before_ours() -> None:
    several = replace(CONFIG, settings={"node.id": "3", "background.threads": "9"})
    properties = server_properties(several, ADDRESSES)
    assert (properties["node.id"], properties["background.threads"]) == ("3", "9")
    assert properties["process.roles"] == server_properties(CONFIG, ADDRESSES)["process.roles"]


def test_without_fsync_kafka_leaves_flushing_to_the_system() -> None:
    properties = server_properties(replace(CONFIG, fsync=False), ADDRESSES)
    assert "log.flush.interval.messages" not in properties


def test_the_broker_is_reached_on_loopback_only() -> None:
    listeners = server_properties(CONFIG, ADDRESSES)["listeners"]
    assert listeners == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
