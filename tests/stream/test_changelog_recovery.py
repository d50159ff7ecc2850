"""What the changelog removes from rows that a shard's log has brought further, and what not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rowtide.core.protocol.plainbuffer import key_piece
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.chunk_merge import encode_deletion
from rowtide.core.rows.fold import RowAddress, is_row_present, put_row
from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import key, variant
from rowtide.core.values.schema import ShardRange
from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.changelog.recovery import StartPassed, recover_rows
from tests.core.shard_model import address, table
from tests.stream.test_changelog_flush import columns

COPIED = ShardRange("s7", 0, floor_us=500, copied=True)
ROW = row_key(1, key.encode([value for _, value in address("a")]))


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[RowStore]:
    store = RowStore(tmp_path / "rows")
    yield store
    store.close()


def write(rows: RowStore, stamp: int, *, mark: int | None = None) -> None:
    """Let the rows have row ``a`` as of a stamp, and a shard's mark of another."""
    piece, state = key_piece(address("a"))
    rows.write(put_row(rows, RowAddress(ROW, piece, state), columns(0, 2), stamp, 1))
    if mark is not None:
        state_ = ShardState(table().options, applied=3, stamp=mark)
        rows.write([], [(mark_key("s7"), encode_mark(state_))])


class OnePage:
    """A changelog of a few entries."""

    def __init__(self, entries: list[ChangelogEntry]) -> None:
        self.position = 0
        self._entries = entries

    async def start(self) -> int:
        return 0

    async def end(self) -> int:
        return len(self._entries)

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        self.position = len(self._entries) if until is None else until
        yield self._entries[from_offset : self.position]


async def is_removed_at(rows: RowStore, stamp: int, *shards: ShardRange) -> bool:
    """Read a changelog that removes the row with a stamp; return whether it is gone."""
    removal = ChangelogEntry(0, ROW, None, [("stamp", b"%d" % stamp)])
    held = [(table(), shard) for shard in shards]
    await recover_rows(rows, OnePage([removal]), lambda _number: True, held)
    return not is_row_present(rows, ROW)


async def test_a_row_that_left_the_slot_is_removed(rows: RowStore) -> None:
    write(rows, 300)
    assert await is_removed_at(rows, 301)


async def test_a_row_that_came_back_stays_though_the_changelog_removed_it_before(
    rows: RowStore,
) -> None:
    write(rows, 300, mark=500)
    assert not await is_removed_at(rows, 301, COPIED)


async def test_a_row_is_removed_that_was_deleted_after_what_the_log_was_folded_to(
    rows: RowStore,
) -> None:
    write(rows, 300, mark=500)
    assert await is_removed_at(rows, 501, COPIED)


async def test_a_row_of_a_copied_shard_that_is_not_here_yet_is_removed(rows: RowStore) -> None:
    write(rows, 300)
    assert await is_removed_at(rows, 301, COPIED)


async def test_what_was_split_from_a_copied_shard_keeps_its_rows(rows: RowStore) -> None:
    write(rows, 300, mark=600)
    ended = replace(COPIED, sealed_us=600, sealed_at=9)
    child = ShardRange("s8", 0, parents=("s7",), floor_us=600)
    assert not await is_removed_at(rows, 301, ended, child)


async def test_rows_of_a_copied_shard_that_left_again_are_removed(rows: RowStore) -> None:
    write(rows, 300, mark=600)
    assert await is_removed_at(rows, 301, replace(COPIED, sealed_us=600, sealed_at=9))


async def test_a_row_outside_of_the_copied_shard_is_removed(rows: RowStore) -> None:
    write(rows, 300, mark=500)
    beyond = key.encode([variant.encode("q")])
    others = (replace(COPIED, begin=beyond), ShardRange("s1", 0, end=beyond))
    assert await is_removed_at(rows, 301, *others)


async def test_a_row_deleted_here_too_goes(rows: RowStore) -> None:
    write(rows, 300, mark=500)
    rows.write([(ROW, encode_deletion(400))])
    assert await is_removed_at(rows, 400, COPIED)
    assert rows.get(ROW) is None


