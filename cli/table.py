"""``rowtide table``: tables, their options and their streams."""

from __future__ import annotations

import re
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand, complete_table
from rowtide.cli.output import Output, emit_fields, emit_json, time_text
from rowtide.cli.value_syntax import KEY_TYPES
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import KeyColumn

__all__ = ["table", "table_argument"]

TTL_FOREVER = -1
_KEY_TYPE = {name: number for number, name in KEY_TYPES.items()}
_KEY_FORM = re.compile(r"(.+):(string|integer|binary)(:auto)?", re.DOTALL)

table_argument = click.argument("table", shell_complete=complete_table)


class _KeyColumnType(click.ParamType):
    """NAME:TYPE[:auto]."""

    name = "NAME:TYPE[:auto]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> KeyColumn:
        match = _KEY_FORM.fullmatch(value)
        if match is None:
            self.fail(
                f"'{value}': write NAME:string, NAME:integer, NAME:binary or NAME:integer:auto",
                param,
                ctx,
            )
        name, kind, auto = match.groups()
        return KeyColumn(name, _KEY_TYPE[kind], auto is not None)


class _TtlType(click.ParamType):
    """Seconds, or ``none``."""

    name = "SECONDS|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "none":
            return TTL_FOREVER
        if not re.fullmatch(r"[0-9]{1,10}", value):
            self.fail(f"'{value}' is neither a number of seconds nor 'none'", param, ctx)
        return int(value)


_ttl = click.option("--ttl", type=_TtlType(), help="Age in seconds at which a cell expires.")
_max_versions = click.option(
    "--max-versions", type=click.IntRange(min=1), help="Number of versions to keep of each column."
)
_max_version_offset = click.option(
    "--max-version-offset",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Allowed distance of a writer's version from the server's clock.",
)
_stream = click.option(
    "--stream",
    "stream_hours",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="Keep a stream of changes for these hours.",
)
_stream_columns = click.option(
    "--stream-column",
    "stream_columns",
    multiple=True,
    metavar="NAME",
    help="Add this column's previous value to each change; repeat for more.",
)
_reserved = click.option(
    "--reserved",
    type=click.IntRange(min=0),
    nargs=2,
    metavar="READ WRITE",
    help="Reserved capacity units per second.",
)


@click.group(cls=CommandGroup)
def table() -> None:
    """Create, change and delete tables."""


@table.command("create", cls=ClientCommand, writes=True)
@table_argument
@click.option(
    "--key",
    "-k",
    "columns",
    type=_KeyColumnType(),
    multiple=True,
    required=True,
    help="A column of the primary key; repeat for up to four, in order. TYPE is string, integer "
    "or binary. With :auto the server generates the value (an integer, not the first column).",
)
@_ttl
@_max_versions
@_max_version_offset
@_stream
@_stream_columns
@_reserved
def create(
    client: ProtocolClient,
    table: str,
    columns: tuple[KeyColumn, ...],
    reserved: tuple[int, int] | None,
    output: Output,
    **options: Any,
) -> None:
    """Create TABLE; by default without a stream, with one version of each cell, without expiry.

    \b
    rowtide table create inbox --key user:string --key id:integer:auto --stream 24
    """
    client.create_table(
        table,
        columns,
        options=_options_of(ttl=options["ttl"] or TTL_FOREVER, **_but(options, "ttl")),
        stream=_stream_of(options["stream_hours"], options["stream_columns"]),
        reserved=reserved or (0, 0),
    )
    _print_done(output, table, "Created")


@table.command("list", cls=ClientCommand)
def list_tables(client: ProtocolClient, output: Output) -> None:
    """List the tables of the instance, one per line."""
    names = client.list_table()
    if output == "json":
        emit_json(names)
    else:
        for name in names:
            click.echo(name)


@table.command("describe", cls=ClientCommand)
@table_argument
def describe(client: ProtocolClient, table: str, output: Output) -> None:
    """Show the key, the options and the stream of TABLE."""
    found = _document(client.describe_table(table))
    if output == "json":
        emit_json(found)
    else:
        emit_fields(_lines(found))


@table.command("update", cls=ClientCommand, writes=True)
@table_argument
@_ttl
@_max_versions
@_max_version_offset
@_stream
@_stream_columns
@click.option("--no-stream", is_flag=True, help="Disable the stream and delete its records.")
@_reserved
def update(
    client: ProtocolClient,
    table: str,
    reserved: tuple[int, int] | None,
    output: Output,
    *,
    no_stream: bool,
    **options: Any,
) -> None:
    """Change options of TABLE; options not named stay."""
    hours: int | None = options["stream_hours"]
    if no_stream and hours is not None:
        raise click.UsageError("--stream and --no-stream exclude each other.")
    stream = pb.StreamSpecification(enable_stream=False) if no_stream else None
    stream = stream or _stream_of(hours, options["stream_columns"])
    wanted = _options_of(**options)
    if stream is None and reserved is None and not wanted.ByteSize():
        raise click.UsageError("Nothing to change: name at least one option.")
    given = wanted if wanted.ByteSize() else None
    client.update_table(table, options=given, stream=stream, reserved=reserved)
    _print_done(output, table, "Updated")


