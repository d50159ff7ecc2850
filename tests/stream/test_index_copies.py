"""An index's rows are the fold of its log, whatever progress was reported before."""

from __future__ import annotations

from pathlib import Path

from rowtide.core.records.record import IndexFeed, IndexWrite
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from tests.core.chunk_dictionary import put
from tests.stream.test_changelog_flush import Shop, canonical, open_shop
from tests.stream.test_standby_shard import open_copy


async def learn(shop: Shop, name: str, following: int, value: str = "v") -> None:
    """Let the shard, as that of a global index, learn of a row."""
    cells: list[Cell] = [put("c", 1_700_000_000_000, value)]
    write = IndexWrite(1, False, [variant.encode("p"), variant.encode(name)], cells)
    await shop.owner.submit_hidden(IndexFeed("s9", following, following, (write,)))


async def test_a_copy_that_read_how_far_an_index_is_before_its_rows_has_them_all(
    tmp_path: Path,
) -> None:
    """A page of the changelog ended between the two; the log of the copy was behind."""
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await learn(shop, "a", 1)
            await copy.read(shop)
            await learn(shop, "b", 2)
            await learn(shop, "c", 3)
            await shop.flush()
            copy.rows.apply_changelog(e for e in shop.written.entries if e[1][:1] == b"i")
            await copy.read(shop)
            assert canonical(copy.rows) == canonical(shop.rows)


async def test_what_an_index_is_told_again_changes_nothing(tmp_path: Path) -> None:
    """The first time had no answer, and landed; read again, the log brought less at once."""
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await learn(shop, "a", 2, "new")
            before = canonical(shop.rows)
            await learn(shop, "a", 1, "old")
            assert canonical(shop.rows) == before
            await copy.read(shop)
            assert canonical(copy.rows) == before
