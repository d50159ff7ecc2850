"""``rowtide timeline members``: who is in a conversation, and so gets its messages."""

from __future__ import annotations

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json
from rowtide.cli.timeline_call import cursors_option, print_rows, run_async
from rowtide.client.async_client import AsyncClient
from rowtide.client.timeline.cursors import Cursors
from rowtide.client.timeline.members import Members

__all__ = ["members"]

_conversation = click.argument("conversation")
_user = click.argument("user")
_members = click.option(
    "--members",
    "member_table",
    default="im_members",
    show_default=True,
    help="Table of the members.",
)


@click.group(cls=CommandGroup)
def members() -> None:
    """Keep the members of conversations: a fan-out writes into their inboxes.

    A member has a row in the table of members, and a cursor in the table of cursors.

    \b
    rowtide timeline members join group:7 ada
    rowtide timeline members list group:7
    """


@members.command("join", cls=ClientCommand, writes=True)
@_conversation
@_user
@click.option(
    "--read-id",
    type=click.IntRange(min=0),
    default=0,
    help="Older messages count as read up to this id.",
)
@_members
@cursors_option
def join(
    client: ProtocolClient,
    conversation: str,
    user: str,
    read_id: int,
    member_table: str,
    cursor_table: str,
    output: Output,
) -> None:
    """Add USER to CONVERSATION. The tables are created if there are none.

    USER gets each message that is stored after this. To repeat it does no harm.

    \b
    rowtide timeline members join group:7 ada
    """

    async def ask(connected: AsyncClient) -> bool:
        cursors = Cursors(connected, cursor_table)
        found = Members(connected, cursors, member_table)
        await cursors.create(if_missing=True)
        await found.create(if_missing=True)
        return await found.join(conversation, user, read_id=read_id)

    is_new = run_async(client, ask)
    if output == "json":
        emit_json({"conversation": conversation, "user": user, "is_new": is_new})
    else:
        click.echo(f"{user} {'joined' if is_new else 'is already in'} {conversation}.")


@members.command("leave", cls=ClientCommand, writes=True)
@_conversation
@_user
@_members
@cursors_option
def leave(
    client: ProtocolClient,
    conversation: str,
    user: str,
    member_table: str,
    cursor_table: str,
    output: Output,
) -> None:
    """Remove USER from CONVERSATION. What is in the inbox stays there. An absent user is no error.

    \b
    rowtide timeline members leave group:7 ada
    """

    async def ask(connected: AsyncClient) -> None:
        cursors = Cursors(connected, cursor_table)
        await Members(connected, cursors, member_table).leave(conversation, user)

    run_async(client, ask)
    if output == "json":
        emit_json({"conversation": conversation, "user": user})
    else:
        click.echo(f"{user} left {conversation}.")


@members.command("list", cls=ClientCommand)
@_conversation
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Number of users."
)
@_members
def list_members(
    client: ProtocolClient, conversation: str, limit: int, member_table: str, output: Output
) -> None:
    """Show the members of CONVERSATION in the order of their names.

    \b
    rowtide timeline members list group:7 --output json
    """

    async def ask(connected: AsyncClient) -> list[tuple[str]]:
        found: list[tuple[str]] = []
        async for user in Members(connected, Cursors(connected), member_table).of(conversation):
            found.append((user,))
            if len(found) == limit:
                break
        return found

    print_rows(output, ("user",), run_async(client, ask))
