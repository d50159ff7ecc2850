"""The page of the analytics sinks: its examples are taken, and it tells every setting."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import Surroundings, make_sink

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connector-analytics.md"
ENVIRONMENT = {"CLICKHOUSE_PASSWORD": "x", "KEY_ID": "x", "KEY_SECRET": "x"}
KINDS = {"duckdb", "clickhouse", "delta", "parquet"}


def test_the_examples_are_taken_and_every_setting_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    told = set(re.findall(r"`(\w+)`", text))
    kinds = set()
    for name, document in yaml.safe_load(example)["connectors"].items():
        kinds.add(document["sink"]["kind"])
        fields = Fields(document["sink"], name, environment=ENVIRONMENT)
        assert make_sink(fields, Surroundings(name, "/nowhere"))
        assert fields._asked <= told
    assert kinds == KINDS
