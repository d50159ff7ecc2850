"""``rowtide dashboard``: panels of numbers over a table, exact at positions of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand, data_dir_given
from rowtide.cli.console_link import console_beside, read_console_url
from rowtide.cli.dashboard_plan import plan
from rowtide.cli.endpoint_call import call_for_each, run_call
from rowtide.cli.exits import CommandRefused, NotNow
from rowtide.cli.output import Output, emit_fields, emit_json, emit_table
from rowtide.client.endpoint import Endpoint
from rowtide.dashboards.declaring.declaration import Dashboard, parse_dashboards
from rowtide.dashboards.declaring.marked_values import DeclarationRejected
from rowtide.dashboards.runtime.applying import delete_dashboard, prepare_table, rest_dashboard
from rowtide.dashboards.runtime.numbers import numbers_document, read_numbers
from rowtide.dashboards.runtime.standing import DashboardStatus, note_full_disks, read_standings
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboard, StoredDashboards

__all__ = ["dashboard"]

_file = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
_name = click.argument("name")
_names = click.argument("names", nargs=-1, required=True, metavar="NAME...")

_DONE = {
    "made": "{} is created; it shows numbers once it has read all rows.",
    "rebuilt": "{} is built again; the former numbers stay until the new ones are complete.",
    "kept": "{} keeps its numbers.",
}


@click.group(cls=CommandGroup)
def dashboard() -> None:
    """Show numbers over a table that are exact at positions of its log.

    A YAML file declares dashboards. They run beside the workers of `rowtide up`, or anywhere
    with `rowtide connector run`.
    """


@dashboard.command("validate")
@_file
def validate(file: Path) -> None:
    """Check FILE without a server."""
    found = read_dashboards(file)
    click.echo(f"{file} declares {_count_text(len(found))}.")


def read_dashboards(file: Path) -> list[Dashboard]:
    """Return what a file declares. Raises ``click.UsageError``."""
    try:
        return parse_dashboards(file.read_text(encoding="utf-8"), str(file))
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not text: {error}") from error
    except (OSError, DeclarationRejected) as error:
        raise click.UsageError(str(error)) from error


def _count_text(number: int) -> str:
    return "1 dashboard" if number == 1 else f"{number} dashboards"


dashboard.add_command(plan)


@dashboard.command("apply", cls=ClientCommand, writes=True)
@_file
def apply(client: ProtocolClient, file: Path, output: Output) -> None:
    """Create and change dashboards as FILE says.

    The streams of their tables get the columns of the panels as original columns. A changed query
    is built beside the former one.
    """
    found = read_dashboards(file)

    async def carry_out(endpoint: Endpoint) -> dict[str, str]:
        done: dict[str, str] = {}
        for one in found:
            await prepare_table(endpoint, one)
            done[one.name] = await StoredDashboards(endpoint).declare(one)
        return done

    done = run_call(client, carry_out)
    if output == "json":
        emit_json(done)
        return
    for name, what in done.items():
        click.echo(_DONE[what].format(name))


@dashboard.command("list", cls=ClientCommand)
def list_dashboards(client: ProtocolClient, output: Output) -> None:
    """List the dashboards of the instance."""
    stored = run_call(client, lambda endpoint: StoredDashboards(endpoint).all())
    shown = [_listing(found) for found in stored.values()]
    if output == "json":
        emit_json(shown)
        return
    emit_table(("name", "table", "panels", "state"), [tuple(one.values()) for one in shown])


def _listing(found: StoredDashboard) -> dict[str, Any]:
    build = found.build
    return {
        "name": found.name,
        "table": build.dashboard.table.name if build else None,
        "panels": len(build.dashboard.panels) if build else None,
        "state": _state(found),
    }


def _state(found: StoredDashboard) -> str:
    if found.build is None:
        return "unreadable"
    return "paused" if found.paused else "ready" if found.is_ready else "building"


@dashboard.command("show", cls=ClientCommand)
@_name
def show(client: ProtocolClient, name: str, output: Output) -> None:
    """Show the numbers of dashboard NAME, with the positions at which they are exact."""

    async def read(endpoint: Endpoint) -> dict[str, Any]:
        stored = await find_dashboard(endpoint, name)
        if stored.answering is None:
            raise NotNow(
                f"Dashboard {name} has not read all rows yet",
                f"`rowtide dashboard status {name}` shows how far it is.",
            )
        return numbers_document(stored, await read_numbers(endpoint, stored.answering))

    found = run_call(client, read)
    if output == "json":
        emit_json(found)
        return
    for panel in found["panels"].values():
        _print_panel(panel)
    places = [f"{shard} {at['sequence']}" for shard, at in found["positions"].items()]
    emit_fields([("exact at", ", ".join(places)), ("as of", found["as_of"] or "-")])


async def find_dashboard(endpoint: Endpoint, name: str) -> StoredDashboard:
    """Return a declared dashboard. Raises ``CommandRefused`` if there is none."""
    stored = await StoredDashboards(endpoint).get(name)
    if stored is None:
        raise CommandRefused(f"There is no dashboard {name}")
    if stored.build is None:
        raise CommandRefused(f"The declaration of {name} can't be read: {stored.failure}")
    return stored


def _print_panel(panel: dict[str, Any]) -> None:
    unit = f" ({panel['unit']})" if panel["unit"] else ""
    click.echo(f"{panel['title']}{unit}")
    if panel["fault"]:
        click.echo(f"no numbers: {panel['fault']}\n")
        return
    header = [f"~{c['name']}" if c["is_approximate"] else c["name"] for c in panel["columns"]]
    emit_table(header, panel["rows"])
    for column, count in panel["mistyped"].items():
        click.echo(f"{count:,} values of {column} have another type and count as NULL.")
    click.echo()


@dashboard.command("status", cls=ClientCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(client: ProtocolClient, names: tuple[str, ...], output: Output) -> None:
    """Show state and lag of dashboards: all, or those named."""
    found = run_call(client, lambda endpoint: _read_status(endpoint, names))
    for name in names:
        if name not in found:
            raise CommandRefused(f"There is no dashboard {name}")
    if output == "json":
        emit_json([standing.document() for standing in found.values()])
        return
    header = ("name", "state", "lag", "seconds", "per second", "runs on")
    emit_table(header, [_status_row(standing) for standing in found.values()])
    for standing in found.values():
        for trouble in standing.troubles:
            click.echo(f"{standing.name}: {trouble}")


async def _read_status(endpoint: Endpoint, names: tuple[str, ...]) -> dict[str, DashboardStatus]:
    found = await read_standings(endpoint, names)
    await note_full_disks(endpoint, found.values())
    return found


def _status_row(standing: DashboardStatus) -> tuple[object, ...]:
    lag = standing.lag
    state = standing.state
    if lag is not None and lag.begun and lag.unread:
        state = f"{state} {lag.read:.0%}"
    records = lag.records if lag is not None and lag.begun else None
    seconds = f"{lag.seconds:.1f}" if lag is not None and lag.begun else None
    runs_on = ", ".join(report.process for report in standing.reports)
    return standing.name, state, records, seconds, f"{standing.rate:.1f}", runs_on


@dashboard.command("pause", cls=ClientCommand, writes=True, prints=False)
@_names
def pause(client: ProtocolClient, names: tuple[str, ...]) -> None:
    """Pause dashboards; return when no process runs them. They keep their numbers."""
    call_for_each(client, "dashboard", names, rest_dashboard)
    click.echo(f"Paused {', '.join(names)}.")


@dashboard.command("resume", cls=ClientCommand, writes=True, prints=False)
@_names
def resume(client: ProtocolClient, names: tuple[str, ...]) -> None:
    """Resume paused dashboards."""
    call_for_each(
        client,
        "dashboard",
        names,
        lambda endpoint, name: StoredDashboards(endpoint).pause(name, paused=False),
    )
    click.echo(f"Resumed {', '.join(names)}.")


@dashboard.command("rebuild", cls=ClientCommand, writes=True, prints=False)
@_names
def rebuild(client: ProtocolClient, names: tuple[str, ...]) -> None:
    """Build dashboards again from the rows. The former numbers stay until the new are complete."""

    async def rebuild_all(endpoint: Endpoint) -> None:
        for name in names:
            stored = await find_dashboard(endpoint, name)
            assert stored.build is not None, "it can be read"
            await prepare_table(endpoint, stored.build.dashboard)
            await StoredDashboards(endpoint).rebuild(name)

    run_call(client, rebuild_all)
    click.echo(f"Building {', '.join(names)} again.")


@dashboard.command("share", cls=ClientCommand, writes=True)
@_name
@click.option("--url", help="Address of the console; unless set, that of the server.")
def share(client: ProtocolClient, name: str, url: str | None, output: Output) -> None:
    """Make a link that shows dashboard NAME and nothing else. Needs a key with the admin right.

    Anyone who has the link sees the numbers, until its share token is revoked. The token is behind
    the #, which browsers send to no server. It is shown only now.
    """
    stored = run_call(client, lambda endpoint: find_dashboard(endpoint, name))
    assert stored.build is not None, "it can be read"
    fields = {"table": stored.build.dashboard.table.name, "dashboard": name}
    made = client.call_json("RowtideCreateToken", fields)
    url = url or read_console_url(data_dir_given()) or console_beside(client.endpoint)
    link = f"{url.rstrip('/')}/shared#{made['token']}"
    if output == "json":
        emit_json({**made, "link": link})
        return
    emit_fields([("link", link), ("token id", made["token_id"])])
    click.echo(f"`rowtide token revoke {made['token_id']}` ends it.")


@dashboard.command("delete", cls=ClientCommand, writes=True, prints=False)
@_name
@yes_option
def delete(client: ProtocolClient, name: str, *, yes: bool) -> None:
    """Delete dashboard NAME with its numbers. Its table keeps its stream."""
    confirm(f"Delete dashboard {name}?", yes=yes)
    if not run_call(client, lambda endpoint: delete_dashboard(endpoint, name)):
        raise CommandRefused(f"There is no dashboard {name}")
    click.echo(f"Deleted {name}.")
