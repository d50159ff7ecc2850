"""``rowtide stream``: the changes of a table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import (
    Output,
    clock_text,
    emit_fields,
    emit_json,
    emit_table,
    require_reader,
    time_text,
)
from rowtide.cli.table import table_argument
from rowtide.cli.tail import END, ShardChange, StreamTail, stream_of
from rowtide.cli.value_syntax import assignment_text, json_text, to_json
from rowtide.client.wire_row import Put, Row
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["since_us", "stream", "stream_id_of"]

IDLE_S_MIN, IDLE_S_MAX = 0.02, 0.5
"""Pause after a round without changes; doubled from round to round."""

OUTAGE_S = 1.0
PASSING = ("OTSPartitionUnavailable", "OTSServerBusy", "OTSServerUnavailable", "OTSTimeout")
_SPAN = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group(cls=CommandGroup)
def stream() -> None:
    """Follow the changes of a table.

    `rowtide table create|update TABLE --stream HOURS` enables the stream of a table.
    """


@stream.command("list", cls=ClientCommand)
def list_streams(client: ProtocolClient, output: Output) -> None:
    """List the streams of the instance."""
    found = [
        {"table": s.table_name, "stream": s.stream_id, "enabled": time_text(s.creation_time)}
        for s in client.list_stream()
    ]
    if output == "json":
        emit_json(found)
    else:
        header = ("table", "stream", "enabled")
        emit_table(header, [[item[name] for name in header] for item in found])


@stream.command("describe", cls=ClientCommand)
@table_argument
def describe(client: ProtocolClient, table: str, output: Output) -> None:
    """Show the stream of TABLE and its shards."""
    found = client.describe_stream(stream_id_of(client, table))
    shards = [_shard(shard) for shard in found.shards]
    fields = {
        "stream": found.stream_id,
        "table": found.table_name,
        "enabled": time_text(found.creation_time),
        "hours": found.expiration_time,
    }
    if output == "json":
        emit_json({**fields, "shards": shards})
        return
    emit_fields(fields.items())
    click.echo()
    emit_table(("shard", "parents"), [(s["shard"], ", ".join(s["parents"])) for s in shards])


def _shard(shard: pb.StreamShard) -> dict[str, Any]:
    parents = [parent for parent in (shard.parent_id, shard.parent_sibling_id) if parent]
    return {"shard": shard.shard_id, "parents": parents}


class _SinceType(click.ParamType):
    """A time, or a span before now."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return since_us(value, time.time_ns() // 1000)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def since_us(text: str, now_us: int) -> int:
    """Return microseconds for ``10m`` (ago; s, m, h, d) or an ISO 8601 time, default UTC."""
    if span := _SPAN.fullmatch(text):
        return max(0, now_us - int(span[1]) * _SECONDS[span[2]] * 1_000_000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"'{text}' is neither a span (30s, 10m, 2h, 1d) nor a time (2026-01-31T12:00:00)"
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1_000_000))


@stream.command("tail", cls=ClientCommand)
@table_argument
@click.option("--from-start", is_flag=True, help="Start at the oldest change that is kept.")
@click.option("--since", type=_SinceType(), help="Start at a time: 10m (ago), or 2026-01-31T12:00.")
@click.option(
    "--follow/--no-follow", default=True, help="Wait for more changes at the end, or stop."
)
@click.option("--limit", type=click.IntRange(min=1), help="Number of changes to show.")
def tail(
    client: ProtocolClient,
    table: str,
    since: int | None,
    limit: int | None,
    output: Output,
    *,
    from_start: bool,
    follow: bool,
) -> None:
    """Print the changes of TABLE as they are made, until Ctrl-C.

    A line has the commit time, the kind of change, the key and the columns: NAME=TEXT or
    NAME:=JSON written, -NAME deleted, -NAME@MS one version deleted. JSON has one object per
    line.
    """
    if from_start and since is not None:
        raise click.UsageError("--from-start and --since exclude each other.")
    start_us = None if from_start else END if since is None else since
    follower = StreamTail(client, stream_id_of(client, table), start_us)
    try:
        for number, change in enumerate(_changes(follower, follow=follow), 1):
            click.echo(json_text(document(change)) if output == "json" else line(change))
            if number == limit:
                return
    except KeyboardInterrupt:
        return  # The usual end of the command.


def _changes(follower: StreamTail, *, follow: bool) -> Iterator[ShardChange]:
    """Yield changes. Pause if there are none, and retry while the server does not answer."""
    idle_s, away = IDLE_S_MIN, False
    while True:
        found = False
        try:
            for page in follower.poll():
                found = True
                yield from page
        except (NoAnswer, ServerError) as error:
            if not follow or (isinstance(error, ServerError) and error.code not in PASSING):
                raise
            if not away:
                click.echo(f"{error}; retrying", err=True)
            away = True
            time.sleep(OUTAGE_S)
            continue
        away = False
        if not (found or follow):
            return
        if not found:
            require_reader()
            time.sleep(idle_s)
        idle_s = IDLE_S_MIN if found else min(2 * idle_s, IDLE_S_MAX)


def document(change: ShardChange) -> dict[str, Any]:
    """Return a change as a JSON document."""
    row, original = change.record.row, change.record.original
    found: dict[str, Any] = {
        "time_us": row.sequence.timestamp_us if row.sequence else None,
        "shard": change.shard_id,
        "kind": change.record.kind.lower(),
        "key": {name: to_json(value) for name, value in row.key},
        "changes": [_change_document(cell) for cell in row.changes],
    }
    if original is not None:
        found["original"] = _values(original)
    if change.record.after is not None:
        found["after"] = _values(change.record.after)
        found["existed"] = change.record.existed
    return found


def _values(row: Row) -> dict[str, Any]:
    return {put.name: to_json(put.value) for put in row.columns}


def _change_document(cell: Any) -> dict[str, Any]:
    if isinstance(cell, Put):
        value = to_json(cell.value)
        return {"op": "put", "name": cell.name, "value": value, "version_ms": cell.version_ms}
    if cell.version_ms is None:
        return {"op": "delete", "name": cell.name}
    return {"op": "delete_version", "name": cell.name, "version_ms": cell.version_ms}


def line(change: ShardChange) -> str:
    """Return a change as a line of text."""
    row = change.record.row
    at = clock_text(row.sequence.timestamp_us) if row.sequence else "-"
    key = " ".join(assignment_text(name, value) for name, value in row.key)
    cells = " ".join(_change_text(cell) for cell in row.changes)
    return f"{at}  {change.record.kind:<6}  {key}  {cells}".rstrip()


def _change_text(cell: Any) -> str:
    if isinstance(cell, Put):
        return assignment_text(cell.name, cell.value)
    name = cell.name if cell.name.isprintable() else json_text(cell.name)
    return f"-{name}" if cell.version_ms is None else f"-{name}@{cell.version_ms}"


def stream_id_of(client: ProtocolClient, table: str) -> str:
    """Return the id of a table's stream. Without one, raise how to enable it."""
    found = stream_of(client, table)
    if found is None:
        client.describe_table(table)  # An absent table raises another failure.
        raise CommandRefused(
            f"Table {table} has no stream",
            f"`rowtide table update {table} --stream 24` keeps its changes for 24 hours.",
        )
    return found
