"""The compose file: what its specification says, and that no acknowledged write hangs on a disk."""

from __future__ import annotations

import json
from typing import Any

from rowtide.cli.settings import load_settings
from tests.deploy.image import image_settings
from tests.deploy.linters import DEPLOY, library

FILE = DEPLOY / "compose/compose.yaml"
YAML_RULES = """
extends: default
rules:
  line-length: {max: 120}
  document-start: disable
"""


def services() -> dict[str, Any]:
    """Return the services, merged."""
    found: dict[str, Any] = library("yaml").safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return found


def test_it_is_as_the_specification_of_compose_files_has_it() -> None:
    # With its merges made: the library knows YAML 1.2, which has none.
    merged = library("yaml").safe_load(FILE.read_text(encoding="utf-8"))
    read = library("compose_spec").PyCompose.from_json(json.dumps(merged))
    assert set(read.service_names()) == set(services())


def test_all_yaml_is_clean() -> None:
    linter, config = library("yamllint.linter"), library("yamllint.config")
    rules = config.YamlLintConfig(YAML_RULES)
    files = [path for path in DEPLOY.rglob("*.yaml") if "templates" not in path.parts]
    assert len(files) >= 4
    found = [
        f"{path.name}:{problem}"
        for path in files
        for problem in linter.run(path.read_text(encoding="utf-8"), rules)
    ]
    assert found == []


def test_three_brokers_hold_each_write_twice_at_least() -> None:
    brokers = {name: s for name, s in services().items() if name.startswith("kafka")}
    assert len(brokers) == 3
    for service in brokers.values():
        environment = service["environment"]
        assert environment["KAFKA_DEFAULT_REPLICATION_FACTOR"] == "3"
        assert environment["KAFKA_MIN_INSYNC_REPLICAS"] == "2"
        assert environment["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
    assert len({s["environment"]["KAFKA_NODE_ID"] for s in brokers.values()}) == 3


def test_three_workers_reach_each_other_and_have_time_to_drain() -> None:
    workers = {name: s for name, s in services().items() if name.startswith("rowtide")}
    assert len(workers) == 3
    for name, service in workers.items():
        settings = load_settings(None, image_settings() | service["environment"], {})
        assert settings.durability == "replicated"
        assert settings.advertise == name == service["hostname"]
        assert settings.slots >= len(workers)
        assert settings.serves_metrics
        assert service["stop_grace_period"] == "90s"
        # The host's side of a port is this machine alone.
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
