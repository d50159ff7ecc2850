"""The reference pages are what the commands and settings say now."""

from dataclasses import fields
from pathlib import Path

import click
import pytest

from rowtide.cli.field_text import field_texts
from rowtide.cli.main import COMMANDS, LazyGroup, main
from rowtide.cli.reference import cli_page, configuration_page
from rowtide.cli.settings import Settings
from rowtide.stream.log.kafka.config import Security

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_the_command_line_is_current() -> None:
    # Made anew by: python -m rowtide.cli.reference cli > docs/reference/cli.md
    assert (DOCS / "reference/cli.md").read_text(encoding="utf-8") == cli_page()


def test_the_page_of_the_settings_is_current() -> None:
    # Made anew by: python -m rowtide.cli.reference configuration > docs/reference/configuration.md
    assert (DOCS / "reference/configuration.md").read_text(encoding="utf-8") == configuration_page()


@pytest.mark.parametrize("kind", [Settings, Security])
def test_every_setting_says_what_it_is(kind: type[Settings] | type[Security]) -> None:
    texts = field_texts(kind)
    assert [f.name for f in fields(kind) if not texts.get(f.name)] == []


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_of_commands_says_what_a_command_says(name: str) -> None:
    assert isinstance(main, LazyGroup)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
