"""Proves the numbers of a dashboard while writers go on.

The rows are read in pages that are exact at stamps. Then the dashboard's numbers are taken, with
their positions, and the rows are brought to exactly these positions. The text of each panel, run in
DuckDB over them, must give the same numbers.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rowtide.client.changes.api import ApiSource
from rowtide.client.endpoint import Endpoint
from rowtide.core.values.errors import Rejected
from rowtide.dashboards.declaring.declaration import Panel
from rowtide.dashboards.fold.answer import PanelAnswer
from rowtide.dashboards.proof.duck_rows import DuckRows, NoDuckAnswer
from rowtide.dashboards.proof.row_copy import CannotTell, RowCopy, live_shards
from rowtide.dashboards.runtime.numbers import DashboardNumbers, read_numbers
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild
from rowtide.dashboards.sql.duckdb_text import duckdb_text
from rowtide.dashboards.values.kinds import Value

__all__ = ["PanelDifference", "PanelVerdict", "Verification", "verify_dashboard"]

TRIES_MAX = 5
LOOK_S = 0.1

Row = tuple[Value, ...]


class PanelDifference(NamedTuple):
    """A row of a panel that only one side has. ``side``: ``dashboard`` or ``rows``."""

    side: str
    row: Row


class PanelVerdict(NamedTuple):
    """What was compared of one panel."""

    panel: str
    numbers: int
    differences: Sequence[PanelDifference]
    fault: str = ""


class Verification(NamedTuple):
    """The result for one dashboard at ``numbers.positions``, over ``rows`` rows."""

    numbers: DashboardNumbers
    rows: int
    panels: Sequence[PanelVerdict]

    @property
    def is_equal(self) -> bool:
        """True if no number differs."""
        return not any(panel.differences or panel.fault for panel in self.panels)


async def verify_dashboard(
    endpoint: Endpoint, build: DashboardBuild, *, wait_s: float
) -> Verification:
    """Compare every number of a dashboard. Raises ``CannotTell`` and ``StoreError``."""
    if build.dashboard.is_of_changes:
        raise CannotTell("it counts changes, and the values of rows before them are not known")
    reason = ""
    for _ in range(TRIES_MAX):
        api = ApiSource(endpoint, build.dashboard.table.name)
        try:
            copies = [RowCopy(api, shard) for shard in await live_shards(api)]
            for copy in copies:
                await copy.read()
            numbers = await _numbers_after(endpoint, build, copies, wait_s)
            for copy in copies:
                await copy.advance(numbers.positions[copy.shard_id])
        except CannotTell as error:
            reason = str(error)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            reason = "a shard was split, merged or moved meanwhile"
        else:
            return await asyncio.to_thread(_compare, numbers, copies)
    raise CannotTell(f"{reason}, in each of {TRIES_MAX} tries")


async def _numbers_after(
    endpoint: Endpoint, build: DashboardBuild, copies: Sequence[RowCopy], wait_s: float
) -> DashboardNumbers:
    """Return numbers whose positions are behind all pages. Raises ``CannotTell``."""
    until_s = time.monotonic() + wait_s
    known = {copy.shard_id for copy in copies}
    while True:
        numbers = await read_numbers(endpoint, build, limited=False)
        positions = numbers.positions
        is_whole = known <= positions.keys() and not any(positions[s].pending for s in known)
        if is_whole and all([await one.is_before(positions[one.shard_id]) for one in copies]):
            await _require_no_child(endpoint, numbers, known)
            return numbers
        if time.monotonic() > until_s:
            raise CannotTell(f"it did not catch up with the rows in {wait_s:g} s")
        await asyncio.sleep(LOOK_S)


async def _require_no_child(endpoint: Endpoint, numbers: DashboardNumbers, known: set[str]) -> None:
    """Raise ``CannotTell`` if the numbers include changes of shards that were not read."""
    shards = await ApiSource(endpoint, numbers.build.dashboard.table.name).shards()
    children = {shard.shard_id for shard in shards if known & {*shard.parents}}
    if children & numbers.positions.keys():
        raise CannotTell("a shard was split, merged or moved meanwhile")


def _compare(numbers: DashboardNumbers, copies: Sequence[RowCopy]) -> Verification:
    dashboard = numbers.build.dashboard
    used = set(dashboard.columns)
    types = {name: word for name, word in dashboard.table.types.items() if name in used}
    # A panel may read no column at all, but a table needs one.
    duck = DuckRows(dashboard.table.name, types or dict(dashboard.table.types))
    try:
        count = 0
        for copy in copies:
            rows = list(copy.rows())
            count += len(rows)
            duck.insert(rows)
        verdicts = [
            _compare_panel(duck, panel, numbers.panels[panel.name], numbers)
            for panel in dashboard.panels.values()
        ]
    finally:
        duck.close()
    return Verification(numbers, count, verdicts)


def _compare_panel(
    duck: DuckRows, panel: Panel, found: PanelAnswer, numbers: DashboardNumbers
) -> PanelVerdict:
    """Compare a panel's answer before its LIMIT, which may cut rows that are equal in order."""
    table = numbers.build.dashboard.table
    text = duckdb_text(panel.query, table, ended_us=numbers.ended_us, limited=False)
    if found.fault.startswith("too many"):
        return PanelVerdict(panel.name, 0, [])  # It shows no number.
    try:
        expected = duck.query(text)
    except NoDuckAnswer as error:
        if not error.is_out_of_range:
            raise CannotTell(f"DuckDB rejects panel {panel.name}: {error}") from error
        fault = "" if found.fault else f"DuckDB has no number: {error}"
        return PanelVerdict(panel.name, 0, [], fault)
    if found.fault:
        # DuckDB may leave out an expression that overflows. A panel shows no number then.
        return PanelVerdict(panel.name, 0, [])
    return PanelVerdict(panel.name, sum(map(len, found.rows)), _differences(found.rows, expected))


def _differences(ours: Sequence[Row], theirs: Sequence[Row]) -> list[PanelDifference]:
    mine, other = Counter(map(_comparable, ours)), Counter(map(_comparable, theirs))
    left = list((mine - other).elements())
    surplus = list((other - mine).elements())
    for row in list(left):
        near = next((one for one in surplus if _is_near(row, one)), None)
        if near is not None:
            left.remove(row)
            surplus.remove(near)
    return [PanelDifference("dashboard", row) for row in left] + [
        PanelDifference("rows", row) for row in surplus
    ]


def _comparable(row: Row) -> Row:
    """Return a row that is equal to another one exactly if their numbers are the same."""
    return tuple("NaN" if isinstance(v, float) and v != v else v for v in row)


def _is_near(ours: Row, theirs: Row) -> bool:
    """True if doubles differ in the last bit: DuckDB divides integers in 80 bits, then rounds."""
    return len(ours) == len(theirs) and all(map(_is_value_near, ours, theirs))


def _is_value_near(ours: Value, theirs: Value) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= math.ulp(max(abs(ours), abs(theirs)))
    return ours == theirs
