"""The examples on the pages of these connectors are what their sinks take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import Surroundings, make_sink

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("connector-kafka.md", "connector-mysql-sink.md", "connector-webhook.md")
ENVIRONMENT = {"KAFKA_PASSWORD": "x", "MYSQL_PASSWORD": "x", "HOOK_SECRET": "x"}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_are_taken(page: str) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    assert examples
    for example in examples:
        for name, document in yaml.safe_load(example)["connectors"].items():
            fields = Fields(document["sink"], name, environment=ENVIRONMENT)
            assert make_sink(fields, Surroundings(name, ""))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_tells_every_setting(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    kind = {"connector-mysql-sink.md": "mysql"}.get(page, page.split("-")[1].split(".")[0])
    example = re.findall(r"```yaml\n(.*?)```", text, re.S)[0]
    [document] = yaml.safe_load(example)["connectors"].values()
    assert document["sink"]["kind"] == kind
    fields = Fields(document["sink"], "test", environment=ENVIRONMENT)
    make_sink(fields, Surroundings("test", ""))
    told = set(re.findall(r"`(\w+)`", text))
    assert fields._asked - {"kind"} <= told
