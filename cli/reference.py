"""Makes the reference pages from the commands and the settings, so that they stay correct.

    python -m rowtide.cli.reference cli > docs/reference/cli.md
    python -m rowtide.cli.reference configuration > docs/reference/configuration.md

A test compares the committed pages with these results.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
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
LIKE_UP = {"dev", "worker"}
"""Commands with flags of `rowtide up`. Its flags are the settings, which have a separate page."""
REPEATED = "output"
"""The option of every command that prints a result. The page has it once."""
CONNECTION = "\nConnection:\n"

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
    _, root = _usage_and_help(["rowtide"], main)
    parts = [CLI_HEAD + codes, _connection(), f"## `rowtide`\n\n{_block([root])}"]
    parts += [_section(["rowtide", name], command) for name, command in _commands(main)]
    return "\n".join(parts)


def _connection() -> str:
    about = "These options are part of every command that sends requests:"
    text = _help(["rowtide", "status"], dict(_commands(main))["status"])
    return f"## Connection\n\n{about}\n\n{_block([text.partition(CONNECTION)[2]])}"


def _section(path: list[str], command: click.Command) -> str:
    """Return the help of a command, and of every command below it, under one heading."""
    own, settings = _without_repeated(command)
    usage, text = _usage_and_help(path, own)
    below = [f"{called}\n{about}" for called, about in _helps_below(path, command)]
    about = text.partition("\nCommands:\n")[0]
    return f"## `{usage}`\n\n{_block([about, *below])}{settings}"


def _helps_below(path: list[str], command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield the usage and the help of every command below ``command``."""
    for name, child in _commands(command):
        own, _ = _without_repeated(child)
        usage, text = _usage_and_help([*path, name], own)
        yield usage, text.partition("\nCommands:\n")[0]
        yield from _helps_below([*path, name], child)


def _commands(group: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the name and the command of each command of a group."""
    if isinstance(group, click.Group):
        ctx = click.Context(group)
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None, name
            yield name, command


def _block(texts: Iterable[str]) -> str:
    return "```text\n" + "\n\n".join(text.strip("\n") for text in texts) + "\n```\n"


def _usage_and_help(path: list[str], command: click.Command) -> tuple[str, str]:
    """Return how a command is called, and its help without the options of the connection."""
    usage, _, text = _help(path, command).partition(CONNECTION)[0].partition("\n\n")
    called = " ".join(usage.removeprefix("Usage: ").replace(" [OPTIONS]", "").split())
    return called.removesuffix(" COMMAND [ARGS]..."), text.replace("Options:\n", "")


def _without_repeated(command: click.Command) -> tuple[click.Command, str]:
    """Return a command without the options that are elsewhere, and a line that says where."""
    repeated, text = {REPEATED}, ""
    if command.name == "up":
        repeated |= {f.name for f in fields(Settings)}
        text = "Its other flags are the [settings](configuration.md)."
    elif command.name in LIKE_UP:
        shared = [param.name or "" for param in dict(_commands(main))["up"].params]
        repeated |= set(shared)
        had = {param.name for param in command.params}
        lacking = " ".join(flag(name) for name in shared if name not in had)
        text = f"Its other flags are those of `rowtide up`, except `{lacking}`."
    own = copy(command)
    own.params = [param for param in command.params if param.name not in repeated]
    return own, text and f"\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n"


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
    default, kind = _default(field), f"Type: {_type(field)}."
    if default:
        choices = f"{_type(field)}. " if "`" in _type(field) else ""
        kind = f"{choices}Default: {default}."
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
