"""Calls of timelines from a command: the table's schema, the arguments, one event loop."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.endpoint_call import PATIENCE_S, run_connected
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json, emit_table, require_reader
from rowtide.cli.row_arguments import key_columns_of, parse_assignments
from rowtide.cli.value_syntax import (
    Assignment,
    SyntaxRefused,
    assignment_text,
    json_text,
    key_value,
    to_json,
)
from rowtide.client.async_client import AsyncClient
from rowtide.client.timeline.message import FieldInput, Fields
from rowtide.client.timeline.schema import IdentifierType, TimelineSchema
from rowtide.client.timeline.timeline import Timeline, TimelineEntry, Timelines
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn

__all__ = [
    "call_timeline",
    "cursors_option",
    "entry_document",
    "fields_json",
    "fields_text",
    "identifier_types",
    "identifier_values",
    "parse_fields",
    "print_new",
    "print_rows",
    "run_async",
    "timeline_schema",
]

Answer = TypeVar("Answer")
Item = TypeVar("Item")
_TYPES: dict[int, IdentifierType] = {INTEGER: int, STRING: str, BINARY: bytes}

cursors_option = click.option(
    "--cursors",
    "cursor_table",
    default="im_cursors",
    show_default=True,
    help="Table of the cursors.",
)


def run_async(client: ProtocolClient, ask: Callable[[AsyncClient], Awaitable[Answer]]) -> Answer:
    """Return the result of ``ask``. Raises failures like those of a client."""
    instance, key_id, secret = client.access
    return run_connected(
        client,
        lambda: AsyncClient(
            client.endpoint,
            instance=instance,
            access_key_id=key_id,
            access_key_secret=secret,
            patience_s=PATIENCE_S,
        ),
        lambda connected: connected.endpoint,
        ask,
    )


def call_timeline(
    client: ProtocolClient,
    table: str,
    timeline: str,
    ask: Callable[[Timeline], Awaitable[Answer]],
) -> Answer:
    """Return what ``ask`` returns for a timeline of a table."""
    schema, columns = timeline_schema(client, table)
    values = identifier_values(columns, timeline)
    return run_async(client, lambda connected: ask(Timelines(connected, schema).of(*values)))


def timeline_schema(client: ProtocolClient, table: str) -> tuple[TimelineSchema, list[KeyColumn]]:
    """Return the schema of a table of timelines as it is, and its identifier columns.

    Raises ``CommandRefused`` for another table.
    """
    described = client.describe_table(table)
    *columns, last = key_columns_of(described)
    if not columns or last.type != INTEGER:
        raise CommandRefused(
            f"{table} is no table of timelines: its key must be 1 to 3 identifier columns and an "
            f"integer"
        )
    schema = TimelineSchema(
        table,
        identifier_types(columns),
        last.name,
        manual_sequence=not last.auto_increment,
        ttl_s=described.table_options.time_to_live,
    )
    return schema, columns


def identifier_types(columns: list[KeyColumn]) -> dict[str, IdentifierType]:
    """Return the types of identifier columns by name."""
    return {column.name: _TYPES[column.type] for column in columns}


def identifier_values(columns: list[KeyColumn], text: str) -> list[int | str | bytes]:
    """Return the identifier that an argument gives: a value, or a JSON array of several."""
    texts: list[object] = [text]
    if len(columns) > 1:
        try:
            texts = json.loads(text)
        except ValueError:
            texts = []
        if not isinstance(texts, list) or len(texts) != len(columns):
            names = ", ".join(column.name for column in columns)
            raise click.UsageError(
                f"'{text}' is no timeline: write a JSON array with a value for each of ({names})."
            )
    return [_key_value(column, str(value)) for column, value in zip(columns, texts, strict=True)]


def _key_value(column: KeyColumn, text: str) -> int | str | bytes:
    try:
        value = key_value(column, Assignment(column.name, "=", text))
    except SyntaxRefused as error:
        raise click.UsageError(str(error)) from error
    assert not isinstance(value, float), "a key column is no double"
    return value


def parse_fields(arguments: tuple[str, ...]) -> dict[str, FieldInput]:
    """Return the fields that arguments assign. Raises ``UsageError``."""
    found: dict[str, FieldInput] = {}
    for assignment in parse_assignments(arguments):
        if assignment.sign == "+=":
            raise click.UsageError(f"{assignment.name}: a field of a message has no increment.")
        found[assignment.name] = assignment.value
    return found


def entry_document(entry: TimelineEntry) -> dict[str, object]:
    """Return a message as one object: its id and its fields."""
    return {"id": entry.id, "fields": fields_json(entry.fields)}


def fields_json(fields: Fields) -> dict[str, object]:
    """Return the JSON of fields."""
    return {
        name: value if isinstance(value, list) else to_json(value) for name, value in fields.items()
    }


def fields_text(fields: Fields) -> str:
    """Return fields as a person reads them."""
    return " ".join(
        json_text({name: value}) if isinstance(value, list) else assignment_text(name, value)
        for name, value in fields.items()
    )


async def print_new(
    items: AsyncIterator[Item],
    limit: int | None,
    output: Output,
    show: Callable[[Item, Output], str],
) -> None:
    """Print items as they come, up to ``limit`` of them, each at once. ``show`` returns a line."""
    number = 0
    async for item in items:
        require_reader()
        click.echo(show(item, output))
        sys.stdout.flush()
        number += 1
        if number == limit:
            return


def print_rows(output: Output, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table, or as one JSON array."""
    if output == "json":
        emit_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        emit_table(header, rows)
