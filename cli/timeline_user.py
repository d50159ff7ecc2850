"""``rowtide timeline cursor``, ``unread`` and ``inbox``: what one user has."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_table
from rowtide.cli.table import table_argument
from rowtide.cli.timeline_call import (
    cursors_option,
    entry_document,
    fields_text,
    print_new,
    print_rows,
    run_async,
    timeline_schema,
)
from rowtide.cli.value_syntax import json_text
from rowtide.client.async_client import AsyncClient
from rowtide.client.timeline.conversations import UNREAD_LIMIT, Conversations
from rowtide.client.timeline.cursors import Cursors
from rowtide.client.timeline.inbox import Inbox, InboxEntry, Inboxes
from rowtide.client.timeline.inbox_position import InboxPosition
from rowtide.client.timeline.members import Members
from rowtide.client.timeline.timeline import SCAN_LIMIT, Timelines

__all__ = ["cursor", "inbox", "unread"]

_sender = click.option(
    "--sender", default="sender", show_default=True, help="Field with the sender of a message."
)


@click.command("cursor", cls=ClientCommand, writes=True)
@click.argument("user")
@click.argument("conversation", required=False)
@click.argument("read_id", type=click.IntRange(min=0), required=False)
@cursors_option
def cursor(
    client: ProtocolClient,
    user: str,
    conversation: str | None,
    read_id: int | None,
    cursor_table: str,
    output: Output,
) -> None:
    """Show how far USER has read each CONVERSATION, or move one cursor forward to READ_ID.

    Moving creates the table of the cursors if there is none.

    \b
    rowtide timeline cursor ada group:7 1764201600000000
    """

    async def ask(connected: AsyncClient) -> list[tuple[str, int]]:
        cursors = Cursors(connected, cursor_table)
        if conversation is None:
            return [(one.conversation, one.read_id) for one in await cursors.of(user)]
        if read_id is None:
            return [(conversation, await cursors.get(user, conversation))]
        await cursors.create(if_missing=True)
        return [(conversation, await cursors.read(user, conversation, read_id))]

    found = run_async(client, ask)
    print_rows(output, ("conversation", "read_id"), found)


@click.command("unread", cls=ClientCommand)
@table_argument
@click.argument("user")
@cursors_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=UNREAD_LIMIT,
    show_default=True,
    help="Count up to this number.",
)
@_sender
def unread(
    client: ProtocolClient,
    table: str,
    user: str,
    cursor_table: str,
    limit: int,
    sender: str,
    output: Output,
) -> None:
    """Show the conversations of USER in TABLE and their unread messages, newest first.

    \b
    rowtide timeline unread im_store ada
    """

    schema, _ = timeline_schema(client, table)

    async def ask(connected: AsyncClient) -> list[tuple[str, int, str]]:
        store = Timelines(connected, schema)
        cursors = Cursors(connected, cursor_table)
        found = await Conversations(store, cursors, sender=sender).of(user, limit=limit)
        return [(one.name, one.last.id if one.last else 0, str(one.unread)) for one in found]

    print_rows(output, ("conversation", "last_id", "unread"), run_async(client, ask))


@click.command("inbox", cls=ClientCommand)
@table_argument
@click.argument("user")
@click.option(
    "--sync", "sync_table", default="im_sync", show_default=True, help="Table of the inboxes."
)
@click.option(
    "--members",
    "member_table",
    default="im_members",
    show_default=True,
    help="Table of the members.",
)
@cursors_option
@_sender
@click.option(
    "--after",
    metavar="POSITION",
    help="What a device with this position has not seen, the oldest message first; 0 is all.",
)
@click.option("--follow", is_flag=True, help="Print messages as they arrive, until Ctrl-C.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Number of messages; without --follow {SCAN_LIMIT} unless given.",
)
def inbox(
    client: ProtocolClient,
    table: str,
    user: str,
    sync_table: str,
    member_table: str,
    cursor_table: str,
    sender: str,
    after: str | None,
    limit: int | None,
    output: Output,
    *,
    follow: bool,
) -> None:
    """Show the inbox of USER, the newest message first. TABLE has the messages.

    A connector with the sink `timeline` fills inboxes. With --after or --follow each message has
    the position that a device remembers; give it as --after to go on. JSON has one object per line.

    \b
    rowtide timeline inbox im_store ada --limit 30
    rowtide timeline inbox im_store ada --after 1764201600000000 --follow
    """

    _require_tables(client, (table, sync_table, member_table, cursor_table))
    (store_schema, _), (sync_schema, _) = (
        timeline_schema(client, name) for name in (table, sync_table)
    )

    async def ask(connected: AsyncClient) -> None:
        cursors = Cursors(connected, cursor_table)
        members = Members(connected, cursors, member_table)
        store, sync = Timelines(connected, store_schema), Timelines(connected, sync_schema)
        found = Inboxes(store, sync, members, cursors, sender=sender).of(user)
        if follow:
            begin = await found.latest_position() if after is None else InboxPosition.of(after)
            await print_new(found.follow(after=begin), limit, output, _show)
        else:
            _print_entries(await _read(found, after, limit or SCAN_LIMIT), output)

    try:
        run_async(client, ask)
    except KeyboardInterrupt:
        return  # The usual end of the command.


def _require_tables(client: ProtocolClient, names: Sequence[str]) -> None:
    """Raise ``CommandRefused`` with the name of a table that is absent."""
    present = client.list_table()
    for name in names:
        if name not in present:
            raise CommandRefused(
                f"There is no table {name} (OTSObjectNotExist)",
                "`rowtide timeline members join` creates the tables of members and cursors, the "
                "sink `timeline` that of inboxes.",
            )


async def _read(found: Inbox, after: str | None, limit: int) -> list[InboxEntry]:
    if after is None:
        return [*await found.page(limit=limit)]
    return [entry async for entry in found.after(after, limit=limit)]


def _print_entries(entries: list[InboxEntry], output: Output) -> None:
    if output == "json":
        for entry in entries:
            click.echo(_show(entry, output))
    else:
        header = ("position", "conversation", "id", "fields")
        rows = [
            (_place(entry), entry.conversation, entry.entry.id, _text(entry)) for entry in entries
        ]
        emit_table(header, rows)


def _show(entry: InboxEntry, output: Output) -> str:
    """Return one message of an inbox as a line."""
    if output == "json":
        return json_text(
            {
                "position": _place(entry),
                "conversation": entry.conversation,
                **entry_document(entry.entry),
                "is_recalled": entry.is_recalled,
            }
        )
    place = f"{_place(entry)}  {entry.conversation}  {entry.entry.id}"
    return f"{place}  {_text(entry)}".rstrip()


def _place(entry: InboxEntry) -> str:
    """Return a position as text; that of an entry of a page is the id of its row."""
    return str(entry.id if entry.position is None else entry.position)


def _text(entry: InboxEntry) -> str:
    recalled = "(recalled) " if entry.is_recalled else ""
    return f"{recalled}{fields_text(entry.entry.fields)}".rstrip()
