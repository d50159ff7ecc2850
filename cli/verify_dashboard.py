"""``rowtide verify dashboard``: compares the numbers of a dashboard with those of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.endpoint_call import run_call
from rowtide.cli.exits import CommandRefused, NotNow
from rowtide.cli.output import Output, emit_json
from rowtide.client.endpoint import Endpoint
from rowtide.dashboards.runtime.numbers import json_value
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards

if TYPE_CHECKING:
    from rowtide.dashboards.proof.verification import PanelDifference, Verification

__all__ = ["verify_named"]


def verify_named(
    client: ProtocolClient, name: str, output: Output, *, wait_s: float, show: int
) -> bool:
    """Verify a dashboard and print the result. False if there is no dashboard of this name.

    Ends the command with code 1 if a number differs, and 3 if that cannot be known.
    """
    try:
        # DuckDB belongs to the connectors' libraries, which are optional.
        from rowtide.dashboards.proof.row_copy import CannotTell
        from rowtide.dashboards.proof.verification import verify_dashboard
    except ImportError as error:
        raise click.UsageError(
            f"{error}: install the connectors' libraries: pip install 'rowtide[connectors]'"
        ) from error

    async def compare(endpoint: Endpoint) -> Verification | None:
        stored = await StoredDashboards(endpoint).get(name)
        if stored is None:
            return None
        build = stored.answering
        if build is None:
            raise NotNow(
                f"Dashboard {name} has no complete numbers: {stored.failure or 'building'}"
            )
        try:
            return await verify_dashboard(endpoint, build, wait_s=wait_s)
        except CannotTell as error:
            raise NotNow(f"Dashboard {name} cannot be verified: {error}") from error

    found = run_call(client, compare)
    if found is None:
        return False
    if output == "json":
        emit_json(_document(name, found))
    else:
        _print(name, found, show=show)
    if not found.is_equal:
        raise SystemExit(CommandRefused.exit_code)
    return True


def _print(name: str, found: Verification, *, show: int) -> None:
    for panel in found.panels:
        if panel.fault:
            click.echo(f"{panel.panel}: {panel.fault}")
        for difference in panel.differences[:show]:
            side = "shown" if difference.side == "dashboard" else "right"
            click.echo(f"{panel.panel}: {side} {_row(found, panel.panel, difference)}")
        if len(panel.differences) > show:
            click.echo(f"{panel.panel}: and {len(panel.differences) - show:,} more (--show)")
    numbers = sum(panel.numbers for panel in found.panels)
    count = sum(len(panel.differences) + bool(panel.fault) for panel in found.panels)
    result = f"{count:,} rows of answers differ" if count else "equal"
    click.echo(
        f"{name}: {found.rows:,} rows, {len(found.panels)} panels, {numbers:,} numbers at "
        f"{len(found.numbers.positions)} positions: {result}"
    )


def _row(found: Verification, panel: str, difference: PanelDifference) -> list[object]:
    outputs = found.numbers.build.dashboard.panels[panel].plan.outputs
    return [json_value(v, o.kind) for v, o in zip(difference.row, outputs, strict=True)]


def _document(name: str, found: Verification) -> dict[str, Any]:
    return {
        "dashboard": name,
        "equal": found.is_equal,
        "rows": found.rows,
        "positions": {
            shard: {"position": at.position, "stamp": at.stamp}
            for shard, at in sorted(found.numbers.positions.items())
        },
        "panels": {
            panel.panel: {
                "numbers": panel.numbers,
                "fault": panel.fault,
                "differences": [
                    {"side": one.side, "row": _row(found, panel.panel, one)}
                    for one in panel.differences
                ],
            }
            for panel in found.panels
        },
    }
