"""How old an owner's rows are taken to be, where nothing is written for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.stream.log.changelog import Changes
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.changelog.changelog import TOUCH_S, SlotChangelog
from rowtide.stream.slot.changelog.flush_scope import FlushScope
from rowtide.stream.slot.local_rows import local_rows

KEPT_S = 12 * 3600.0
BEGAN_S = 1_700_000_000.0
READ = 5
"""Up to where the rows have read the changelog."""


class Clock:
    """Both clocks; the wall's may be set."""

    def __init__(self) -> None:
        self.wall_s, self.steady_s = BEGAN_S, 100.0

    def go_on(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


class Writer:
    """Appends to a changelog that ends at ``end``. ``lost`` answers do not arrive."""

    ready = True

    def __init__(self) -> None:
        self.end = READ
        self.lost = 0

    async def prepare(self) -> None:
        """There is no other writer."""

    async def fence(self) -> None:
        """There is no other writer."""

    def leave(self) -> None:
        """Need no fence: there is no other writer."""

    async def flush(self, changes: Changes) -> int:
        """Take a transaction: its entries, and its end."""
        self.end += sum(change is not None for change in changes) + 1
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown
        return self.end


class Owner:
    """An owner of rows that were just read; ``lost`` says whether its claim is."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path, self.clock = path, clock
        self.writer = Writer()
        self.lost = False
        self.rows = RowStore(path)
        self.rows.set_changelog_position(READ, clock.wall_s)
        self.changelog = SlotChangelog(3, self.writer, self._require_claim, Counts())
        self.changelog.open(self.rows)

    async def _require_claim(self) -> None:
        if self.lost:
            raise Unavailable("claimed by another worker")

    async def upkeep(self, hours: float) -> None:
        """Do as a slot does, though every quarter of an hour; what fails is logged there."""
        for _ in range(int(hours * 4)):
            self.clock.go_on(900)
            assert await self.changelog.flush(lambda: FlushScope([], [])) == 0
            with suppress(Unavailable, OutcomeUnknown):
                await self.changelog.touch()

    def restarts_with_rows(self) -> bool:
        """Return if the next opening keeps the rows."""
        self.rows.close()
        rows = local_rows(self.path, kept_s=KEPT_S)
        position = rows.changelog_position()
        rows.close()
        return position is not None


@pytest.fixture
def clock() -> Iterator[Clock]:
    found = Clock()
    with (
        patch.object(time, "time", lambda: found.wall_s),
        patch.object(time, "monotonic", lambda: found.steady_s),
    ):
        yield found


async def test_an_owner_with_nothing_to_write_keeps_its_rows(tmp_path: Path, clock: Clock) -> None:
    owner = Owner(tmp_path / "rows", clock)
    await owner.upkeep(hours=24)
    assert owner.writer.end == READ + 2 * 24, "a touch an hour"
    assert owner.restarts_with_rows()


async def test_one_whose_claim_is_lost_does_not(tmp_path: Path, clock: Clock) -> None:
    owner = Owner(tmp_path / "rows", clock)
    owner.lost = True
    await owner.upkeep(hours=13)
    assert owner.writer.end == READ
    assert not owner.restarts_with_rows()


async def test_nor_one_that_has_not_read_everything(tmp_path: Path, clock: Clock) -> None:
    owner = Owner(tmp_path / "rows", clock)
    owner.writer.end += 1
    await owner.upkeep(hours=13)
    assert not owner.restarts_with_rows()


async def test_what_it_wrote_itself_it_need_not_read(tmp_path: Path, clock: Clock) -> None:
    """An answer was lost; the entry of the touch is above the recorded position of the
    changelog.
    """
    owner = Owner(tmp_path / "rows", clock)
    await owner.upkeep(hours=2)
    owner.writer.lost = 1
    await owner.upkeep(hours=24)
    assert owner.restarts_with_rows()


async def test_a_clock_that_was_set_back_is_noted(tmp_path: Path, clock: Clock) -> None:
    owner = Owner(tmp_path / "rows", clock)
    clock.wall_s -= 10 * TOUCH_S
    await owner.upkeep(hours=0.25)
    assert owner.restarts_with_rows()
