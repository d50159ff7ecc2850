"""The first pages of the documents, docs/start: each command answers as its page shows.

One server runs for all pages after the first, as it does for a reader. What differs from run to run
is masked on both sides. A line of dots in a page stands for any number of lines.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.test_transcript import mask_output
from tests.support.page_commands import path_with_programs
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "docs/start"
PAGES = ("first-table", "first-stream", "first-connector")
STEP = re.compile(r"(?:<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AGAIN = ("rowtide connector status", "rowtide search")
"""Commands that show what follows a write: they are given until the answer is there."""
RUNS_ON = re.compile(r"\d+\.\d +\d+ +(\d+) +\S+:\d+$", re.MULTILINE)
S_MAX = 600.0
"""An installation downloads its dependencies."""
CODEC = re.compile(r"^Native C\+\+ \w+ not available, .*\n", re.MULTILINE)
"""What the official SDK prints where its compiled codec is for another Python."""


class Command(NamedTuple):
    """A command of a page, and the output that the page shows."""

    line: str
    shown: str


def alike(text: str) -> str:
    """Return text without what differs from run to run, and without spaces at ends of lines."""
    text = RUNS_ON.sub(r"RATE \1 HOST", mask_output(CODEC.sub("", text)))
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def agrees(shown: str, given: str) -> bool:
    """True if the output is what a page shows; a line of dots stands for any lines."""
    pattern = "(.*\n)?".join(re.escape(part) for part in alike(shown).split("...\n"))
    return bool(re.fullmatch(re.sub(r"\\\.\\\.\\\.$", ".*", pattern), alike(given), re.DOTALL))


def steps(page: str) -> Iterator[Command | tuple[str, str]]:
    """Yield the commands of a page and the files (name, text) that it tells to save."""
    for name, kind, text in STEP.findall((START / f"{page}.md").read_text(encoding="utf-8")):
        if kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                yield Command(*part.partition("\n")[::2])
        elif name:
            yield name, text


class Terminal:
    """Runs commands in a folder, with the rowtide that is tested first on the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own = {k: v for k, v in os.environ.items() if not k.startswith("ROWTIDE_")}
        # A free port, and an end of the server should this process be killed.
        served = {"ROWTIDE_PORT": "0", "ROWTIDE_PARENT": str(os.getpid())}
        self._environment = {**own, **served, "PATH": path_with_programs()}

    def save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")

    def output(self, line: str) -> str:
        """Return what a command prints, on both streams."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=S_MAX,
            check=False,
        ).stdout

    @contextmanager
    def serving(self, command: Command) -> Iterator[None]:
        """Run a server; fail where it does not print what its page shows."""
        path = self._folder / "printed"
        with path.open("wb") as printed:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command.line}"],
                cwd=self._folder,
                env=self._environment,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        try:
            until(lambda: agrees(command.shown, path.read_text()), path.read_text)
            yield
        finally:
            server.terminate()
            server.wait(timeout=60)

    def check(self, command: Command) -> None:
        """Run a command; fail where its output is not what the page shows."""
        given = [self.output(command.line)]

        def has_agreed() -> bool:
            if not agrees(command.shown, given[0]) and command.line.startswith(AGAIN):
                given[0] = self.output(command.line)
            return agrees(command.shown, given[0])

        s_max = 60.0 if command.line.startswith(AGAIN) else 0.0
        until(has_agreed, lambda: f"$ {command.line}\n{given[0]}", s_max=s_max)


def test_every_command_of_the_first_pages_answers_as_shown(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    with ExitStack() as servers:
        for step in (step for page in PAGES for step in steps(page)):
            if not isinstance(step, Command):
                terminal.save(*step)
            elif step.line.startswith("rowtide dev"):
                servers.enter_context(terminal.serving(step))
            else:
                terminal.check(step)


@pytest.mark.slow
def test_the_commands_that_install_do_so(tmp_path: Path) -> None:
    for name in subprocess.check_output(["git", "-C", ROOT, "ls-files"], text=True).splitlines():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    commands = [step for step in steps("install") if isinstance(step, Command)]
    terminal = Terminal(tmp_path)
    for command in takewhile(lambda command: not command.line.startswith("export"), commands):
        terminal.check(command)
    [exported] = [c.line for c in commands if c.line.startswith("export")]
    last = commands[-1]
    terminal.check(
        Command(
            f"{exported}; test $(which rowtide) -ef .venv/bin/rowtide && {last.line}", last.shown
        )
    )
