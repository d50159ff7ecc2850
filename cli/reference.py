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

from rowtide.cli.connection import CONNECTION, ClientCommand
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
CONNECTION_TITLE = "\nConnection:\n"
SECOND_SENTENCE = ". "
"""The help of an option has this if it says more than the option's name does."""

CLI_HEAD = """\
# The command line

Made by `python -m rowtide.cli.reference cli`; a test compares.

`rowtide up`, `rowtide dev` and `rowtide worker` start servers. Other commands send requests to a
server with the protocol of the SDKs. Without flags, that is the server on `--data-dir`.

`--help` (`-h`) says more about a command and explains each of its options. This page explains
options only where their names do not; one with `...` may be repeated. `--output json` (`-o json`)
prints one JSON document per command; `row scan` and `stream tail` print one object per line.
Commands without a result lack this option. An error is one sentence on stderr, and a hint may
follow on the next line.

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
    parts = [CLI_HEAD + codes, _connection()]
    parts += [_section(["rowtide", name], command) for name, command in _commands(main)]
    return "\n".join(parts)


def _connection() -> str:
    about = "These options are part of every command that sends requests:"
    text = _help(["rowtide", "status"], dict(_commands(main))["status"])
    return f"## Connection\n\n{about}\n\n{_block([text.partition(CONNECTION_TITLE)[2]])}"


def _section(path: list[str], command: click.Command) -> str:
    """Return the help of a command, and of every command below it, under one heading."""
    own, settings = _without_repeated(command)
    usage, text = _usage_and_help(path, own)
    below = [f"{called}\n{about}" for called, about in _helps_below(path, command)]
    return f"## `{usage}`\n\n{_block([text, *below])}{settings}"


def _helps_below(path: list[str], command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield the usage and the help of every command below ``command``."""
    for name, child in _commands(command):
        own, _ = _without_repeated(child)
        usage, text = _usage_and_help([*path, name], own)
        yield usage.removeprefix("rowtide "), text
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
    """Return how a command is called, and what it does, with its own options."""
    short, own = _short_options(command), copy(command)
    own.params = [param for param in command.params if param not in short]
    if not isinstance(command, click.Group):
        own.help = (command.help or "").partition("\n\n")[0]
    usage, _, text = _help(path, own).partition(CONNECTION_TITLE)[0].partition("\n\n")
    called = " ".join(usage.removeprefix("Usage: ").replace(" [OPTIONS]", "").split())
    text = text.partition("\nCommands:\n")[0].replace("Options:\n", "").rstrip("\n")
    return called.removesuffix(" COMMAND [ARGS]..."), text + _line_of(short)


def _short_options(command: click.Command) -> list[click.Option]:
    """Return the options of a command that are clear from their names."""
    elsewhere = CONNECTION if isinstance(command, ClientCommand) else ()
    return [
        param
        for param in command.params
        if isinstance(param, click.Option) and param.name not in elsewhere
        if SECOND_SENTENCE not in (param.help or "")
    ]


def _line_of(options: list[click.Option]) -> str:
    """Return the names, values and defaults of options, separated by commas."""
    if not options:
        return ""
    # A line does not end between a name and its value.
    line = ", ".join(_name_of(option).replace(" ", "\0") for option in options)
    line = textwrap.fill(
        line,
        WIDTH,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n\n" + line.replace("\0", " ")


def _name_of(option: click.Option) -> str:
    """Return the names of an option, its value and its default, as its help shows them."""
    names, text = option.get_help_record(click.Context(click.Command(None))) or ("", "")
    shown = names.replace(" / ", "/").replace(", ", "/").replace(" RANGE", "")
    default = re.search(r"\[default: ([^;\]]+)", text)
    repeated = " ..." if option.multiple else ""
    note = default[1] if default else "required" * option.required
    return shown + repeated + (f" ({note})" if note else "")


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
