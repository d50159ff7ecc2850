"""``rowtide connector``: connectors that move changes between tables and other systems."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand
from rowtide.cli.connector_parked import parking
from rowtide.cli.connector_run import run
from rowtide.cli.connector_status import list_connectors, logs, status
from rowtide.cli.endpoint_call import call_for_each, run_call
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json
from rowtide.cli.own_modules import find_modules_here
from rowtide.cli.stream import since_us
from rowtide.client.changes.start import Begin, ShardPlace
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.declaration import Declaration, judge, parse_file
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.planning import ConnectorPlan, plan_changes
from rowtide.connectors.runtime.removal import begin_again, delete, list_unused_traces, recopy, rest

__all__ = ["connector"]

_PLACE = re.compile(r"([A-Za-z0-9-]{1,64}):(\d{1,18})")

_file = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
_name = click.argument("name")
_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")
_prune = click.option("--prune", is_flag=True, help="Delete the connectors that FILE lacks.")


@click.group(cls=CommandGroup)
def connector() -> None:
    """Move changes between tables and other systems.

    A YAML file declares connectors. They run beside the workers of `rowtide up`, or anywhere
    with `rowtide connector run`.
    """


@connector.command("validate")
@_file
def validate(file: Path) -> None:
    """Check FILE without connecting to any system.

    Settings with variables that are not set here are checked where the connector runs.
    """
    declarations = _read_declarations(file)
    click.echo(f"{file} declares {_count_text(len(declarations))}.")


@connector.command("plan", cls=ClientCommand)
@_file
@_prune
def plan(client: ProtocolClient, file: Path, output: Output, *, prune: bool) -> None:
    """Show what `apply` would change."""
    found = _plan_changes(client, _read_declarations(file), prune=prune)
    if output == "json":
        emit_json(_plan_document(found))
    else:
        _print_plan(found)


@connector.command("apply", cls=ClientCommand, writes=True)
@_file
@_prune
@yes_option
def apply(client: ProtocolClient, file: Path, output: Output, *, prune: bool, yes: bool) -> None:
    """Create and change connectors as FILE says; with --prune, delete those that it lacks."""
    found = _plan_changes(client, _read_declarations(file), prune=prune)
    if found.deleted:
        confirm(f"Delete {', '.join(found.deleted)}?", yes=yes)

    async def carry_out(endpoint: Endpoint) -> dict[str, Sequence[str]]:
        declarations, place = Declarations(endpoint), ProcessContext(endpoint, os.environ, "")
        declared, left = await declarations.all(), {}
        for declaration in found.to_declare:
            await declarations.declare(declaration)
            if (former := declared.get(declaration.name)) is not None:
                traces = list_unused_traces(place, former.declaration, declaration)
                left[declaration.name] = traces
        for name in found.deleted:
            left[name] = await delete(place, declared[name])
        return left

    left = run_call(client, carry_out)
    if output == "json":
        emit_json({**_plan_document(found), "left": {n: list(t) for n, t in left.items() if t}})
    else:
        _print_plan(found, done=True)
        for name, traces in left.items():
            _print_left(name, traces)


def _read_declarations(file: Path) -> list[Declaration]:
    """Return a file's declarations; print what cannot be checked here."""
    find_modules_here()
    try:
        declarations = parse_file(file.read_text(encoding="utf-8"), str(file))
        for declaration in declarations:
            for doubt in judge(declaration, os.environ):
                click.echo(f"{doubt}.", err=True)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not text: {error}") from error
    except (OSError, SettingsRefused) as error:
        raise click.UsageError(str(error)) from error
    return declarations


def _plan_changes(
    client: ProtocolClient, declarations: list[Declaration], *, prune: bool
) -> ConnectorPlan:
    declared = run_call(client, lambda endpoint: Declarations(endpoint).all())
    return plan_changes(declarations, declared, prune=prune)


def _print_plan(plan: ConnectorPlan, *, done: bool = False) -> None:
    for declaration in plan.made:
        click.echo(f"+ {declaration.name}: {declaration.described}")
    for declaration, changes in plan.changed:
        click.echo(f"~ {declaration.name}")
        for place, old, new in changes:
            click.echo(f"    {place}: {old or '(none)'} -> {new or '(none)'}")
    for name in plan.deleted:
        click.echo(f"- {name}")
    counts = (len(plan.made), len(plan.changed), len(plan.deleted), len(plan.same))
    words = "{} created, {} changed, {} deleted, {} unchanged." if done else _TO_DO
    click.echo(words.format(*counts))
    if plan.others:
        click.echo(f"Not in the file, unchanged: {', '.join(plan.others)}.")
    for name in plan.to_send_again:
        click.echo(
            f"Rows that {name} has sent stay unchanged: `rowtide connector rewind {name} rows` "
            f"sends all rows again."
        )


