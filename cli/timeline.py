"""``rowtide timeline``: messages of timelines. Other modules have the commands of one user, of
members, of meta rows and of searches.
"""

from __future__ import annotations

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.table import table_argument
from rowtide.cli.timeline_call import (
    call_timeline,
    entry_document,
    fields_text,
    parse_fields,
    print_new,
    run_async,
)
from rowtide.cli.timeline_members import members
from rowtide.cli.timeline_meta import meta
from rowtide.cli.timeline_search import index, search_messages
from rowtide.cli.timeline_user import cursor, inbox, unread
from rowtide.cli.value_syntax import json_text
from rowtide.client.async_client import AsyncClient
from rowtide.client.failures import ConditionFailed
from rowtide.client.timeline.schema import IdentifierType, TimelineSchema
from rowtide.client.timeline.timeline import SCAN_LIMIT, Timeline, TimelineEntry, Timelines
from rowtide.core.values.limits import INT64_MAX

__all__ = ["timeline"]

_timeline = click.argument("timeline")
_id = click.argument("id", type=int)
_fields = click.argument("fields", nargs=-1, metavar="NAME=VALUE...")
_KINDS: dict[str, IdentifierType] = {"string": str, "integer": int, "binary": bytes}


@click.group(cls=CommandGroup)
def timeline() -> None:
    """Keep lists of messages in tables: chats, feeds, device messages.

    TIMELINE is the value of the identifier column. If the table has several, it is a JSON array of
    their values. A field is written as a column is: `rowtide row --help`.

    \b
    rowtide timeline create im_store
    rowtide timeline put im_store group:7 sender=ada text="Hello"
    rowtide timeline scan im_store group:7 --backward --limit 30
    """


timeline.add_command(meta)
timeline.add_command(search_messages)
timeline.add_command(index)
timeline.add_command(members)
timeline.add_command(cursor)
timeline.add_command(unread)
timeline.add_command(inbox)


@timeline.command("create", cls=ClientCommand, writes=True)
@click.argument("table")
@click.option(
    "--id",
    "identifier",
    multiple=True,
    metavar="NAME[:TYPE]",
    help="An identifier column, string (default), integer or binary; repeat for up to three. "
    "Without: timeline_id.",
)
@click.option("--manual", is_flag=True, help="The writer chooses the ids of messages.")
@click.option("--ttl", "ttl_s", type=int, default=-1, help="Seconds to keep a message; -1 forever.")
def create(
    client: ProtocolClient,
    table: str,
    identifier: tuple[str, ...],
    ttl_s: int,
    output: Output,
    *,
    manual: bool,
) -> None:
    """Create TABLE for timelines, as the official Java library does.

    \b
    rowtide timeline create im_sync --id user --ttl 604800
    """
    columns: dict[str, IdentifierType] = {}
    for text in identifier or ("timeline_id",):
        name, _, kind = text.partition(":")
        if (kind or "string") not in _KINDS:
            raise click.UsageError(f"'{text}': the type is string, integer or binary.")
        columns[name] = _KINDS[kind or "string"]

    async def ask(connected: AsyncClient) -> None:
        schema = TimelineSchema(table, columns, manual_sequence=manual, ttl_s=ttl_s)
        await Timelines(connected, schema).create()

    run_async(client, ask)
    _print_done(output, "Created", table)


@timeline.command("put", cls=ClientCommand, writes=True)
@table_argument
@_timeline
@_fields
@click.option("--id", "id_", type=int, help="The id, in a table with manual ids.")
@click.option(
    "--message-id", help="Your own id of the message: a repeat of the command stores nothing."
)
def put(
    client: ProtocolClient,
    table: str,
    timeline: str,
    fields: tuple[str, ...],
    id_: int | None,
    message_id: str | None,
    output: Output,
) -> None:
    """Store a message in TIMELINE and print its id.

    \b
    rowtide timeline put im_store group:7 sender=ada text="Hello" --message-id m1
    """
    if id_ is not None and message_id is not None:
        raise click.UsageError("--id and --message-id exclude each other.")
    message = parse_fields(fields)

    async def ask(chat: Timeline) -> TimelineEntry:
        if message_id is not None:
            return await chat.send(message, message_id=message_id)
        return await chat.store(message, id=id_)

    _print_done(output, "Stored", call_timeline(client, table, timeline, ask).id)


@timeline.command("get", cls=ClientCommand)
@table_argument
@_timeline
@_id
def get(client: ProtocolClient, table: str, timeline: str, id: int, output: Output) -> None:
    """Show the message with this ID. The exit code for an absent one is 1.

    \b
    rowtide timeline get im_store group:7 1764201600000000
    """
    found = call_timeline(client, table, timeline, lambda chat: chat.get(id))
    _print_entry(output, found, f"No message {id} in {timeline}")


