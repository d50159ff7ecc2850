"""``rowtide shard repair``: serve a shard again whose log has lost acknowledged entries."""

from __future__ import annotations

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json

__all__ = ["repair"]


@click.command(cls=ClientCommand, writes=True)
@click.argument("name", metavar="SHARD")
@click.option("--accept-loss", is_flag=True, help="Accept the loss and serve the rest.")
def repair(client: ProtocolClient, name: str, output: Output, *, accept_loss: bool) -> None:
    """Show what a closed SHARD has lost; with --accept-loss, serve it without that.

    A shard stays closed if Kafka lost acknowledged entries of its log. First copy the data
    directory. Then restore the broker or the topic if you can. Entries lost at the log's end
    are missing in the stream; the rows keep what the worker has applied. Entries lost at its
    start that were not applied are missing in the rows, too.
    """
    found = client.call_json("RowtideRepairShard", {"shard": name, "accept_loss": accept_loss})
    if output == "json":
        emit_json(found)
        return
    first, last = found["first"], found["last"]
    click.echo(f"Entries {first} to {last} of {name} ({last - first + 1}) are lost.")
    if found["filled"]:
        click.echo("The log has other entries at these offsets. They are applied to the rows.")
    if found["in_rows"]:
        click.echo("The rows have the changes of the lost entries; the stream does not.")
    else:
        click.echo("Neither the rows nor the stream have the changes of the lost entries.")
    if found["closed"] is None:
        click.echo(f"{name} is served again.")
    else:
        click.echo(f"{name} stays closed: {found['closed']}")
