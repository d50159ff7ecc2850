"""``rowtide token``: share tokens, by which a program follows the changes of one table."""

from __future__ import annotations

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand, complete_table
from rowtide.cli.output import Output, emit_fields, emit_json, emit_table, time_text

__all__ = ["token"]

ALL_KEYS = "all"


@click.group(cls=CommandGroup)
def token() -> None:
    """Create, list and revoke share tokens. Needs a key with the admin right.

    A program with a share token follows the live feed of one table, or of one partition key of
    it. It can do nothing else. `rowtide dashboard share` makes tokens that show one dashboard.
    """


@token.command("create", cls=ClientCommand, writes=True)
@click.option("--table", required=True, help="The table to follow.", shell_complete=complete_table)
@click.option(
    "--key",
    metavar="VALUE",
    help="Only rows with this value of the first key column; a blob in hex digits.",
)
def create(client: ProtocolClient, table: str, key: str | None, output: Output) -> None:
    """Create a share token for a table of the instance. Its text is shown only now.

    The server keeps a digest. If the table is deleted, the token ends with it.
    """
    fields: dict[str, object] = {"table": table}
    if key is not None:
        fields["key"] = key
    made = client.call_json("RowtideCreateToken", fields)
    if output == "json":
        emit_json(made)
        return
    emit_fields(
        [
            ("token id", made["token_id"]),
            ("token", made["token"]),
            ("instance", made["instance"]),
            ("table", made["table"]),
            ("key", _key_text(made["key"])),
        ]
    )


@token.command("list", cls=ClientCommand)
def list_tokens(client: ProtocolClient, output: Output) -> None:
    """List the share tokens of all instances, without their texts."""
    found = client.call_json("RowtideListTokens", {})["tokens"]
    if output == "json":
        emit_json(found)
        return
    rows = [
        (
            one["token_id"],
            one["instance"],
            one["table"] if one["table_exists"] else f"{one['table']} (deleted)",
            f"dashboard {one['dashboard']}" if one["dashboard"] else _key_text(one["key"]),
            time_text(one["created_us"]),
        )
        for one in found
    ]
    emit_table(("token id", "instance", "table", "key", "created"), rows)


@token.command("revoke", cls=ClientCommand, writes=True)
@click.argument("token_id")
@yes_option
def revoke(client: ProtocolClient, token_id: str, output: Output, *, yes: bool) -> None:
    """Revoke the share token TOKEN_ID. Streams that it opened end within 5 seconds."""
    confirm(f"Revoke share token {token_id}?", yes=yes)
    gone = client.call_json("RowtideRevokeToken", {"token_id": token_id})
    if output == "json":
        emit_json(gone)
    else:
        click.echo(f"Revoked share token {token_id}.")


def _key_text(key: str | None) -> str:
    return ALL_KEYS if key is None else key
