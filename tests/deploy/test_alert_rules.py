"""Every alert asks for numbers that there are, in PromQL, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.linters import DEPLOY, library

DOCS = Path(__file__).resolve().parents[2] / "docs"
FILE = DEPLOY / "alerts/rowtide.yaml"
NAMES = re.findall(r"- alert: (\w+)", FILE.read_text(encoding="utf-8"))


def rule(name: str) -> dict[str, Any]:
    """Return one alert."""
    [group] = library("yaml").safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    [found] = [rule for rule in group["rules"] if rule["alert"] == name]
    return dict(found)


@pytest.mark.parametrize("name", NAMES)
def test_its_question_is_promql_about_metrics_that_there_are(name: str) -> None:
    question = rule(name)["expr"]
    library("promql_parser").parse(question)
    documented = set(
        re.findall(r"`(rowtide_\w+)`", (DOCS / "reference/metrics.md").read_text("utf-8"))
    )
    asked = {metric.removesuffix("_bucket") for metric in re.findall(r"\browtide_\w+", question)}
    assert asked <= documented
    assert asked or "up{" in question


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_section_that_says_what_to_do(name: str) -> None:
    annotations = rule(name)["annotations"]
    assert annotations["runbook"] == f"docs/guides/operations.md#{name.lower()}"
    assert f"\n### {name}\n" in (DOCS / "guides/operations.md").read_text("utf-8")
    assert annotations["summary"]
    assert rule(name)["labels"]["severity"] in ("warning", "critical")


def test_every_section_has_its_alert() -> None:
    sections = re.findall(
        r"^### (\w+)", (DOCS / "guides/operations.md").read_text("utf-8"), re.MULTILINE
    )
    assert sections == NAMES
