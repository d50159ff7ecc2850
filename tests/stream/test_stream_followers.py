"""A reader that waits for more of a shard's log is woken when the shard closes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.stream.test_changelog_flush import open_shop


async def test_a_reader_that_waits_at_a_shard_hears_that_it_closes(tmp_path: Path) -> None:
    """It is open elsewhere by then, and is written: the reader sat out its time, 2 s at most."""
    more = asyncio.Event()
    async with open_shop(tmp_path / "rows") as shop:
        shop.owner.readers.follow(more)
        await asyncio.sleep(0)  # It runs now.
    assert more.is_set()