@table.command("delete", cls=ClientCommand, writes=True)
@table_argument
@yes_option
def delete(client: ProtocolClient, table: str, output: Output, *, yes: bool) -> None:
    """Delete TABLE with its rows and its stream."""
    confirm(f"Delete table {table} with all its rows?", yes=yes)
    client.delete_table(table)
    _print_done(output, table, "Deleted")


def _print_done(output: Output, table: str, what: str) -> None:
    if output == "json":
        emit_json({"table": table, "done": what.lower()})
    else:
        click.echo(f"{what} table {table}.")


def _but(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def _options_of(
    *,
    ttl: int | None,
    max_versions: int | None,
    max_version_offset: int | None,
    **_others: object,
) -> pb.TableOptions:
    """Return only the given options."""
    return pb.TableOptions(
        time_to_live=ttl,
        max_versions=max_versions,
        deviation_cell_version_in_sec=max_version_offset,
    )


def _stream_of(hours: int | None, columns: tuple[str, ...]) -> pb.StreamSpecification | None:
    if hours is None and columns:
        raise click.UsageError("--stream-column needs --stream HOURS.")
    if hours is None:
        return None
    return pb.StreamSpecification(enable_stream=True, expiration_time=hours, columns_to_get=columns)


def _document(found: pb.DescribeTableResponse) -> dict[str, Any]:
    """Return a table's description with the names of the options."""
    options, stream = found.table_options, found.stream_details
    units = found.reserved_throughput_details.capacity_unit
    enabled = found.HasField("stream_details") and stream.enable_stream
    return {
        "table": found.table_meta.table_name,
        "created": time_text(found.creation_time),
        "key": [
            {
                "name": column.name,
                "type": KEY_TYPES[_KEY_TYPE_OF_WIRE[column.type]],
                "auto": column.option == pb.AUTO_INCREMENT and column.HasField("option"),
            }
            for column in found.table_meta.primary_key
        ],
        "defined_columns": [
            {"name": column.name, "type": _DEFINED_TYPES[column.type]}
            for column in found.table_meta.defined_column
        ],
        "indexes": [index.name for index in found.index_metas],
        "ttl_s": None if options.time_to_live == TTL_FOREVER else options.time_to_live,
        "max_versions": options.max_versions,
        "max_version_offset_s": options.deviation_cell_version_in_sec,
        "reserved": {"read": units.read, "write": units.write},
        "stream": {
            "id": stream.stream_id,
            "hours": stream.expiration_time,
            "enabled": time_text(stream.last_enable_time),
            "columns": list(stream.column_to_get),
        }
        if enabled
        else None,
    }


_DEFINED_TYPES = {
    pb.DCT_INTEGER: "integer",
    pb.DCT_DOUBLE: "double",
    pb.DCT_BOOLEAN: "boolean",
    pb.DCT_STRING: "string",
    pb.DCT_BLOB: "binary",
}

_KEY_TYPE_OF_WIRE = {pb.INTEGER: 1, pb.STRING: 2, pb.BINARY: 3}


def _lines(found: dict[str, Any]) -> list[tuple[str, object]]:
    key = [f"{c['name']}:{c['type']}{':auto' if c['auto'] else ''}" for c in found["key"]]
    defined = [f"{c['name']}:{c['type']}" for c in found["defined_columns"]]
    stream, reserved = found["stream"], found["reserved"]
    return [
        ("table", found["table"]),
        ("created", found["created"]),
        ("key", ", ".join(key)),
        *([("defined columns", ", ".join(defined))] if defined else []),
        *([("indexes", ", ".join(found["indexes"]))] if found["indexes"] else []),
        ("ttl", "none" if found["ttl_s"] is None else f"{found['ttl_s']} s"),
        ("max versions", found["max_versions"]),
        ("max version offset", f"{found['max_version_offset_s']} s"),
        ("reserved", f"{reserved['read']} read, {reserved['write']} write"),
        ("stream", f"{stream['hours']} h, since {stream['enabled']}" if stream else "none"),
        *(
            [("stream columns", ", ".join(stream["columns"]))]
            if stream and stream["columns"]
            else []
        ),
    ]
