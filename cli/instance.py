"""``rowtide instance``: the namespaces of tables."""

from __future__ import annotations

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json, emit_table, time_text

__all__ = ["instance"]

KINDS = ("high-performance", "capacity")


@click.group(cls=CommandGroup)
def instance() -> None:
    """Create, list and delete instances. Needs a key with the admin right."""


@instance.command("create", cls=ClientCommand, writes=True)
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="Kind of the instance.",
)
def create(client: ProtocolClient, name: str, kind: str, output: Output) -> None:
    """Create the instance NAME: 3-16 letters, digits and hyphens."""
    created = client.call_json("RowtideCreateInstance", {"name": name, "kind": kind})
    if output == "json":
        emit_json(created)
    else:
        click.echo(f"Created instance {created['name']}.")


@instance.command("list", cls=ClientCommand)
def list_instances(client: ProtocolClient, output: Output) -> None:
    """List the instances."""
    found = client.call_json("RowtideListInstances", {})["instances"]
    if output == "json":
        emit_json(found)
        return
    rows = [(i["name"], i["kind"], i["tables"], time_text(i["created_us"])) for i in found]
    emit_table(("name", "kind", "tables", "created"), rows)


@instance.command("delete", cls=ClientCommand, writes=True)
@click.argument("name")
@yes_option
def delete(client: ProtocolClient, name: str, output: Output, *, yes: bool) -> None:
    """Delete the instance NAME. It must have no tables."""
    confirm(f"Delete instance {name}?", yes=yes)
    deleted = client.call_json("RowtideDeleteInstance", {"name": name})
    if output == "json":
        emit_json(deleted)
    else:
        click.echo(f"Deleted instance {name}.")
