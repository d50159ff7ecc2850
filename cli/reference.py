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
CONNECTION_TITLE = "\nConnection:\n"
EXAMPLES = re.compile(r"\n(?:\n  rowtide [^\n]*)+(?=\n\n|\Z)")
"""A paragraph of examples in a command's help, which the guides have, too."""

CLI_HEAD = """\
# The command line

Made by `python -m rowtide.cli.reference cli`; a test compares.

`rowtide up`, `rowtide dev` and `rowtide worker` start servers. Other commands send requests to a
server with the protocol of the SDKs. Without flags, that is the server on `--data-dir`.

`rowtide COMMAND --help` (`-h`) has the options of a command, and examples. `--output json` (`-o
json`) prints one JSON document per command; `row scan` and `stream tail` print one object per line.
With `--yes` a command that deletes or revokes does not ask first. An error is one sentence on
stderr, and a hint may follow on the next line.

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
    with_section = {
        name: command
        for name, command in _commands(main)
        if isinstance(command, click.Group) or name in {"up", *LIKE_UP}
    }
    parts += [_section(["rowtide", name], command) for name, command in with_section.items()]
    others = click.Group("others")
    others.commands = {
        name: command for name, command in _commands(main) if name not in with_section
    }
    parts.append("## Other commands\n\n" + _block(["\n".join(_lines_below(["rowtide"], others))]))
    return "\n".join(parts)


def _connection() -> str:
    about = "These options are part of every command that sends requests:"
    text = _help(["rowtide", "status"], dict(_commands(main))["status"])
    return f"## Connection\n\n{about}\n\n{_block([text.partition(CONNECTION_TITLE)[2]])}"


def _section(path: list[str], command: click.Command) -> str:
    """Return every command below a command, or itself, under one heading."""
    usage = _usage(path, command)
    about = _details(command) if isinstance(command, click.Group) else _first_sentences(command)
    below = "\n".join(_lines_below(path, command))
    block = _block(text for text in (about, below) if text)
    return f"## `{usage}`\n\n{block}{_settings(command)}"


def _lines_below(path: list[str], command: click.Command) -> Iterator[str]:
    """Yield how every command below ``command`` is called, and what it does."""
    for name, child in _commands(command):
        below = [*path, name]
        if isinstance(child, click.Group):
            yield from _lines_below(below, child)
        else:
            yield _usage(below, child).removeprefix("rowtide ")
            yield textwrap.indent(_first_sentences(child), "    ")


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


def _usage(path: list[str], command: click.Command) -> str:
    """Return how a command is called, with the options that it requires."""
    usage = _help(path, command).partition("\n\n")[0].removeprefix("Usage: ")
    called = " ".join(usage.replace(" [OPTIONS]", "").split())
    needed = [
        f" {param.opts[-1]} {param.make_metavar(click.Context(command))}"
        for param in command.params
        if isinstance(param, click.Option) and param.required
    ]
    return called.removesuffix(" COMMAND [ARGS]...") + "".join(needed)


def _first_sentences(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    text = (command.help or "").partition("\n\n")[0]
    return textwrap.fill(" ".join(text.split()), WIDTH - 6)


def _details(group: click.Command) -> str:
    """Return the help of a group without its first sentence, which its commands repeat."""
    own = copy(group)
    own.params, first = [], (group.help or "").partition("\n\n")[0]
    own.help = (group.help or "").replace(first, first.partition(". ")[2], 1).strip()
    if not own.help:
        return ""
    text = _help([], own).partition("\n\n")[2].partition("\nCommands:\n")[0]
    return textwrap.dedent(EXAMPLES.sub("", f"\n\n{text}".rstrip("\n"))).strip("\n")


def _settings(command: click.Command) -> str:
    """Return a line that says where the settings among a command's flags are described."""
    if command.name == "up":
        text = "Its other flags are the [settings](configuration.md)."
    elif command.name in LIKE_UP:
        shared = [param.name or "" for param in dict(_commands(main))["up"].params]
        had = {param.name for param in command.params}
        lacking = " ".join(flag(name) for name in shared if name not in had)
        text = f"Its other flags are those of `rowtide up`, except `{lacking}`."
    else:
        return ""
    return f"\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n"


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
