"""``rowtide key``: access keys, which sign requests."""

from __future__ import annotations

from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_fields, emit_json, emit_table, time_text

__all__ = ["key"]


@click.group(cls=CommandGroup)
def key() -> None:
    """Create, list and revoke access keys. Needs a key with the admin right."""


@key.command("create", cls=ClientCommand, writes=True)
@click.option(
    "--for",
    "instances",
    multiple=True,
    metavar="INSTANCE",
    help="An instance that the key may use; repeat for more. Without: every instance.",
)
@click.option("--admin", is_flag=True, help="May manage instances and keys.")
@click.option(
    "--read-only", is_flag=True, help="May read, but change nothing. With --admin: nor manage."
)
def create(
    client: ProtocolClient,
    instances: tuple[str, ...],
    output: Output,
    *,
    admin: bool,
    read_only: bool,
) -> None:
    """Create a key pair. Its secret is shown only now.

    The server refuses every change that is signed with a read-only key. A read-only key with the
    admin right sees what operators see: status, shards, keys without secrets.
    """
    fields: dict[str, object] = {"admin": admin}
    if read_only:  # A server of an earlier version refuses the field, as it must.
        fields["read_only"] = True
    if instances:
        fields["instances"] = list(instances)
    made = client.call_json("RowtideCreateKey", fields)
    if output == "json":
        emit_json(made)
        return
    emit_fields(
        [
            ("access key id", made["access_key_id"]),
            ("access key secret", made["access_key_secret"]),
            ("instances", _instances(made)),
            ("rights", _rights(made)),
        ]
    )


@key.command("list", cls=ClientCommand)
def list_keys(client: ProtocolClient, output: Output) -> None:
    """List the keys, without their secrets."""
    found = client.call_json("RowtideListKeys", {})["keys"]
    if output == "json":
        emit_json(found)
        return
    rows = [
        (key["access_key_id"], _instances(key), _rights(key), time_text(key["created_us"]))
        for key in found
    ]
    emit_table(("access key id", "instances", "rights", "created"), rows)


@key.command("revoke", cls=ClientCommand, writes=True)
@click.argument("key_id")
@yes_option
def revoke(client: ProtocolClient, key_id: str, output: Output, *, yes: bool) -> None:
    """Revoke the key KEY_ID: its requests are rejected from now on.

    If it is the key of a worker itself, the worker continues, but commands and connectors that
    use its directory are rejected. A worker without credentials.json in its directory creates a
    new key at its start.
    """
    confirm(f"Revoke key {key_id}?", yes=yes)
    revoked = client.call_json("RowtideRevokeKey", {"access_key_id": key_id})
    if output == "json":
        emit_json(revoked)
    else:
        click.echo(f"Revoked key {key_id}.")


def _instances(key: dict[str, Any]) -> str:
    return "all" if key.get("instances") is None else ", ".join(sorted(key["instances"]))


def _rights(key: dict[str, Any]) -> str:
    rows = "read-only" if key.get("read_only") else "rows"
    return f"admin, {rows}" if key["admin"] else rows
