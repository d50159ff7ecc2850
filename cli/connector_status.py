"""``rowtide connector list|status|logs``: the connectors, their state and their log lines."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.endpoint_call import run_call
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, clock_text, emit_json, emit_table, time_text
from rowtide.cli.stream import since_us
from rowtide.cli.value_syntax import json_text
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_log import ConnectorLog, Line
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector
from rowtide.connectors.runtime.standing import ConnectorStatus, standings

__all__ = ["list_connectors", "logs", "status"]

FOLLOW_S = 1.0


@click.command("list", cls=ClientCommand)
def list_connectors(client: ProtocolClient, output: Output) -> None:
    """List the connectors of the instance."""
    declared = run_call(client, lambda endpoint: Declarations(endpoint).all())
    shown = [_listing(found) for found in declared.values()]
    if output == "json":
        emit_json(shown)
        return
    header = ("name", "from", "to", "paused")
    rows = [
        (item["name"], item["from"], item["to"], "yes" if item["paused"] else "") for item in shown
    ]
    emit_table(header, rows)


def _listing(found: DeclaredConnector) -> dict[str, Any]:
    declaration = found.declaration
    ends: tuple[str | None, str | None] = (None, None)
    if declaration is not None and declaration.sink:
        ends = (declaration.table, declaration.kind)
    elif declaration is not None:
        ends = (declaration.kind, "tables")
    return {"name": found.name, "from": ends[0], "to": ends[1], "paused": found.paused}


@click.command("status", cls=ClientCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--tables", is_flag=True, help="List each table of a source with its state and its copy."
)
def status(client: ProtocolClient, names: tuple[str, ...], output: Output, *, tables: bool) -> None:
    """Show the state and lag of connectors: all, or those named.

    Lag is what a connector has not handled yet: records of the log, and seconds since the
    oldest of these changes. A source's lag is also in bytes of its server's log, as last
    reported.

    Failures are shown below: failed tables of a source, with a remedy, and the last error of
    each process.
    """
    found = run_call(client, lambda endpoint: standings(endpoint, names))
    for name in names:
        if name not in found:
            raise CommandRefused(f"There is no connector {name}")
    if output == "json":
        emit_json([standing.document() for standing in found.values()])
        return
    header = ("name", "state", "lag", "seconds", "per second", "parked", "runs on")
    emit_table(header, [_row(standing) for standing in found.values()])
    if tables:
        click.echo()
        _print_tables(found.values())
    for standing in found.values():
        _print_troubles(standing)


def _print_tables(found: Collection[ConnectorStatus]) -> None:
    """Print each reported table; a table that no process runs is not reported."""
    header = ("name", "table", "in rowtide", "state", "rows copied", "of about")
    rows = [
        (
            standing.name,
            table.table,
            table.target,
            table.state,
            table.rows_copied if table.state == "copying" else None,
            table.rows_estimate if table.state == "copying" else None,
        )
        for standing in found
        for table in standing.tables
    ]
    emit_table(header, rows)
    for standing in found:
        if standing.tables_omitted:
            click.echo(f"{standing.name}: {standing.tables_omitted:,} more tables are not listed")


def _row(standing: ConnectorStatus) -> Sequence[object]:
    lag, seconds = _lag(standing)
    return (
        standing.name,
        _state(standing),
        lag,
        round(seconds, 1) if seconds is not None else None,
        round(standing.rate),
        standing.parked,
        ", ".join(report.process for report in standing.reports) or "-",
    )


def _lag(standing: ConnectorStatus) -> tuple[int | str | None, float | None]:
    """Return what a connector has not handled yet, and its lag in seconds."""
    lag, behind = standing.lag, standing.behind
    if behind is not None:
        return f"{behind.bytes:,} B", behind.seconds
    return (lag.records, lag.seconds) if lag is not None and lag.begun else (None, None)


def _state(standing: ConnectorStatus) -> str:
    failed = standing.tables_failed
    ended = f", {failed} table{'s' * (failed != 1)} failed" if failed else ""
    return _whole_state(standing) + ended


def _whole_state(standing: ConnectorStatus) -> str:
    lag, behind = standing.lag, standing.behind
    if standing.state == "snapshot" and behind is not None:
        return f"snapshot, {behind.copying} table{'s' * (behind.copying != 1)} left"
    if standing.state != "snapshot" or lag is None:
        return standing.state
    left = f", {_span(lag.left_s)} left" if lag.left_s >= 0 else ""
    return f"snapshot {lag.read:.0%}{left}"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _print_troubles(standing: ConnectorStatus) -> None:
    for trouble in standing.troubles:
        click.echo(f"{standing.name}: {trouble}")
    for report in standing.reports:
        if report.last_error:
            at = time_text(report.last_error_us)
            click.echo(f"{standing.name}: {at} {report.process}: {report.last_error}")


@click.command("logs", cls=ClientCommand)
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Wait for more lines, until Ctrl-C.")
@click.option(
    "--since",
    default="7d",
    show_default=True,
    help="Time of the first line: 10m (ago), or 2026-01-31T12:00.",
)
@click.option("--lines", type=click.IntRange(min=1), default=100, show_default=True)
def logs(
    client: ProtocolClient, name: str, since: str, lines: int, output: Output, *, follow: bool
) -> None:
    """Show the log of connector NAME from all its processes. Lines are kept for a week."""
    try:
        after_us = since_us(since, time.time_ns() // 1000)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if name not in run_call(client, lambda endpoint: Declarations(endpoint).all()):
        raise CommandRefused(f"There is no connector {name}")
    found = run_call(client, lambda endpoint: _read(endpoint, name, after_us))[-lines:]
    try:
        while True:
            for line in found:
                click.echo(json_text(line._asdict()) if output == "json" else _text(line))
                after_us = line.at_us
            if not follow:
                return
            time.sleep(FOLLOW_S)
            found = run_call(client, lambda endpoint: _read(endpoint, name, after_us))  # noqa: B023
    except KeyboardInterrupt:
        return  # The usual end of the command.


async def _read(endpoint: Endpoint, name: str, after_us: int) -> list[Line]:
    return await ConnectorLog(endpoint).read(name, since_us=after_us)


def _text(line: Line) -> str:
    mark = "" if line.level == "INFO" else f"{line.level} "
    return f"{clock_text(line.at_us)}  {line.process}  {mark}{line.text}"
