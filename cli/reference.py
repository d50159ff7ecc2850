"""The reference pages, made from the commands and the settings: they cannot drift.

    python -m rowtide.cli.reference cli > docs/reference/cli.md
    python -m rowtide.cli.reference configuration > docs/reference/configuration.md

Tests compare the committed pages with what is made here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from rowtide.cli.exits import EXIT_CODES
from rowtide.cli.field_text import field_texts
from rowtide.cli.main import main
from rowtide.cli.settings import Settings, flag, variable
from rowtide.stream.log.kafka.config import Security

__all__ = ["cli_page", "configuration_page"]

WIDTH = 100

CLI_HEAD = """\
# The command line

Made by `python -m rowtide.cli.reference cli`; a test compares.

`rowtide up` starts the server. Every other command sends requests to a server, over the protocol
that the SDKs use. Without flags that is the one that `rowtide up` runs on `--data-dir`.

`--output json` prints one JSON document per command, one object per line in `row scan` and
`stream tail`. Errors are one sentence on stderr, a hint below it where there is one.

## Exit codes

| code | meaning |
|---|---|
"""

CONFIGURATION_HEAD = """\
# Configuration

Made by `python -m rowtide.cli.reference configuration`; a test compares.

A setting of `rowtide up`, `rowtide dev` or `rowtide worker` comes from the TOML file that
`--config` names, from the environment or from a flag; the later of these wins. Variables of other
names are passed over.
Unknown settings in the file are refused.

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
        text, _, shared = _help(path, command).partition("\nConnection:\n")
        connection = connection or shared
        parts.append(f"## {' '.join(path)}\n\n```text\n{text.strip()}\n```\n")
    about = "These options are part of every command that sends requests:"
    parts.insert(1, f"## Connection\n\n{about}\n\n```text\n{connection.rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(path: list[str], command: click.Command) -> Iterator[tuple[list[str], click.Command]]:
    """Yield every command below ``command``, and itself, with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None, name
            yield from _commands([*path, name], below)


def _help(path: list[str], command: click.Command) -> str:
    ctx = click.Context(
        command,
        info_name=" ".join(path),
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    return command.get_help(ctx)


def configuration_page() -> str:
    """Return docs/reference/configuration.md."""
    names = [f for f in fields(Settings) if f.name != "kafka_security"]
    texts, secure = field_texts(Settings), field_texts(Security)
    lines = ["| setting | flag | variable | type | default | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{f.name}` | `{flag(f.name)}` | `{variable(f.name)}` | {_type(f)} | {_default(f)} "
        f"| {texts[f.name]} |"
        for f in names
    ]
    lines += ["", "## `[kafka_security]`", "", texts["kafka_security"] + " Files are PEM.", ""]
    lines += ["| setting | type | default | |", "|---|---|---|---|"]
    lines += [
        f"| `{f.name}` | {_type(f)} | {_default(f)} | {secure[f.name]} |" for f in fields(Security)
    ]
    return CONFIGURATION_HEAD + "\n".join(lines) + "\n"


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
