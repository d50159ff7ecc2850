"""The examples of docs/guides/testing.md are files that do what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.linters import library

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
RUN_S_MAX = 600.0
"""A first build downloads an SDK."""


YAML_RULES = """
extends: default
rules:
  line-length: {max: 100}
  document-start: disable
  truthy: {check-keys: false}
"""


def environment() -> dict[str, str]:
    """Return an environment in which ``rowtide`` is the one that is tested."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([programs, os.environ["PATH"]])}


def run(folder: Path, *command: str) -> str:
    """Run an example; return what it printed, and fail with it where it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{command[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def copy_example(name: str, target: Path) -> Path:
    """Return a copy of an example, so that no run leaves a trace in the tree."""
    return Path(shutil.copytree(EXAMPLES / name, target / name))


def test_the_page_shows_or_links_each_file() -> None:
    page = (DOCS / "guides/testing.md").read_text(encoding="utf-8")
    shown = dict(BLOCK.findall(page))
    files = {
        str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
        for path in EXAMPLES.rglob("*")
        if path.is_file() and path.suffix != ".sum" and "__pycache__" not in path.parts
    }
    linked = {name for name in files if f"](../{name})" in page}
    assert shown == {name: text for name, text in files.items() if name not in linked}


def test_the_functions_of_the_page_are_those_of_the_file() -> None:
    page = (DOCS / "guides/testing.md").read_text(encoding="utf-8")
    file = (EXAMPLES / "pytest/test_notes.py").read_text(encoding="utf-8")
    [shown] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert [part for part in shown.split("\n\n\n") if part not in file] == []


@pytest.mark.system
def test_pytest(tmp_path: Path) -> None:
    folder = copy_example("pytest", tmp_path)
    (folder / "pytest.ini").write_text(
        # The official SDK says at import that its compiled codec is for another Python.
        "[pytest]\nfilterwarnings =\n error\n ignore:OTS C\\+\\+ SDK:ImportWarning\n"
    )
    options = "-p", "no:asyncio", f"--basetemp={tmp_path / 'temporary'}"
    assert "3 passed" in run(folder, sys.executable, "-m", "pytest", *options)


def need(*tools: str) -> None:
    """Skip where a tool is missing, and say which."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"NOT CHECKED: {', '.join(missing)} is not on the PATH")


@pytest.mark.system
def test_go(tmp_path: Path) -> None:
    need("go")
    folder = copy_example("go", tmp_path)
    assert "--- PASS: TestANoteIsReadBack" in run(folder, "go", "test", "-v", "-count=1", "./...")


@pytest.mark.system
def test_junit(tmp_path: Path) -> None:
    need("mvn", "java")
    folder = copy_example("java", tmp_path)
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in run(folder, "mvn", "-B", "test")


def steps() -> list[dict[str, Any]]:
    """Return the steps of the workflow that run a shell."""
    workflow = yaml.safe_load((EXAMPLES / "github/tests.yml").read_text(encoding="utf-8"))
    [job] = workflow["jobs"].values()
    found: list[dict[str, Any]] = [step for step in job["steps"] if "run" in step]
    return found


@pytest.mark.system
@pytest.mark.parametrize("broken", [False, True])
def test_the_steps_of_github_actions(tmp_path: Path, *, broken: bool) -> None:
    install, start, tests, stop = steps()
    assert install["run"] == "pip install rowtide"  # It is installed here already.
    if broken:
        tests["run"] += "false\n"
    job = Job(tmp_path)
    codes = [job.run(step) for step in (start, tests)]
    assert codes == [0, int(broken)], job.printed
    assert job.run(stop) == 0, job.printed
    assert "hello" in job.printed
    assert "rowtide is ready." in job.printed
    assert job.printed.endswith("Stopped.\n")
    assert stop["if"] == "always()", "the server ends also after tests that failed"


class Job:
    """Runs steps as a runner of GitHub does: a shell each, and variables that steps add."""

    def __init__(self, folder: Path) -> None:
        self.printed = ""
        self._folder = folder
        self._added = folder / "environment"
        self._added.touch()

    def run(self, step: dict[str, Any]) -> int:
        """Run a step; return its exit code."""
        variables = dict(line.split("=", 1) for line in self._added.read_text().splitlines())
        runner = {"RUNNER_TEMP": str(self._folder), "GITHUB_ENV": str(self._added)}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self._folder,
            env={**environment(), **runner, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        self.printed += done.stdout
        return done.returncode


def test_the_workflow_is_clean_yaml() -> None:
    linter, config = library("yamllint.linter"), library("yamllint.config")
    rules = config.YamlLintConfig(YAML_RULES)
    text = (EXAMPLES / "github/tests.yml").read_text(encoding="utf-8")
    assert list(map(str, linter.run(text, rules))) == []
