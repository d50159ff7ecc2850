"""What a transaction sees of its rows while the reclaimer goes over them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rowtide.core.protocol import plainbuffer
from rowtide.core.records.record import Reclaim
from rowtide.core.rows.chunk import row_end, row_key
from rowtide.core.rows.fold import read_cells
from rowtide.core.rows.mutation import IGNORE, UPDATE, ChangeRequest
from rowtide.core.shard.shard_state import options_body
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.stream.slot.upkeep.reclaimer import Reclaimer, ReclaimSettings
from tests.core.chunk_dictionary import put
from tests.core.shard_model import NOW_US, address, table
from tests.stream.test_owned_transactions import Owned, P, Q, name, running

NOW_MS = NOW_US // 1000
LIFE_S = 50_000
EXPIRED_MS = NOW_MS - 80_000 * 1000


def at(partition: str) -> bytes:
    """Return the chunk key of row ``a`` of a partition key."""
    return row_key(1, key.encode([value for _, value in address("a", partition)]))


def update(cells: Sequence[Cell], partition: str = "p") -> ChangeRequest:
    """Return a change of row ``a``."""
    return ChangeRequest(UPDATE, address("a", partition), cells, IGNORE)


async def wide_row(owned: Owned, partition: str = "p") -> None:
    """Write a row of nine chunks, all but the first and the last of which have expired."""
    text = "x" * 5000
    cells = [put("c0", NOW_MS, text), *(put(f"c{n}", EXPIRED_MS, text) for n in range(1, 9))]
    count = plainbuffer.put_cell(b"z", variant.encode(10), NOW_MS)
    written = update([*cells, count], partition)
    assert await owned.ask(lambda tell: owned.owner.submit(written, tell)) == "ok"


async def let_expire(owned: Owned) -> None:
    """Give the table a time to live."""
    options = replace(table().options, time_to_live_s=LIFE_S)
    await owned.owner.submit_hidden(options_body(replace(table(), options=options)))


async def reclaim(owned: Owned) -> None:
    """Go through the shard's rows."""

    async def bury(_graves: object) -> None:
        """Keep no changelog."""

    owner, settings = owned.owner, ReclaimSettings()
    reclaimer = Reclaimer(lambda: [owner], bury, clock_us=lambda: NOW_US, settings=settings)
    await reclaimer.reclaim_now(owner)


def chunks_of(owned: Owned, partition: str) -> int:
    """Return how many chunks a row has."""
    first = at(partition)
    return sum(1 for _ in owned.owner.rows.scan(first, row_end(first)))


async def test_a_transaction_counts_on_from_what_stands_though_the_reclaimer_passes(
    tmp_path: Path,
) -> None:
    """The reclaimer joins chunks, of one of which the transaction has its own."""
    async with running(tmp_path) as owned:
        await wide_row(owned)
        await let_expire(owned)
        await owned.begin(1)
        owned.owner.apply(name(1), update([put("c1", NOW_MS + 1, "y")]))
        await reclaim(owned)
        owned.owner.apply(name(1), update([plainbuffer.increment_cell(b"z", variant.encode(1))]))
        assert await owned.commit(1) == "ok"
        [count] = [c for c in read_cells(owned.owner.rows, at("p")) or () if c.name == b"z"]
        assert variant.decode(count.variant) == 11
        await reclaim(owned)
        assert chunks_of(owned, "p") < 9, "it waited, and is reclaimed after"


async def test_rows_around_those_that_a_transaction_holds_are_reclaimed(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        for partition in "opqr":
            await wide_row(owned, partition)
        await let_expire(owned)
        await owned.begin(1, P)
        await owned.begin(2, Q)
        await reclaim(owned)
        assert [chunks_of(owned, partition) for partition in "opqr"] == [2, 9, 9, 2]


async def test_a_range_is_left_that_is_held_by_the_time_its_turn_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as owned:
        await wide_row(owned)
        await let_expire(owned)
        await owned.begin(1)
        await owned.owner.submit_hidden(Reclaim(b"", b"\xff", 0, 0))
        assert chunks_of(owned, "p") == 9


HELD = """
transactions  between  free
-             a..z     a..z
m             a..z     a..m m+..z
m             m..z     m+..z
m             n..z     n..z
m             a..m     a..m
b m           a..z     a..b b+..m m+..z
b m           c..d     c..d
"""


@pytest.mark.parametrize("line", HELD.strip().splitlines()[1:])
async def test_what_transactions_leave_of_a_range(tmp_path: Path, line: str) -> None:
    held, between, *free = re.split(r"  +", line)
    async with running(tmp_path) as owned:
        for number, letter in enumerate(held.split() if held != "-" else ()):
            await owned.begin(number, variant.encode(letter))
        found = owned.owner.transactions.list_free_ranges(*places(between))
    assert found == [places(text) for text in free[0].split()]


def places(text: str) -> tuple[bytes, bytes]:
    """Return the places of ``a..b``; with ``+`` the one behind a partition key."""
    first, last = (key.encode([variant.encode(word[0])]) for word in text.split(".."))
    return row_end(first) if "+" in text.split("..")[0] else first, last
