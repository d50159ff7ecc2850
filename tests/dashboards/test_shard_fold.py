"""Changes that are added together give the sums that they give one by one, in writes that fit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rowtide.core.records.change import Change
from rowtide.core.records.position import decode_position
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.dashboards.declaring.declaration import Dashboard, parse_dashboards
from rowtide.dashboards.fold.partial import PanelPartial
from rowtide.dashboards.fold.partial_codec import encode_partial
from rowtide.dashboards.runtime.shard_fold import ShardFold, read_partial
from rowtide.dashboards.runtime.state_rows import ROWS_MAX, PartPosition, PartRows, StateRow
from tests.dashboards.virtual_dashboard import TYPES, FlightTable, change_randomly

KEYS = [key_order.encode([variant.encode(f"k{n}")]) for n in range(400)]
CHANGES = 1500
QUERIES = {
    "few": "SELECT count(*) AS n, sum(ratio) AS total FROM t",
    "words": "SELECT word, max(ratio) AS high, count(DISTINCT small) AS kinds FROM t GROUP BY ALL",
    "many": "SELECT word, small, ratio, seen, count(*) AS n FROM t GROUP BY ALL",
}


def declare(names: Sequence[str]) -> Dashboard:
    panels = ", ".join(f'{name}: {{query: "{QUERIES[name]}"}}' for name in names)
    types = ", ".join(f"{name}: {word}" for name, word in TYPES.items())
    text = f"dashboards: {{d: {{table: t, types: {{{types}}}, panels: {{{panels}}}}}}}"
    [dashboard] = parse_dashboards(text, "test")
    return dashboard


class StoredPart:
    """The rows of a part, and the sums that its position should have."""

    def __init__(self, dashboard: Dashboard, table: FlightTable) -> None:
        self._panels = dashboard.panels
        self._effects = table.effects["s0"]
        self._rows: dict[tuple[str, bytes], StateRow] = {}
        self._expected = {
            name: PanelPartial(panel.plan, panel.bounds) for name, panel in self._panels.items()
        }
        self._counted = 0

    def write(self, rows: Sequence[StateRow]) -> int:
        """Write rows, and compare their sums with those of their position, which is returned."""
        assert len(rows) <= ROWS_MAX
        for row in rows:
            self._rows[row.panel, row.group] = row
        stored = PartRows()
        for row in self._rows.values():
            if row.columns is not None:
                stored.add(row.panel, row.group, row.columns)
        assert stored.position is not None
        following = decode_position(stored.position.position).offset
        for before, after in self._effects[self._counted : following]:
            for expected in self._expected.values():
                if before is not None:
                    expected.add(before, -1)
                if after is not None:
                    expected.add(after)
        self._counted = following
        for name, panel in self._panels.items():
            found = encode_partial(read_partial(panel, stored))
            assert found == encode_partial(self._expected[name]), (name, following)
        return following


@pytest.mark.parametrize("names", [("few",), ("few", "words"), ("many", "few", "words")])
@pytest.mark.parametrize("seed", range(3))
def test_each_write_has_the_sums_of_its_position(names: Sequence[str], seed: int) -> None:
    chance, table = random.Random(seed), FlightTable()
    for _ in range(CHANGES):
        change_randomly(table, chance, chance.choice(KEYS))
    changes: Sequence[Change] = table.find_shard("s0").changes
    dashboard = declare(names)
    fold = ShardFold(dashboard, PartPosition("rt1:s0:1:0", 0, ()), PartRows())
    part, at = StoredPart(dashboard, table), 0
    while at < len(changes):
        at += fold.add_changes(changes[at : at + chance.choice((1, 7, 1000, 5000))])
        assert part.write(fold.take_rows()) == at
