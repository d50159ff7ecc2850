"""What ``apply`` checks at the server, and changes there before a dashboard is declared.

A panel over rows takes old values back. So the stream of its table must tell the values of its
columns before each change: they are added to the stream's original columns.
"""

from __future__ import annotations

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_log import ConnectorLog
from rowtide.connectors.runtime.status_board import StatusBoard
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import invalid
from rowtide.dashboards.declaring.declaration import Dashboard
from rowtide.dashboards.runtime.clean_up import remove_build
from rowtide.dashboards.runtime.state_rows import StateTable, part_of
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards, run_name

__all__ = ["delete_dashboard", "prepare_table", "rest_dashboard"]

NO_COLUMN = "rowtide_no_column"
"""An original column that no row has: with one, the stream tells whether a row existed."""

_KEY_TYPES = {
    pb.INTEGER: ("bigint", "timestamp_s", "timestamp_ms", "timestamp_us"),
    pb.STRING: ("text",),
    pb.BINARY: (),
}


async def prepare_table(endpoint: Endpoint, dashboard: Dashboard) -> None:
    """Let the stream of a dashboard's table tell what its panels need. Raises ``StoreError``."""
    name = dashboard.table.name
    request = pb.DescribeTableRequest(table_name=name)
    table = await endpoint.call("DescribeTable", request, pb.DescribeTableResponse)
    stream = table.stream_details
    if not stream.enable_stream:
        raise invalid(
            f"Table '{name}' has no stream, which dashboard {dashboard.name} reads: "
            f"`rowtide table update {name} --stream-hours 24` enables one"
        )
    _check_key(dashboard, table)
    ttl_s = table.table_options.time_to_live
    if ttl_s != -1 and not dashboard.is_of_changes:
        raise invalid(
            f"Rows of table '{name}' expire after {ttl_s} s without a change record, so dashboard "
            f"{dashboard.name} cannot count them: write FROM changes('{name}')"
        )
    key = {column.name for column in table.table_meta.primary_key}
    missing = [c for c in dashboard.columns if c not in key and c not in stream.column_to_get]
    if not (missing or stream.column_to_get or dashboard.is_of_changes):
        missing = [NO_COLUMN]
    if not missing:
        return
    update = pb.UpdateTableRequest(table_name=name)
    update.stream_spec.enable_stream = True
    update.stream_spec.expiration_time = stream.expiration_time
    update.stream_spec.columns_to_get.extend([*stream.column_to_get, *missing])
    await endpoint.call("UpdateTable", update, pb.UpdateTableResponse)


def _check_key(dashboard: Dashboard, table: pb.DescribeTableResponse) -> None:
    for column in table.table_meta.primary_key:
        declared = dashboard.table.types.get(column.name)
        known = _KEY_TYPES[column.type]
        if declared is not None and declared not in known:
            kind = pb.PrimaryKeyType.Name(column.type)
            words = f"declare {' or '.join(known)}" if known else "leave it out"
            raise invalid(
                f"Column '{column.name}' of the key of table '{dashboard.table.name}' is {kind}, "
                f"but dashboard {dashboard.name} declares {declared}: {words}"
            )


async def rest_dashboard(endpoint: Endpoint, name: str) -> bool:
    """Pause a dashboard and return once no process runs it. False if it does not exist.

    Raises ``Unavailable`` if a process takes too long. The dashboard still pauses later.
    """
    if not await StoredDashboards(endpoint).pause(name, paused=True):
        return False
    await StatusBoard(endpoint).wait_until_stopped(_run_names(name), f"Dashboard {name}")
    return True


def _run_names(name: str) -> tuple[str, str]:
    """Return the names under which processes report a dashboard's builds."""
    return run_name(name), f"{run_name(name)}.former"


async def delete_dashboard(endpoint: Endpoint, name: str) -> bool:
    """Stop a dashboard on all processes and delete it with its state. False if it is unknown.

    The table keeps its stream and its original columns.
    """
    stored = await StoredDashboards(endpoint).get(name)
    if stored is None:
        return False
    await rest_dashboard(endpoint, name)
    for build in (stored.build, stored.former):
        if build is not None:
            await remove_build(endpoint, build)
    await StateTable(endpoint).remove(part_of(name))
    for run in _run_names(name):
        await StatusBoard(endpoint).withdraw_all(run)
        await ConnectorLog(endpoint).remove(run)
    await StoredDashboards(endpoint).remove(name)
    return True
