"""``rowtide shard``: the shards of a table; split, merge and move them while they are used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import click

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand, complete_table
from rowtide.cli.exits import CommandOutcomeUnknown
from rowtide.cli.output import Output, emit_json, emit_table, time_text
from rowtide.cli.shard_repair import repair

__all__ = ["shard"]

DONE_S = 600.0
LOOK_S = 0.2

_table = click.argument("table", shell_complete=complete_table)


@click.group(cls=CommandGroup)
def shard() -> None:
    """List, split, merge and move the shards of a table. Needs an admin key.

    Writes to a shard pause for some milliseconds when it ends; SDKs retry them.
    """


shard.add_command(repair)


@shard.command("list", cls=ClientCommand)
@_table
@click.option("--all", "-a", "every", is_flag=True, help="Show ended shards, too.")
def list_shards(client: ProtocolClient, table: str, output: Output, *, every: bool) -> None:
    """List the shards of TABLE in the order of their keys."""
    found = [s for s in _shards(client, table) if every or s["state"] != "ended"]
    if output == "json":
        emit_json(found)
        return
    rows = [
        (
            s["shard"],
            s["slot"],
            _border(s["begin"]),
            _border(s["end"]),
            ", ".join(s["parents"]) or "-",
            s["state"] if s["sealed_us"] is None else f"ended {time_text(s['sealed_us'])}",
        )
        for s in found
    ]
    emit_table(("shard", "slot", "from", "below", "parents", "state"), rows)


@shard.command("tree", cls=ClientCommand)
@_table
def tree(client: ProtocolClient, table: str, output: Output) -> None:
    """Show parents and children of the shards of TABLE."""
    found = _shards(client, table)
    if output == "json":
        emit_json(found)
        return
    known = {s["shard"] for s in found}
    for root in found:
        if not known.intersection(root["parents"]):
            _branch(found, root, "")


@shard.command("split", cls=ClientCommand, writes=True)
@_table
@click.argument("name", metavar="SHARD")
@click.option(
    "--at",
    metavar="KEY",
    help="First partition key of the second part; a binary key as hex digits. Without it the shard "
    "is split at half of its bytes.",
)
def split(client: ProtocolClient, table: str, name: str, at: str | None, output: Output) -> None:
    """Split SHARD of TABLE in two."""
    fields = {"table": table, "shard": name}
    if at is not None:
        fields["at"] = at
    _change(client, "RowtideSplitShard", fields, output)


@shard.command("merge", cls=ClientCommand, writes=True)
@_table
@click.argument("left", metavar="SHARD")
@click.argument("right", metavar="SHARD")
def merge(client: ProtocolClient, table: str, left: str, right: str, output: Output) -> None:
    """Merge two adjacent SHARDs of TABLE; the second one is moved first if necessary."""
    living = [s for s in _shards(client, table) if s["state"] != "ended"]
    slots = {s["shard"]: s["slot"] for s in living}
    pairs = [{a["shard"], b["shard"]} for a, b in pairwise(living)]
    # If the shards cannot be merged, do not move one: the server's error says why.
    if {left, right} not in pairs or slots[left] == slots[right]:
        _change(client, "RowtideMergeShards", {"table": table, "shards": [left, right]}, output)
        return
    fields = {"table": table, "shard": right, "slot": slots[left]}
    moved = _change_and_wait(client, "RowtideMoveShard", fields)["children"][0]
    with _report_partial(f"Shard {right} was moved to slot {slots[left]} as {moved}, not merged"):
        _change(client, "RowtideMergeShards", {"table": table, "shards": [left, moved]}, output)


@shard.command("move", cls=ClientCommand, writes=True)
@_table
@click.argument("name", metavar="SHARD")
@click.option(
    "--slot", type=int, required=True, help="Slot to move to; `cluster status` shows its worker."
)
def move(client: ProtocolClient, table: str, name: str, slot: int, output: Output) -> None:
    """Move SHARD of TABLE to another slot, and so to its worker."""
    fields = {"table": table, "shard": name, "slot": slot}
    _change(client, "RowtideMoveShard", fields, output)


def _shards(client: ProtocolClient, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.call_json("RowtideListShards", {"table": table})["shards"]
    return found


def _change(client: ProtocolClient, operation: str, fields: dict[str, Any], output: Output) -> None:
    result = _change_and_wait(client, operation, fields)
    if output == "json":
        emit_json(result)
    else:
        before, after = ", ".join(result["parents"]), ", ".join(result["children"])
        click.echo(f"{before} -> {after}")


def _change_and_wait(
    client: ProtocolClient, operation: str, fields: dict[str, Any]
) -> dict[str, Any]:
    """Request a change and wait until it is done; return its result."""
    result = client.call_json(operation, fields)
    if not result["done"]:
        with _report_partial(f"The {result['kind']} of {', '.join(result['parents'])} continues"):
            result["children"] = _children(client, fields["table"], set(result["parents"]))
        result["done"] = True
    return result


def _children(client: ProtocolClient, table: str, parents: set[str]) -> list[str]:
    """Wait until a change is done; return the children of its ``parents``."""
    until = time.monotonic() + DONE_S
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        found = _shards(client, table)
        if all(s["state"] == "ended" for s in found if s["shard"] in parents):
            return [s["shard"] for s in found if parents <= set(s["parents"])]
    raise NoAnswer(f"it was not done within {DONE_S:.0f} s")


@contextmanager
def _report_partial(what: str) -> Iterator[None]:
    """Turn a failure into one that reports ``what`` was already changed."""
    try:
        yield
    except (ServerError, NoAnswer) as error:
        hint = "`rowtide shard list` shows the result."
        raise CommandOutcomeUnknown(f"{what}: {error}", hint) from error


def _branch(found: list[dict[str, Any]], node: dict[str, Any], indent: str) -> None:
    begin, end = _border(node["begin"]), _border(node["end"])
    state = "" if node["state"] == "open" else f"  {node['state']}"
    also = [parent for parent in node["parents"][1:] if indent]
    merged = f"  with {', '.join(also)}" if also else ""
    click.echo(f"{indent}{node['shard']}  [{begin}, {end})  slot {node['slot']}{merged}{state}")
    for child in found:
        # A merged shard is printed below the first of its parents.
        if child["parents"][:1] == [node["shard"]]:
            _branch(found, child, indent + "  ")


def _border(value: object) -> str:
    return "-" if value is None else str(value)
