"""``rowtide shard repair``: a shard whose log lacks acknowledged entries is served again."""

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
    click.echo(f"Entries {first} to {last} of {name} ({last - first + 1}) are gone from its log.")
    if found["filled"]:
        click.echo("Others stand in their places: they are folded upon what the rows have.")
    if found["in_rows"]:
        click.echo("The rows have what they did; readers of the stream never see them.")
    else:
        click.echo("The rows lack what they did, and so does the stream.")
    if found["closed"] is None:
        click.echo(f"{name} is served again.")
    else:
        click.echo(f"{name} stays closed: {found['closed']}")
