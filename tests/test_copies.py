"""A copy of a loaded process is a process of its own, and ends at the latest with the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rowtide.deploy.up import Child
from tests.support.copies import Copier, end_copiers, start
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are started elsewhere")

SHOWS = """
import json, os, sys
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
print(json.dumps({
    "arguments": sys.argv[1:], "variable": os.environ.get("ROWTIDE_HUE"), "name": __name__,
    "folder": os.getcwd(), "session": os.getsid(0), "input": sys.stdin.read(),
    "has_worker": "rowtide.stream.worker.worker" in sys.modules,
    "files": [os.readlink(path) for path in paths if os.path.lexists(path)],
}))
"""
WAITS = "import sys, time\nprint('begun', flush=True)\ntime.sleep(600)"


def run(
    folder: Path, program: str, *words: str, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a program whose output is in the folder's file ``output``."""
    script = folder / "program.py"
    script.write_text(program)
    with (folder / "output").open("wb") as output:
        return start(
            "server",
            words,
            program=str(script),
            environment=environment,
            folder=folder,
            output=output,
            error=output,
        )


def printed(folder: Path) -> str:
    return (folder / "output").read_text()


def test_a_copy_has_what_its_start_names(tmp_path: Path) -> None:
    environment = {**os.environ, "ROWTIDE_HUE": "blue"}
    child = run(tmp_path, SHOWS, "one", "--two", environment=environment)
    assert child.wait(20) == 0
    shown: dict[str, Any] = json.loads(printed(tmp_path))
    # Files of other copies and of the process that was copied would keep what they name.
    assert not [name for name in shown.pop("files") if name.startswith(("socket", "anon", "/tmp"))]
    assert shown == {
        "arguments": ["one", "--two"],
        "variable": "blue",
        "name": "__main__",
        "folder": str(tmp_path),
        "session": child.pid,
        "input": "",
        "has_worker": True,
    }


@pytest.mark.parametrize(
    ("program", "code"),
    [("", 0), ("import sys; sys.exit(3)", 3), ("1 / 0", 1)],
    ids=["end", "exit", "error"],
)
def test_a_copy_ends_with_the_exit_code_of_its_program(
    tmp_path: Path, program: str, code: int
) -> None:
    assert run(tmp_path, program).wait(20) == code
    assert ("ZeroDivisionError" in printed(tmp_path)) == (code == 1)


def test_a_copy_is_signalled_and_leaves_no_process(tmp_path: Path) -> None:
    child = run(tmp_path, WAITS)
    until(lambda: "begun" in printed(tmp_path), poll_s=0.01)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.send_signal(signal.SIGTERM)
    assert (child.wait(20), child.returncode) == (-signal.SIGTERM, -signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)
    child.kill()  # It ended: there is nobody to signal.


def test_copies_end_with_the_process_that_asked_for_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WAITS)
    copier = Copier("server")
    request = {
        "arguments": [str(tmp_path / "program.py")],
        "environment": dict(os.environ),
        "folder": str(tmp_path),
    }
    with (tmp_path / "output").open("wb") as output:
        child = copier.copy(request, output.fileno(), output.fileno())
    until(lambda: "begun" in printed(tmp_path), poll_s=0.01)
    copier.close()
    assert child.wait(20) == -signal.SIGKILL


def test_copies_for_several_threads_are_made_by_one_process(tmp_path: Path) -> None:
    end_copiers()
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(folders)) as pool:
        children = list(pool.map(lambda folder: run(folder, WAITS), folders))
    try:
        until(lambda: all("begun" in printed(folder) for folder in folders), poll_s=0.01)
        assert len({parent_of(child.pid) for child in children}) == 1
    finally:
        for child in children:
            child.kill()
            child.wait()


def parent_of(pid: int) -> int:
    """Return the id of a process's parent."""
    _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    return int(rest.split()[1])


def test_variables_that_python_reads_at_its_start_are_those_of_a_program(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONUTF8": "1", "ROWTIDE_HUE": "red"}
    child = run(tmp_path, SHOWS, "word", environment=environment)
    assert child.wait(20) == 0
    shown: dict[str, Any] = json.loads(printed(tmp_path))
    assert (shown["arguments"], shown["variable"], shown["has_worker"]) == (["word"], "red", False)
