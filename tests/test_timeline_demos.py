"""The examples of timelines prove what docs/guides/timeline.md shows, and end at Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.interrupts import heed_ctrl_c
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs/guides/timeline.md"
EXAMPLES = ("chat", "social", "devices")
LINES_MAX = 150
EXAMPLE_S_MAX = 240.0
SHOWN = re.compile(r"^\$ make demo-(\w+)(?: ONCE=1)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SECONDS = re.compile(r"\d+\.\d s in all")


@contextmanager
def running(name: str, folder: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Run an example as its target of make does; kill it at the end if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **more}
    arguments = [sys.executable, "-m", f"demo.timeline.{name}"]
    with (
        (folder / "printed").open("wb") as output,
        subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=heed_ctrl_c,
        ) as child,
    ):
        try:
            yield child
        finally:
            child.kill()  # Its server notices, and ends, too.


def printed(folder: Path) -> str:
    """Return what the example has printed."""
    return (folder / "printed").read_text("utf-8")


def find_links(folder: Path) -> list[str]:
    """Return the links that the example has printed, each with the end of its line."""
    return re.findall(r"http://127\.0\.0\.1:\d+/#rts_\S+\n", printed(folder))


def list_shown() -> dict[str, str]:
    """Return what the guide shows of each example."""
    return dict(SHOWN.findall(GUIDE.read_text("utf-8")))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_proves_what_the_guide_shows(name: str, tmp_path: Path) -> None:
    with running(name, tmp_path, ONCE="1") as child:
        code = child.wait(EXAMPLE_S_MAX)
    found = SECONDS.sub("N s in all", printed(tmp_path))
    assert code == 0, found
    assert found.split() == SECONDS.sub("N s in all", list_shown()[name]).split()
    assert [path.name for path in tmp_path.iterdir()] == ["printed"]


def test_ctrl_c_ends_the_chat_its_page_and_its_server(tmp_path: Path) -> None:
    with running("chat", tmp_path) as child:
        until(
            lambda: len(find_links(tmp_path)) == 2 or child.poll() is not None,
            lambda: printed(tmp_path),
            s_max=EXAMPLE_S_MAX,
        )
        links = find_links(tmp_path)
        assert "Ctrl-C" in printed(tmp_path)
        child.send_signal(signal.SIGINT)
        code = child.wait(EXAMPLE_S_MAX)
    assert (code, len(links)) == (130, 2), printed(tmp_path)
    assert printed(tmp_path).endswith("\nStopped.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["printed"]


@pytest.mark.parametrize("path", sorted((ROOT / "demo/timeline").iterdir()), ids=lambda p: p.name)
def test_an_example_is_short(path: Path) -> None:
    if path.is_file():
        assert len(path.read_text("utf-8").splitlines()) < LINES_MAX


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_target(name: str) -> None:
    steps = subprocess.run(
        ["make", "-n", f"demo-{name}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert steps.rstrip().endswith(f"-m demo.timeline.{name}")
