"""Actions on a connector beside its document: pause, start again, delete."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.start import Begin, ShardPlace, rewind
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import make_source
from rowtide.connectors.runtime.connector_log import ConnectorLog
from rowtide.connectors.runtime.declaration import Declaration, variables
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector, group_of
from rowtide.connectors.runtime.parking import ParkedRows
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.source_lease import SOURCE_TABLE
from rowtide.connectors.runtime.status_board import StatusBoard
from rowtide.connectors.sources.source import LeavesTraces, Repeatable, Source
from rowtide.core.values.errors import StoreError, invalid

__all__ = ["begin_again", "delete", "list_unused_traces", "recopy", "rest"]


async def begin_again(
    place: ProcessContext, declaration: Declaration, to: Begin | ShardPlace
) -> None:
    """Rewind a connector, whether it runs or not. Raises ``StoreError``."""
    if declaration.sink:
        source = ApiSource(place.endpoint, declaration.table)
        await rewind(source, TableLeases(place.endpoint, group_of(declaration.name)), to)
        return
    if to != "rows":
        raise invalid("A source can only start again with its rows.")
    await _copy_again(place, declaration, ())


async def recopy(place: ProcessContext, declaration: Declaration, tables: Sequence[str]) -> None:
    """Make a source copy some of its tables again. Other tables go on. Raises
    ``StoreError``.

    ``tables`` are names at the source or in rowtide.
    """
    if declaration.sink:
        raise invalid(
            f"Connector {declaration.name} fills a sink, which has one table, {declaration.table}: "
            f"`rowtide connector rewind {declaration.name} rows` sends all its rows again."
        )
    await _copy_again(place, declaration, tables)


async def _copy_again(
    place: ProcessContext, declaration: Declaration, tables: Sequence[str]
) -> None:
    """Change a source's checkpoint, whether the source runs or not. No tables means all."""
    where = f"connectors.{declaration.name}.source"
    fields = Fields(declaration.source, where, environment=place.environment)
    found = make_source(fields, place.surroundings(declaration.name))
    if not isinstance(found, Repeatable):
        raise invalid(f"A {declaration.kind} source can't be made to copy its rows again.")
    leases = TableLeases(place.endpoint, declaration.name, table=SOURCE_TABLE)
    while lease := next(iter((await leases.read("")).values()), None):
        kept = found.begin_again(base64.b64decode(lease.position), tables)
        # The current source process loses its lease and restarts from this checkpoint.
        wanted = lease._replace(position=base64.b64encode(kept).decode(), owner="")
        if await leases.change(lease, wanted) == wanted._replace(counter=lease.counter + 1):
            return  # Otherwise the source renewed its lease meanwhile.
    if tables:
        found.begin_again(b"", tables)  # The source never ran. This raises the reason.


async def rest(endpoint: Endpoint, name: str) -> bool:
    """Pause a connector and return once no process runs it. False if it does not exist.

    Raises ``Unavailable`` if a process takes too long. The connector still pauses later.
    """
    if not await Declarations(endpoint).pause(name, paused=True):
        return False
    await StatusBoard(endpoint).wait_until_stopped([name], f"Connector {name}")
    return True


async def delete(place: ProcessContext, declared: DeclaredConnector) -> Sequence[str]:
    """Stop a connector on all processes and delete it. The target keeps its rows.

    What a source created at its server is removed. Return what is left there, as texts
    for people. The checkpoint of a source stays: shards store positions by its name, and
    would skip the rows of a new source with that name. Parked rows of a source stay too,
    because only they show what is missing. Raises ``Unavailable`` if a process does not
    stop. The connector is then paused and can be deleted later.
    """
    endpoint, name = place.endpoint, declared.name
    await rest(endpoint, name)
    left = await _erase_traces(place, declared.declaration)
    leases = TableLeases(endpoint, group_of(name))
    for table in ("", *_tables(declared)):
        await _remove_leases(leases, table)
    left = [*left, *await _remove_entries(ParkedRows(endpoint, name))]
    await StatusBoard(endpoint).withdraw_all(name)
    await ConnectorLog(endpoint).remove(name)
    await Declarations(endpoint).remove(name)
    return left


async def _erase_traces(place: ProcessContext, declaration: Declaration | None) -> Sequence[str]:
    """Remove what a source created at its server. Return what is, or may be, left."""
    if declaration is None or not declaration.source:
        return ()
    unset = sorted(
        {f"${{{v}}}" for v in variables(declaration.source) if v not in place.environment}
    )
    try:
        source = _make_source(place, declaration)
    except SettingsRefused as error:
        return (f"whatever {declaration.kind} sources make at their server ({error})",)
    if not isinstance(source, LeavesTraces):
        return ()
    why = f"not set here: {', '.join(unset)}"
    if not unset:
        try:
            return await source.erase()
        except (StoreError, SettingsRefused) as error:
            why = str(error)
    return [f"{trace} ({why})" for trace in source.traces()]


def list_unused_traces(
    place: ProcessContext, former: Declaration | None, now: Declaration
) -> Sequence[str]:
    """Return what a source created at its server and does not use as it is declared now.

    Nothing is removed: a process may still run the former declaration.
    """
    kept = _traces(place, now)
    return [trace for trace in _traces(place, former) if trace not in kept]


def _traces(place: ProcessContext, declaration: Declaration | None) -> Sequence[str]:
    if declaration is None or not declaration.source:
        return ()
    try:
        source = _make_source(place, declaration)
    except SettingsRefused:
        return ()
    return source.traces() if isinstance(source, LeavesTraces) else ()


def _make_source(place: ProcessContext, declaration: Declaration) -> Source:
    """Return a source that can name its traces even if a password is not known."""
    named = {name: f"${{{name}}}" for name in variables(declaration.source)}
    where = f"connectors.{declaration.name}.source"
    fields = Fields(declaration.source, where, environment={**named, **place.environment})
    return make_source(fields, place.surroundings(declaration.name))


async def _remove_entries(parked: ParkedRows) -> Sequence[str]:
    """Remove the parked rows of a sink. Return a text on those of a source, which stay."""
    kept = set()
    for entry in await parked.all():
        if entry.position:
            kept.add(entry.key_bytes)
        else:
            await parked.remove(entry)
    if not kept:
        return ()
    rows = "a parked row" if len(kept) == 1 else f"{len(kept)} parked rows"
    return (f"{rows}, to be retried or skipped when it is declared again",)


def _tables(declared: DeclaredConnector) -> Sequence[str]:
    declaration = declared.declaration
    return (declaration.table,) if declaration is not None and declaration.table else ()


async def _remove_leases(leases: TableLeases, table: str) -> None:
    while rows := await leases.read(table):
        for row in rows.values():
            await leases.remove(row)
