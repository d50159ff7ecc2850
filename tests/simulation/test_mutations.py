"""The simulation finds planted faults, each within the given number of seeds.

A fault that random runs rarely find is caught by a story of ``test_interleavings.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import test_deposed as deposed
from tests.simulation import test_found as found
from tests.simulation import test_found_late as found_late
from tests.simulation import test_interleavings as stories
from tests.simulation import test_known_before as known_before
from tests.simulation.edge_mutations import EDGE, EXPIRING, RECLAIMING
from tests.simulation.index_mutations import FOLLOWING
from tests.simulation.local_mutations import LOCAL
from tests.simulation.log_mutations import LOCAL_LOG
from tests.simulation.mutation import Mutation, plant
from tests.simulation.mutations import (
    COPIES,
    DEPOSED,
    MUTATIONS,
    RESHAPING,
    SOURCES,
)
from tests.simulation.program import Found, simulate

QUICK = 10
"""Faults found within so many seeds are planted in every run of the tests, but for ``LATER``."""
LATER = frozenset(
    {
        "forget the stamps that were replayed",
        "serve reads without a lease",
        "show a copy that lags behind its log's end",
    }
)
"""Faults that the first three seeds do not find. Each takes as long as ten others."""


STORIES: dict[str, Callable[[], None]] = {
    "unfence the changelog": stories.test_a_paused_owners_flush_after_its_successors_flush_and_trim,
    "refuse before what was seen is valid": (
        stories.test_a_refusal_that_rests_on_a_change_which_does_not_stand_yet
    ),
    "settle without a no-op": stories.test_a_batch_that_lands_between_two_tries_of_its_writer,
    "skip the lease wait": (stories.test_a_claim_is_good_once_the_former_owners_lease_has_ended),
    "refuse without a lease": stories.test_a_refusal_by_a_zombie_that_knows_an_old_row,
    "let a release hide an older lease": stories.test_a_release_that_hides_an_older_live_lease,
    "flush a parent while its child's log is read": found.a_flush_in_the_middle_of_opening,
    "flush before all that is dirty is known": (
        found.test_what_a_life_of_the_slot_folded_of_a_copy_the_next_flushes_once_it_knows_all_of_it
    ),
    "read the logs of those alone that had ended before": (
        found.test_what_a_former_owner_ends_as_the_next_one_opens_is_read_to_its_end
    ),
    "believe what a deposed leader tells of the leases": (
        deposed.test_a_former_owner_that_hears_nothing_of_its_successor_does_not_fence_it
    ),
    "believe what a deposed leader tells of the catalog": (
        deposed.test_a_slot_does_not_open_by_a_catalog_of_before
    ),
    "believe what a deposed leader tells of the changelog": (deposed.check_shard_stays_open),
    "read the changelog further than a log": (
        deposed.test_a_copy_does_not_read_the_changelog_further_than_its_log
    ),
    "answer a range by other shards": (
        known_before.test_a_range_is_not_answered_by_a_worker_whose_shards_are_others_by_now
    ),
    "bury what others deleted": (
        found_late.test_no_grave_is_flushed_of_a_row_that_another_shard_has_still_to_flush
    ),
}
"""Faults that random runs find too seldom, and what catches them."""


def first_found(mutation: Mutation) -> int | None:
    """Return the first seed that finds a fault.

    A name or an argument that is no more is a fault of this file, and finds nothing.
    """
    for seed in range(mutation.every, mutation.seeds_max + 1, mutation.every):
        try:
            with plant(mutation):
                simulate(mutation.behind + seed)
        except Found as found:
            if isinstance(found.__cause__, TypeError | AttributeError | NameError):
                raise
            return seed
    return None


def cases(*, quick: bool) -> list[Mutation]:
    """Return the faults that are found soon, or the others."""
    shards = (*MUTATIONS, *RESHAPING, *SOURCES, *COPIES)
    every = (*shards, *EDGE, *RECLAIMING, *FOLLOWING, *EXPIRING, *LOCAL, *LOCAL_LOG)
    planted_ones = [m for m in every if m.name not in STORIES]
    return [m for m in planted_ones if (m.seeds_max <= QUICK and m.name not in LATER) == quick]


@pytest.mark.parametrize("mutation", cases(quick=True), ids=lambda m: m.name)
def test_a_planted_fault_is_found_soon(mutation: Mutation) -> None:
    assert first_found(mutation) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutation", cases(quick=False), ids=lambda m: m.name)
def test_a_planted_fault_is_found(mutation: Mutation) -> None:
    assert first_found(mutation) is not None


@pytest.mark.parametrize("name", STORIES)
def test_a_planted_fault_is_caught_by_a_story(name: str) -> None:
    [mutation] = [
        m for m in (*MUTATIONS, *RESHAPING, *DEPOSED, *EDGE, *RECLAIMING) if m.name == name
    ]
    with plant(mutation), pytest.raises((AssertionError, TimeoutError)):
        STORIES[name]()
