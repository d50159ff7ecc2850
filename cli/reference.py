"""Makes the reference pages from the commands and the settings, so that they stay correct.

    python -m rowtide.cli.reference cli > docs/reference/cli.md
    python -m rowtide.cli.reference configuration > docs/reference/configuration.md

A test compares the committed pages with these results.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from copy import copy
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from rowtide.cli.exits import EXIT_CODES
from rowtide.cli.field_text import field_texts
from rowtide.cli.main import main
from rowtide.cli.settings import Settings, flag
from rowtide.stream.log.kafka.config import Security

__all__ = ["cli_page", "configuration_page"]

WIDTH = 100
SERVERS = {"up", "dev", "worker"}
"""Commands whose flags are the settings, which have a separate page."""
REPEATED = "output"
"""The option of every command that prints a result. The page has it once."""

CLI_HEAD = """\
# The command line

Made by `python -m rowtide.cli.reference cli`; a test compares.

`rowtide up`, `rowtide dev` and `rowtide worker` start servers. Other commands send requests to a
server with the protocol of the SDKs. Without flags, that is the server on `--data-dir`.

`-h` or `--help` shows the help of a command with all its options. `-o json` or `--output json`
prints one JSON document per command; `row scan` and `stream tail` print one object per line.
Commands without a result lack this option. An error is one sentence on stderr. A hint may follow on
the next line.

## Exit codes

| code | meaning |
|---|---|
"""

CONFIGURATION_HEAD = """\
# Configuration

Made by `python -m rowtide.cli.reference configuration`; a test compares.

The settings of `rowtide up`, `rowtide dev` and `rowtide worker`. A setting comes from the TOML file
that `--config` names, from the environment or from a flag; the later of these wins. For example,
`data_dir` is the variable `ROWTIDE_DATA_DIR` and the flag `--data-dir`. Unknown settings in the
file are rejected. Unknown variables are ignored.

```toml
port = 8087
kafka = "kafka-1:9093,kafka-2:9093,kafka-3:9093"
durability = "replicated"

[kafka_security]
protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "rowtide"
sasl_password = "..."
cafile = "/etc/rowtide/ca.pem"
```

"""


def cli_page() -> str:
    """Return docs/reference/cli.md."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    parts = [CLI_HEAD + codes]
    connection = ""
    for path, command in _commands(["rowtide"], main):
        own, settings = _without_settings(command)
        text, _, shared = _help(path, own).partition("\nConnection:\n")
        connection = connection or shared
        parts.append(f"{_section(path, text)}{settings}")
    about = "These options are part of every command that sends requests:"
    parts.insert(1, f"## Connection\n\n{about}\n\n```text\n{connection.rstrip()}\n```\n")
    return "\n".join(parts)


def _section(path: list[str], text: str) -> str:
    """Return the heading and the help of a command. The commands of a group follow as sections."""
    usage, _, about = text.partition("\n\n")
    called = " ".join(usage.removeprefix("Usage: ").replace(" [OPTIONS]", "").split())
    if len(path) > 1:
        about = about.partition("\nCommands:\n")[0]
    heading = f"{'#' * max(2, len(path))} `{called.removesuffix(' COMMAND [ARGS]...')}`"
    return f"{heading}\n\n```text\n{about.rstrip()}\n```\n"


def _commands(path: list[str], command: click.Command) -> Iterator[tuple[list[str], click.Command]]:
    """Yield ``command`` and every command below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None, name
            yield from _commands([*path, name], below)


def _without_settings(command: click.Command) -> tuple[click.Command, str]:
    """Return a command without what the page has elsewhere, and a line about its settings."""
    settings = [f.name for f in fields(Settings) if f.name != "kafka_security"]
    is_server = command.name in SERVERS
    own = copy(command)
    own.params = [
        param
        for param in command.params
        if param.name != REPEATED and not (is_server and param.name in settings)
    ]
    if not is_server:
        return own, ""
    had = {param.name for param in command.params}
    lacking = " ".join(flag(name) for name in settings if name not in had)
    text = f"Its other flags are the [settings](configuration.md), except `{lacking}`."
    text = text if lacking else text.replace(", except ``", "")
    return own, f"\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n"


def _help(path: list[str], command: click.Command) -> str:
    command = copy(command)
    command.add_help_option = False  # The page mentions this flag once.
    ctx = click.Context(
        command,
        info_name=" ".join(path),
        max_content_width=WIDTH,
        terminal_width=WIDTH,
    )
    return command.get_help(ctx)


def configuration_page() -> str:
    """Return docs/reference/configuration.md."""
    texts, secure = field_texts(Settings), field_texts(Security)
    names = [f for f in fields(Settings) if f.name != "kafka_security"]
    parts = [_entry("##", f, texts[f.name]) for f in names]
    parts.append(f"## kafka_security\n\n{texts['kafka_security']} Files are PEM.\n")
    parts += [_entry("###", f, secure[f.name]) for f in fields(Security)]
    return CONFIGURATION_HEAD + "\n".join(parts)


def _entry(level: str, field: Field[Any], text: str) -> str:
    """Return a setting's heading, text, type and default."""
    default = _default(field)
    kind = f"Type: {_type(field)}. Default: {default}." if default else f"Type: {_type(field)}."
    return f"{level} {field.name}\n\n{textwrap.fill(text, WIDTH)}\n\n{kind}\n"


_TYPES = {
    "int": "integer",
    "str": "text",
    "Path": "path",
    "float": "number",
    "bool": "`true` or `false`",
}


def _type(field: Field[Any]) -> str:
    name = str(field.type).removesuffix(" | None")
    if name.startswith("Literal["):
        return " or ".join(f"`{choice}`" for choice in re.findall(r"\w+", name[8:]))
    return _TYPES[name]


def _default(field: Field[Any]) -> str:
    assert field.default is not MISSING, field.name
    if field.default in (None, ""):
        return ""
    value = str(field.default).lower() if type(field.default) is bool else field.default
    return f"`{value}`"


if __name__ == "__main__":
    page = {"cli": cli_page, "configuration": configuration_page}[sys.argv[1]]
    click.echo(page(), nl=False)