@timeline.command("update", cls=ClientCommand, writes=True)
@table_argument
@_timeline
@_id
@_fields
@click.option("--delete-field", "deletes", multiple=True, metavar="NAME", help="Delete this field.")
def update(
    client: ProtocolClient,
    table: str,
    timeline: str,
    id: int,
    fields: tuple[str, ...],
    deletes: tuple[str, ...],
    output: Output,
) -> None:
    """Change fields of the message with this ID.

    \b
    rowtide timeline update im_store group:7 1764201600000000 recalled:=true --delete-field text
    """
    message = parse_fields(fields)
    if not message and not deletes:
        raise click.UsageError("Nothing to change: name a field.")

    async def ask(chat: Timeline) -> bool:
        try:
            await chat.update(id, message, delete=deletes)
        except ConditionFailed:
            return False
        return True

    if not call_timeline(client, table, timeline, ask):
        raise CommandRefused(f"No message {id} in {timeline}")
    _print_done(output, "Updated", id)


@timeline.command("delete", cls=ClientCommand, writes=True)
@table_argument
@_timeline
@_id
def delete(client: ProtocolClient, table: str, timeline: str, id: int, output: Output) -> None:
    """Delete the message with this ID. An absent one is no error.

    \b
    rowtide timeline delete im_store group:7 1764201600000000
    """
    call_timeline(client, table, timeline, lambda chat: chat.delete(id))
    _print_done(output, "Deleted", id)


@timeline.command("scan", cls=ClientCommand)
@table_argument
@_timeline
@click.option("--backward", is_flag=True, help="The newest message first.")
@click.option("--from", "start", type=int, help="First id, inclusive.")
@click.option("--to", "end", type=int, help="Last id, exclusive.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=SCAN_LIMIT,
    show_default=True,
    help="Number of messages.",
)
def scan(
    client: ProtocolClient,
    table: str,
    timeline: str,
    start: int | None,
    end: int | None,
    limit: int,
    output: Output,
    *,
    backward: bool,
) -> None:
    """Show the messages of TIMELINE; JSON has one object per line.

    \b
    rowtide timeline scan im_store group:7 --backward --limit 30
    """

    async def ask(chat: Timeline) -> list[TimelineEntry]:
        if backward:
            high = INT64_MAX if start is None else start
            entries = chat.backward(high, 0 if end is None else end, limit=limit)
        else:
            high = INT64_MAX if end is None else end
            entries = chat.forward(start or 0, high, limit=limit)
        return [entry async for entry in entries]

    found = call_timeline(client, table, timeline, ask)
    if output == "json":
        for entry in found:
            click.echo(json_text(entry_document(entry)))
    else:
        emit_table(("id", "fields"), [(entry.id, fields_text(entry.fields)) for entry in found])


@timeline.command("latest", cls=ClientCommand)
@table_argument
@_timeline
def latest(client: ProtocolClient, table: str, timeline: str, output: Output) -> None:
    """Show the newest message of TIMELINE. The exit code for an empty one is 1.

    \b
    rowtide timeline latest im_store group:7 --output json
    """
    found = call_timeline(client, table, timeline, lambda chat: chat.latest())
    _print_entry(output, found, f"No message in {timeline}")


@timeline.command("follow", cls=ClientCommand)
@table_argument
@_timeline
@click.option("--after", type=int, help="Begin after this id. Without: after the newest message.")
@click.option("--limit", type=click.IntRange(min=1), help="Number of messages to show.")
def follow(
    client: ProtocolClient,
    table: str,
    timeline: str,
    after: int | None,
    limit: int | None,
    output: Output,
) -> None:
    """Print the messages of TIMELINE as they are stored, until Ctrl-C.

    To go on later, give the last printed id as --after.

    \b
    rowtide timeline follow im_store group:7 --after 0
    """

    async def ask(chat: Timeline) -> None:
        begin = await chat.latest_id() if after is None else after
        await print_new(chat.follow(after=begin), limit, output, _show)

    try:
        call_timeline(client, table, timeline, ask)
    except KeyboardInterrupt:
        return  # The usual end of the command.


# Printing.


def _print_done(output: Output, what: str, thing: object) -> None:
    if output == "json":
        emit_json({"done": what.lower(), "id" if isinstance(thing, int) else "table": thing})
    else:
        click.echo(f"{what} {thing}.")


def _print_entry(output: Output, entry: TimelineEntry | None, absent: str) -> None:
    if entry is None:
        raise CommandRefused(absent)
    if output == "json":
        emit_json(entry_document(entry))
    else:
        click.echo(_line(entry))


def _show(entry: TimelineEntry, output: Output) -> str:
    return json_text(entry_document(entry)) if output == "json" else _line(entry)


def _line(entry: TimelineEntry) -> str:
    return f"{entry.id}  {fields_text(entry.fields)}".rstrip()
