"""The image's file: what its linter says, and what it promises to whoever runs it."""

from __future__ import annotations

import re

from rowtide.cli.settings import Settings, load_settings
from tests.deploy.linters import DEPLOY, program, run

FILE = DEPLOY / "container/Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return (instruction, rest) of the last stage, in order."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    pairs = [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]
    last = max(number for number, (word, _) in enumerate(pairs) if word == "FROM")
    return pairs[last:]


def test_its_linter_finds_nothing() -> None:
    run(program("hadolint", "pip install -e '.[linters]'"), "--failure-threshold", "style", FILE)


def test_it_runs_as_nobody_special_and_takes_signals_itself() -> None:
    told = dict(instructions())
    user, _, group = told["USER"].partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    # A shell as the first process would keep SIGTERM to itself.
    assert told["ENTRYPOINT"] == '["rowtide"]'
    assert told["STOPSIGNAL"] == "SIGTERM"


def test_its_connectors_have_what_they_need() -> None:
    assert "'./[connectors]'" in FILE.read_text(encoding="utf-8")


def test_its_health_is_asked_of_the_server() -> None:
    [check] = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    assert "http://127.0.0.1:8087/healthz" in check


def test_its_settings_are_settings() -> None:
    told = dict(instructions())
    pairs = re.findall(r"(ROWTIDE_\w+)=(\S+)", told["ENV"])
    known = {f"ROWTIDE_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert {name for name, _ in pairs} <= known
    settings = load_settings(None, dict(pairs), {})
    assert (settings.port, settings.log_format) == (int(told["EXPOSE"]), "json")
    assert str(settings.data_dir).startswith(told["VOLUME"] + "/")
    assert not settings.serves_metrics