@pytest.mark.parametrize(
    ("stamp", "taken"),
    [(499, False), (500, True), (501, True)],
)
async def test_of_two_marks_at_one_place_the_changelogs_holds(
    rows: RowStore, stamp: int, taken: bool
) -> None:
    """A repair has put another entry there than the rows know of, and noted none."""
    noted = ShardState(table().options, applied=3, stamp=500, entry=7)
    rows.write([], [(mark_key("s7"), encode_mark(noted))])
    changelog_state = ShardState(table().options, applied=3, stamp=stamp)
    page = OnePage([ChangelogEntry(0, mark_key("s7"), encode_mark(changelog_state), [])])
    await recover_rows(rows, page, lambda _: True)
    kept = rows.get(mark_key("s7"))
    assert kept == encode_mark(changelog_state if taken else noted)


def removal(stamp: int) -> ChangelogEntry:
    """Return the tombstone of row ``a`` that was deleted at a stamp."""
    return ChangelogEntry(0, ROW, None, [("stamp", b"%d" % stamp)])


def mark_at(applied: int) -> ChangelogEntry:
    """Return the mark of the copied shard as the changelog has it."""
    state = ShardState(table().options, applied=applied, stamp=500)
    return ChangelogEntry(0, mark_key("s7"), encode_mark(state), [])


async def read(rows: RowStore, *entries: ChangelogEntry) -> None:
    """Read a changelog further, which has the copied shard."""
    page = OnePage([mark_at(0)] * (rows.changelog_position() or 0) + list(entries))
    await recover_rows(rows, page, lambda _: True, [(table(), COPIED)])


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_row_deleted_before_it_came_is_removed_behind_the_mark_of_its_shard(
    rows: RowStore, at_once: bool
) -> None:
    """It was read in its older state. Its delete came with the copy, and was compacted
    away since.
    """
    write(rows, 300)
    if at_once:
        await read(rows, mark_at(3), removal(400))
    else:
        await read(rows, mark_at(3))
        await read(rows, removal(400))
    assert not is_row_present(rows, ROW)


async def test_rows_of_a_part_of_a_copy_are_thrown_away_where_the_changelog_has_the_whole(
    rows: RowStore,
) -> None:
    """Only its log showed which removals were older than it, and that is not read again."""
    write(rows, 300, mark=500)
    with pytest.raises(StartPassed, match="s7"):
        await read(rows, removal(400), mark_at(4))


async def test_so_they_are_where_it_is_read_in_two_parts(rows: RowStore) -> None:
    write(rows, 300, mark=500)
    await read(rows, removal(400))
    with pytest.raises(StartPassed, match="s7"):
        await read(rows, mark_at(4))


@pytest.mark.parametrize(("stamp", "further"), [(500, 3), (501, 4)])
async def test_rows_that_have_all_of_a_copy_go_on_beside_the_changelog(
    rows: RowStore, stamp: int, further: int
) -> None:
    write(rows, 300, mark=stamp)
    await read(rows, removal(301), mark_at(further))
    assert is_row_present(rows, ROW)


CHILD = ShardRange("s8", 0, parents=("s7",), floor_us=600, came=True)
"""What the copied shard became, which the catalog has forgotten since."""


async def test_rows_are_thrown_away_where_a_shard_is_forgotten_that_the_changelog_had_not_told_of(
    rows: RowStore,
) -> None:
    """It showed that a removal was older than it. The row was gone until the changelog
    had it again. The changes that were logged meanwhile made another row of it, without
    its other columns.
    """
    write(rows, 300, mark=600)
    with pytest.raises(StartPassed, match="s7 is forgotten"):
        await is_removed_at(rows, 301, CHILD)
    assert is_row_present(rows, ROW)


async def test_rows_go_on_without_a_forgotten_shard_of_which_the_changelog_had_told(
    rows: RowStore,
) -> None:
    write(rows, 300, mark=600)
    await read(rows, mark_at(3))
    rows.set_changelog_position(0, 0.0)
    assert not await is_removed_at(rows, 299, CHILD)
