"""``rowtide timeline meta``: one row of facts for each timeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.row_arguments import schema_of
from rowtide.cli.table import table_argument
from rowtide.cli.timeline_call import (
    fields_json,
    fields_text,
    identifier_types,
    identifier_values,
    parse_fields,
    run_async,
)
from rowtide.cli.timeline_search import search_metas
from rowtide.cli.value_syntax import json_text, to_json
from rowtide.client.async_client import AsyncClient
from rowtide.client.timeline.meta import TimelineMeta, TimelineMetas
from rowtide.client.timeline.schema import TimelineMetaSchema

__all__ = ["meta"]

Answer = TypeVar("Answer")
Values = list[int | str | bytes]
_timeline = click.argument("timeline")
_fields = click.argument("fields", nargs=-1, required=True, metavar="NAME=VALUE...")


@click.group(cls=CommandGroup)
def meta() -> None:
    """Keep facts of timelines: one row for each, in a table of its own.

    \b
    rowtide table create im_meta --key timeline_id:string
    rowtide timeline meta put im_meta group:7 name="Seven" size:=12
    rowtide timeline meta list im_meta
    """


meta.add_command(search_metas)


@meta.command("put", cls=ClientCommand, writes=True)
@table_argument
@_timeline
@_fields
def put(
    client: ProtocolClient, table: str, timeline: str, fields: tuple[str, ...], output: Output
) -> None:
    """Replace the meta row of TIMELINE.

    \b
    rowtide timeline meta put im_meta group:7 name="Seven" size:=12
    """
    given = parse_fields(fields)
    _call(client, table, timeline, lambda metas, values: metas.put(values, given))
    _print_done(output, "Put", timeline)


@meta.command("update", cls=ClientCommand, writes=True)
@table_argument
@_timeline
@_fields
def update(
    client: ProtocolClient, table: str, timeline: str, fields: tuple[str, ...], output: Output
) -> None:
    """Change fields of the meta row of TIMELINE, or create it.

    \b
    rowtide timeline meta update im_meta group:7 size:=13
    """
    given = parse_fields(fields)
    _call(client, table, timeline, lambda metas, values: metas.update(values, given))
    _print_done(output, "Updated", timeline)


@meta.command("get", cls=ClientCommand)
@table_argument
@_timeline
def get(client: ProtocolClient, table: str, timeline: str, output: Output) -> None:
    """Show the meta row of TIMELINE. The exit code for an absent one is 1.

    \b
    rowtide timeline meta get im_meta group:7
    """
    found = _call(client, table, timeline, lambda metas, values: metas.get(values))
    if found is None:
        raise CommandRefused(f"No meta row of {timeline} in {table}")
    _print_metas(output, [found])


@meta.command("delete", cls=ClientCommand, writes=True)
@table_argument
@_timeline
def delete(client: ProtocolClient, table: str, timeline: str, output: Output) -> None:
    """Delete the meta row of TIMELINE; its messages stay.

    \b
    rowtide timeline meta delete im_meta group:7
    """
    _call(client, table, timeline, lambda metas, values: metas.delete(values))
    _print_done(output, "Deleted", timeline)


@meta.command("list", cls=ClientCommand)
@table_argument
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Number of rows."
)
def list_metas(client: ProtocolClient, table: str, limit: int, output: Output) -> None:
    """Show meta rows in the order of their timelines; JSON has one object per line.

    \b
    rowtide timeline meta list im_meta --limit 10
    """
    schema = TimelineMetaSchema(table, identifier_types(schema_of(client, table)))

    async def ask(connected: AsyncClient) -> list[TimelineMeta]:
        metas = TimelineMetas(connected, schema)
        return [one async for one in metas.scan(limit=limit)]

    _print_metas(output, run_async(client, ask))


def _call(
    client: ProtocolClient,
    table: str,
    timeline: str,
    ask: Callable[[TimelineMetas, Values], Awaitable[Answer]],
) -> Answer:
    columns = schema_of(client, table)
    schema = TimelineMetaSchema(table, identifier_types(columns))
    values = identifier_values(columns, timeline)
    return run_async(client, lambda connected: ask(TimelineMetas(connected, schema), values))


def _print_metas(output: Output, metas: list[TimelineMeta]) -> None:
    if output == "json":
        for one in metas:
            timeline = [to_json(value) for value in one.identifier]
            click.echo(json_text({"timeline": timeline, "fields": fields_json(one.fields)}))
    else:
        rows = [
            (" ".join(str(value) for value in one.identifier), fields_text(one.fields))
            for one in metas
        ]
        emit_table(("timeline", "fields"), rows)


def _print_done(output: Output, what: str, timeline: str) -> None:
    if output == "json":
        emit_json({"done": what.lower(), "timeline": timeline})
    else:
        click.echo(f"{what} the meta row of {timeline}.")
