"""The image's file: what its linter says, and what it promises to its user."""

from __future__ import annotations

from rowtide.cli.settings import Settings, load_settings
from tests.deploy.image import IMAGE, image_settings, instructions
from tests.deploy.linters import program, run


def test_its_linter_finds_nothing() -> None:
    run(program("hadolint", "pip install -e '.[linters]'"), "--failure-threshold", "style", IMAGE)


def test_it_runs_as_nobody_special_and_takes_signals_itself() -> None:
    image = dict(instructions())
    user, _, group = image["USER"].partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    # A shell as the first process would keep SIGTERM to itself.
    assert image["ENTRYPOINT"] == '["rowtide"]'
    assert image["STOPSIGNAL"] == "SIGTERM"


def test_its_connectors_have_what_they_need() -> None:
    assert "'./[connectors]'" in IMAGE.read_text(encoding="utf-8")


def test_its_health_is_asked_of_the_server() -> None:
    [check] = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    assert "http://127.0.0.1:8087/healthz" in check


def test_its_settings_are_settings() -> None:
    image = dict(instructions())
    known = {f"ROWTIDE_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert image_settings().keys() <= known
    settings = load_settings(None, image_settings(), {})
    assert image["EXPOSE"].split() == [str(settings.port), str(settings.console_port)]
    assert settings.log_format == "json"
    assert str(settings.data_dir).startswith(image["VOLUME"] + "/")
    assert not settings.serves_metrics
