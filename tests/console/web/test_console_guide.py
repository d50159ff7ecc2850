"""The commands of docs/guides/console.md print what the page says, in the order of the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rowtide.cli.settings import load_settings
from rowtide.deploy.ports import free_ports
from tests.support.page_commands import list_commands, path_with_programs, pattern_of
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/guides/console.md").read_text(encoding="utf-8")
WORKER, BESIDE, ALONE = "8087", "9087", "9187"
"""Ports that the page names; the test takes others."""


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shell() -> dict[str, str]:
    """An environment for the page's commands."""
    return {**os.environ, "PATH": path_with_programs(), "ROWTIDE_CONSOLE": "true"}


def free_pair() -> tuple[int, int, int]:
    """Return a worker's port, its console's, and a third one; all are free."""
    ports = list(free_ports("127.0.0.1"))
    for port in ports:
        with_console = subprocess_free(port + 1000)
        if with_console:
            return port, port + 1000, next(one for one in ports if one not in (port, port + 1000))
    raise AssertionError("no two free ports that are 1000 apart")


def subprocess_free(port: int) -> bool:
    from rowtide.deploy.ports import is_free

    return is_free("127.0.0.1", port)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
def test_the_commands_of_the_page(tmp_path: Path, shell: dict[str, str]) -> None:
    worker, beside, alone = map(str, free_pair())
    dev, *others = [
        (
            command.replace(WORKER, worker).replace(BESIDE, beside).replace(ALONE, alone),
            printed.replace(WORKER, worker).replace(BESIDE, beside).replace(ALONE, alone),
        )
        for command, printed in list_commands(PAGE)
    ]
    running: list[subprocess.Popen[bytes]] = []

    def start(command: str, printed: str, name: str) -> None:
        """Start a command that goes on, and wait for what it prints."""
        output = tmp_path / name
        with output.open("wb") as out:
            words = ["bash", "-c", f"exec {command}"]
            running.append(subprocess.Popen(words, cwd=tmp_path, env=shell, stdout=out, stderr=out))
        until(lambda: pattern_of(printed).search(output.read_text()), output.read_text)

    try:
        start(f"{dev[0]} --port {worker}", dev[1], "dev")
        saved = json.loads((tmp_path / "rowtide-data" / "credentials.json").read_text())
        shell["KEY_ID"], shell["KEY_SECRET"] = saved["access_key_id"], saved["access_key_secret"]
        count = 0
        for command, printed in others:
            if "--endpoint" in command:
                start(command, printed, "alone")
                continue
            words = ["bash", "-c", command]
            done = subprocess.run(
                words, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, (command, done.stderr)
            assert pattern_of(printed).fullmatch(done.stdout.strip()), (command, done.stdout)
            count += 1
        assert (count, len(running)) == (3, 2)
    finally:
        for child in reversed(running):
            child.terminate()
            child.wait(60)


@pytest.mark.parametrize("text", blocks("toml"))
def test_the_settings_of_the_page(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rowtide.toml"
    file.write_text(text, encoding="utf-8")
    name = text.partition(" = ")[0]
    assert getattr(load_settings(file, {}, {}), name)


def test_the_page_names_every_page_and_no_other() -> None:
    from rowtide.console.process.app import ROUTES

    named = set(re.findall(r"^\| `(/[^`]*)` \|", PAGE, re.MULTILINE))
    served = {
        route.path.replace("{instance}", "INSTANCE").replace("{table}", "TABLE")
        for route in ROUTES
        if route.method == "GET" and route.has_json and route.needs_session
    }
    assert named <= served
    inner = ("/row", "/{name}")  # Reached from a page that is named.
    assert {path for path in served - named if not path.endswith(inner)} == set()
