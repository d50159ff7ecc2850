"""The guide docs/guides/timeline.md: its commands answer as it shows, and its example runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import click
import pytest

from rowtide.cli.timeline import timeline
from rowtide.client import (
    AsyncClient,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
)
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_file
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.testing.instance import InstanceAccess
from tests.cli.test_transcript import mask_output, run_command
from tests.support.access import access_of

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/timeline.md"
BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    """Return the page's blocks of a kind."""
    return [text for found, text in BLOCK.findall(PAGE.read_text("utf-8")) if found == kind]


def set_variables(monkeypatch: pytest.MonkeyPatch, instance: InstanceAccess) -> None:
    """Have commands use an instance."""
    for name, value in access_of(instance).items():
        monkeypatch.setenv(f"ROWTIDE_{name.upper()}", value)


def check_commands(shown: str) -> None:
    """Run the commands of a block; each must answer as the block shows."""
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    assert "".join(map(run_command, commands)).splitlines() == mask_output(shown).splitlines()


def test_the_commands_of_the_guide_answer_as_it_shows(
    rowtide_instance: InstanceAccess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROWTIDE_CACHE_DIR", str(tmp_path))
    set_variables(monkeypatch, rowtide_instance)
    check_commands(blocks("console")[1])


def test_the_examples_of_the_guide_run(rowtide_instance: InstanceAccess, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for text in blocks("python"):
        exec(compile(text, PAGE.name, "exec"), names)
    access = access_of(rowtide_instance)
    assert asyncio.run(names["chat"](access)) == (["hi", "hello"], "1", True)

    async def search() -> tuple[int, int, int]:
        async with AsyncClient(**access) as client:
            timelines = Timelines(client, TimelineSchema("im_chat"), search_folder=tmp_path)
            metas = TimelineMetas(client, TimelineMetaSchema("im_meta"), search_folder=tmp_path)
            await metas.create()
            await metas.put(["group:7"], {"size": 100, "name": "表格"})
            await metas.put(["group:8"], {"size": 200, "name": "表格存储"})
            total, ids, large = await names["search"](timelines, metas)
            return total, len(ids), large

    assert asyncio.run(search()) == (1, 1, 1)


def test_the_inbox_of_the_guide_is_filled_by_its_connector(
    rowtide_instance: InstanceAccess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    access = access_of(rowtide_instance)
    names: dict[str, Any] = {}
    exec(compile(blocks("python")[2], PAGE.name, "exec"), names)
    [text] = blocks("yaml")
    [declared] = parse_file(text, PAGE.name)

    async def run_both() -> object:
        async with Endpoint(**access, patience_s=10) as endpoint, asyncio.TaskGroup() as tasks:
            run = SinkRun(declared, ProcessContext(endpoint, {}, str(tmp_path)))
            tasks.create_task(run.run())
            async with asyncio.timeout(60):
                found = await names["devices"](access)
            run.stop()
        return found

    assert asyncio.run(run_both()) == ("group:7", True, True, [])
    set_variables(monkeypatch, rowtide_instance)
    check_commands(blocks("console")[0])


def test_each_help_page_has_an_example() -> None:
    commands: list[click.Command] = [timeline]
    for command in commands:
        assert "rowtide t" in (command.help or ""), command.name
        if isinstance(command, click.Group):
            commands += command.commands.values()
