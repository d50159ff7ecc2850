"""The guide docs/guides/timeline.md: its commands answer as it shows, and its example runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import click
import pytest

from rowtide.cli.timeline import timeline
from rowtide.testing.instance import InstanceAccess
from tests.cli.test_transcript import mask_output, run_command

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/timeline.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def block(kind: str) -> str:
    """Return the page's block of a kind."""
    [text] = [text for found, text in BLOCK.findall(PAGE.read_text("utf-8")) if found == kind]
    return str(text)


def test_the_commands_of_the_guide_answer_as_it_shows(
    rowtide_instance: InstanceAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWTIDE_ENDPOINT", rowtide_instance.endpoint)
    monkeypatch.setenv("ROWTIDE_INSTANCE", rowtide_instance.name)
    monkeypatch.setenv("ROWTIDE_ACCESS_KEY_ID", rowtide_instance.access_key_id)
    monkeypatch.setenv("ROWTIDE_ACCESS_KEY_SECRET", rowtide_instance.access_key_secret)
    shown = block("console")
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    assert "".join(map(run_command, commands)).splitlines() == mask_output(shown).splitlines()


def test_the_example_of_the_guide_runs(rowtide_instance: InstanceAccess) -> None:
    names: dict[str, Any] = {}
    exec(compile(block("python"), PAGE.name, "exec"), names)
    access = {
        "endpoint": rowtide_instance.endpoint,
        "instance": rowtide_instance.name,
        "access_key_id": rowtide_instance.access_key_id,
        "access_key_secret": rowtide_instance.access_key_secret,
    }
    assert asyncio.run(names["chat"](access)) == (["hi", "hello"], "1", True)


def test_each_help_page_has_an_example() -> None:
    commands: list[click.Command] = [timeline]
    for command in commands:
        assert "rowtide t" in (command.help or ""), command.name
        if isinstance(command, click.Group):
            commands += command.commands.values()
