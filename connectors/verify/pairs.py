"""The pairs that ``rowtide verify`` compares: a table and a sink, or a source and a
table.

The connector between the two is declared. So its changes of rows and its position are
known.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import make_sink, make_source
from rowtide.connectors.rows import SinkRow, TableShape
from rowtide.connectors.runtime.declaration import Declaration, resolve_columns
from rowtide.connectors.runtime.declarations import group_of
from rowtide.connectors.runtime.masking import MaskedSide
from rowtide.connectors.runtime.place import ProcessContext, table_shape
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.connectors.sinks.sink import Comparable
from rowtide.connectors.sources.source import ComparableSource, SourceSide
from rowtide.connectors.verify.comparison import Verdict, compare
from rowtide.connectors.verify.scan import compare_scans
from rowtide.connectors.verify.table_pages import Prepare, TablePages
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.core.values.errors import Rejected, invalid

__all__ = ["make_prepare", "verify_sink", "verify_source"]


async def verify_sink(
    declaration: Declaration,
    place: ProcessContext,
    *,
    wait_s: float,
    on_progress: Callable[[Verdict], None] = lambda verdict: None,
) -> Verdict:
    """Compare a connector's table with the rows of its sink. Raises ``StoreError``.

    ``wait_s`` is how long the connector may take to catch up with the table as it is now.
    """
    transforms = declaration.transforms
    source = ApiSource(place.endpoint, declaration.table, columns=transforms.wanted)
    leases = TableLeases(place.endpoint, group_of(declaration.name))
    where = f"connectors.{declaration.name}.sink"
    fields = Fields(declaration.sink, where, environment=place.environment)
    sink = make_sink(fields, place.surroundings(declaration.name))
    if not (hasattr(sink, "read_rows") and hasattr(sink, "convert_columns")):
        raise Rejected("OTSParameterInvalid", f"A {declaration.kind} sink can't be read back")
    shape = transforms.shape(await table_shape(place.endpoint, declaration.table))
    pages = TablePages(source, leases, prepare=make_prepare(transforms), wait_s=wait_s)
    await pages.open()
    open_sink: Callable[[TableShape], Awaitable[None]]
    open_sink = getattr(sink, "open_to_read", sink.open)
    try:
        await open_sink(shape)
        return await compare(pages, cast(Comparable, sink), on_progress=on_progress)
    finally:
        await sink.close()


def make_prepare(transforms: Transforms) -> Prepare:
    """Return the function that makes of a row what the connector makes of it.

    It raises ``Rejected`` for rows that can't be compared: with another key, with several
    rows, or parked ones.
    """
    function = transforms.load()

    def prepare(row: SinkRow) -> SinkRow | None:
        try:
            made = list(transforms.make_rows(row, function))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise invalid(
                f"The connector's function fails on the row {dict(row.key)}: {why}"
            ) from error
        if len(made) > 1:
            raise invalid(
                f"{transforms.function} makes several rows of one: they can't be compared"
            )
        if made and made[0].key_bytes != row.key_bytes:
            raise invalid(f"{transforms.function} gives rows another key: they can't be compared")
        return made[0] if made else None

    return prepare


async def verify_source(declaration: Declaration, table: str, place: ProcessContext) -> Verdict:
    """Compare a source with a table that it fills. Raises ``StoreError``."""
    where = f"connectors.{declaration.name}.source"
    fields = Fields(declaration.source, where, environment=place.environment)
    source = make_source(fields, place.surroundings(declaration.name))
    if not inspect.iscoroutinefunction(getattr(source, "side", None)):
        raise Rejected("OTSParameterInvalid", f"A {declaration.kind} source can't be compared")
    rules = resolve_columns(declaration, source, place.environment)
    side: SourceSide = await cast(ComparableSource, source).side(table)
    if table in rules:
        side = MaskedSide(side, rules[table])
    try:
        return await compare_scans(side, TableSide(ApiSource(place.endpoint, table)))
    finally:
        await side.close()
