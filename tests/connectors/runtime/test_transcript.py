"""The commands of connectors against a real server, word for word, as tests/cli has the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.deploy.up import Ready
from tests.cli.test_transcript import play
from tests.connectors.processes import environment
from tests.support.servers import serving

FOLDER = Path(__file__).parent
TRANSCRIPT = FOLDER / "transcript.txt"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ready]:
    """A server in which no other test declares connectors."""
    with serving(tmp_path, "--connectors", "false") as ready:
        yield ready


@pytest.mark.system
def test_every_command_answers_as_written(server: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(FOLDER.parents[2]))
    monkeypatch.chdir(FOLDER)
    play(TRANSCRIPT)