_TO_DO = "{} to create, {} to change, {} to delete, {} unchanged."


def _plan_document(plan: ConnectorPlan) -> dict[str, Any]:
    return {
        "make": [declaration.name for declaration in plan.made],
        "change": {
            declaration.name: [change._asdict() for change in changes]
            for declaration, changes in plan.changed
        },
        "delete": plan.deleted,
        "same": plan.same,
        "others": plan.others,
    }


def _count_text(number: int) -> str:
    return "1 connector" if number == 1 else f"{number} connectors"


connector.add_command(list_connectors)
connector.add_command(status)


@connector.command("pause", cls=ClientCommand, writes=True, prints=False)
@_names
def pause(client: ProtocolClient, names: tuple[str, ...]) -> None:
    """Pause connectors; return when no process runs them."""
    call_for_each(client, "connector", names, rest)
    click.echo(f"Paused {', '.join(names)}.")


@connector.command("resume", cls=ClientCommand, writes=True, prints=False)
@_names
def resume(client: ProtocolClient, names: tuple[str, ...]) -> None:
    """Resume paused connectors."""
    call_for_each(
        client,
        "connector",
        names,
        lambda endpoint, name: Declarations(endpoint).pause(name, paused=False),
    )
    click.echo(f"Resumed {', '.join(names)}.")


@connector.command("rewind", cls=ClientCommand, writes=True, prints=False)
@_name
@click.argument("to")
def rewind(client: ProtocolClient, name: str, to: str) -> None:
    """Restart connector NAME from TO, running or not.

    TO is `rows` (all rows, then changes), `oldest` (the oldest change that is kept), `latest`,
    a time (10m ago, or 2026-01-31T12:00), or SHARD:SEQUENCE for one shard. Targets drop what
    they already have.
    """
    place = _place(to)

    async def again(endpoint: Endpoint) -> None:
        declared = (await Declarations(endpoint).all()).get(name)
        await begin_again(
            ProcessContext(endpoint, os.environ, ""), _readable(name, declared), place
        )

    find_modules_here()
    try:
        run_call(client, again)
    except SettingsRefused as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"Rewound {name} to {to}.")


def _place(text: str) -> Begin | ShardPlace:
    if text == "rows":
        return "rows"
    if text == "oldest":
        return "oldest"
    if text == "latest":
        return "latest"
    try:
        return since_us(text, time.time_ns() // 1000)
    except ValueError as error:
        if found := _PLACE.fullmatch(text):
            return ShardPlace(found[1], int(found[2]))
        raise click.UsageError(f"{error}, nor rows, oldest, latest or SHARD:SEQUENCE.") from error


def _readable(name: str, declared: DeclaredConnector | None) -> Declaration:
    if declared is None:
        raise CommandRefused(f"There is no connector {name}")
    if declared.declaration is None:
        raise CommandRefused(f"The declaration of {name} can't be read: {declared.failure}")
    return declared.declaration


@connector.command("recopy", cls=ClientCommand, writes=True, prints=False)
@_name
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
def recopy_tables(client: ProtocolClient, name: str, tables: tuple[str, ...]) -> None:
    """Copy each TABLE of source NAME again, running or not.

    TABLE is the name at the source (shop.orders) or in rowtide. Rows that the source does not
    have are deleted. Other tables continue. A sink has one table: use `rewind NAME rows`.
    """

    async def again(endpoint: Endpoint) -> None:
        declared = (await Declarations(endpoint).all()).get(name)
        await recopy(ProcessContext(endpoint, os.environ, ""), _readable(name, declared), tables)

    find_modules_here()
    try:
        run_call(client, again)
    except SettingsRefused as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"{name} copies {', '.join(tables)} again.")


@connector.command("delete", cls=ClientCommand, writes=True, prints=False)
@_name
@yes_option
def delete_one(client: ProtocolClient, name: str, *, yes: bool) -> None:
    """Delete connector NAME with its position and its parked rows. The target keeps its rows.

    What a source created at its server is removed there, or printed if that fails. A source's
    position and parked rows stay for a later one of its name.
    """
    confirm(f"Delete connector {name}?", yes=yes)

    async def delete_connector(endpoint: Endpoint) -> Sequence[str]:
        declared = (await Declarations(endpoint).all()).get(name)
        if declared is None:
            raise CommandRefused(f"There is no connector {name}")
        return await delete(ProcessContext(endpoint, os.environ, ""), declared)

    find_modules_here()
    left = run_call(client, delete_connector)
    click.echo(f"Deleted {name}.")
    _print_left(name, left)


def _print_left(name: str, traces: Sequence[str]) -> None:
    for trace in traces:
        click.echo(f"{name} leaves behind {trace}.")


connector.add_command(logs)
connector.add_command(parking)
connector.add_command(run)
