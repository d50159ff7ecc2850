"""Runs that broke an invariant after thousands that did not, each with what it came of."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import patch

from rowtide.stream.measures.counts import Counts
from rowtide.stream.slot.changelog.changelog import SlotChangelog
from rowtide.stream.slot.changelog.flush import ChangelogFlush
from rowtide.stream.slot.changelog.flush_scope import FlushScope
from tests.simulation.program import simulate


def test_a_row_that_its_parent_shard_deleted_keeps_its_stamped_delete_until_that_is_flushed() -> (
    None
):
    """The reclaimer of the child handed it to the flush: the changelog had but its tombstone.

    A worker that had read that, and died as it read the parent's log again, had the row for good.
    """
    simulate(7720113)


def test_no_grave_is_flushed_of_a_row_that_another_shard_has_still_to_flush() -> None:
    """What that run found, of the part alone: runs come to it once in some 16,000."""
    graves = {b"r ours": 7, b"r our parent's": 8}
    buried: dict[bytes, int] = {}

    async def story() -> None:
        changelog = SlotChangelog(0, cast(Any, None), cast(Any, None), Counts())
        with patch.object(ChangelogFlush, "bury", lambda _self, asked: buried.update(asked)):
            changelog.open(cast(Any, None))
            await changelog.bury(lambda: FlushScope([], [(b"r our", b"r our~")]), graves)
            assert not buried
            await changelog.bury(lambda: FlushScope([], [(b"r our ", b"r our!")]), graves)
            assert buried == {b"r ours": 7}

    asyncio.run(story())


def test_a_commit_stands_whose_shard_is_behind_what_was_read_of_the_catalog() -> None:
    """Its id was given out in what was read, and the shard was made behind it."""
    simulate(7720008)


def test_an_index_follows_the_children_of_a_shard_whose_whole_log_was_trimmed_before_it() -> None:
    """The index waited for the parent's end, of which there was nothing to read: for ever."""
    simulate(8720109)


def test_a_stream_that_is_trimmed_while_it_is_read_to_its_end_is_read_anew() -> None:
    """The simulation itself read on from where the log had begun a moment before."""
    simulate(8900036)
    simulate(8900184)


def test_an_index_goes_on_where_a_log_was_trimmed_above_what_it_had_read_in_vain() -> None:
    """The trim had been decided before there was an index: it took the log for lost."""
    simulate(8901028)


def test_a_copy_does_not_show_a_shard_as_new_that_went_to_another_slot() -> None:
    """Deposed leaders reported an end of its log before its seal; its rows had been
    removed by then.
    """
    simulate(4910319)


def test_what_a_transaction_wrote_is_not_hidden_behind_it_where_a_clock_went_back() -> None:
    """Its versions were of the time ahead; then a no-op was folded, the stamps began again at that
    one's, and whatever was written after the commit had older versions than what it replaced."""
    simulate(6980063)
