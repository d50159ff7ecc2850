"""The whole command line against a real server: each command of transcript.txt, word for word.

What differs from run to run is masked: TIME, US and MS (times), KEY, SECRET, TOKEN, SHARED, PORT,
PID, and LOG (where logs are). A failure shows the transcript that this run gave, as a difference to
the one that is kept.
"""

from __future__ import annotations

import re
import shlex
from difflib import unified_diff
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowtide.cli.main import main
from tests.support.servers import LOG

TRANSCRIPT = Path(__file__).with_name("transcript.txt")
MASKS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"(\w+)_\d{16}\b", r"\1_TIME"),
    (r"\b\d{16}\b", "US"),
    (r"\[\d{13}, \d{13}\)", "[MS, MS)"),
    (r"(?<!version: )\b1[789]\d{11}\b", "MS"),
    (r"\brt[0-9a-f]{18}\b", "KEY"),
    (r"(secret +)[\w-]{40}$", r"\1SECRET"),
    (r"\brts_[0-9a-f]{18}_[\w-]{43}$", "SHARED"),
    (r"^(token id +)?[0-9a-f]{18}\b", r"\1TOKEN"),
    (r"(127\.0\.0\.1):\d{4,}", r"\1:PORT"),
    (r"(process +)\d+, up .*", r"\1PID, up AGE"),
    (r"(kernels +)(native|Python)$", r"\1KIND"),
    (r"(free disk +)[\d,]+", r"\1MB"),
    (r"^(log +)(local|Kafka) \S+, fsync$", r"\1LOG, fsync"),
]


def mask_output(text: str) -> str:
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text


def run_command(command: str) -> str:
    """Return a command, its output on both streams, and its exit code unless 0."""
    program, *arguments = shlex.split(command)
    assert program == "rowtide"
    result = CliRunner().invoke(main, arguments, prog_name="rowtide")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    code = f"[exit {result.exit_code}]\n" if result.exit_code else ""
    return f"$ {command}\n{mask_output(result.output)}{code}"


def play(transcript: Path) -> None:
    """Give each command of a transcript; all must answer as it says."""
    kept = transcript.read_text(encoding="utf-8")
    commands = [line[2:] for line in kept.splitlines() if line.startswith("$ ")]
    given = "".join(map(run_command, commands))
    difference = unified_diff(kept.splitlines(), given.splitlines(), "kept", "given", lineterm="")
    if different := "\n".join(difference):
        pytest.fail(different)


@pytest.mark.system
def test_every_command_answers_as_written(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWTIDE_DATA_DIR", str(data_dir))
    play(TRANSCRIPT)


@pytest.mark.system
def test_the_status_says_where_the_logs_are(data_dir: Path) -> None:
    output = CliRunner().invoke(main, ["status", "--data-dir", str(data_dir)]).output
    where = {"local": re.escape(f"local {data_dir}/log"), "kafka": r"Kafka 127\.0\.0\.1:\d+"}
    assert re.search(rf"^log +{where[LOG]}, fsync$", output, re.MULTILINE)
