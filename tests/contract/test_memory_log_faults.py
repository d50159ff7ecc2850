"""The faults of the log in memory: one append each, as a broker would have them."""

from __future__ import annotations

import pytest

from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from tests.contract.memory_log import Fault, MemoryLog

SCENARIOS = [
    (Fault.REFUSED, Unavailable, 0),
    (Fault.LOST_REQUEST, OutcomeUnknown, 0),
    (Fault.LOST_ANSWER, OutcomeUnknown, 2),
    (Fault.DELAYED, OutcomeUnknown, 0),
]


@pytest.mark.parametrize(("fault", "failure", "end"), SCENARIOS)
async def test_a_fault_says_what_may_be_assumed_and_meets_one_append(
    fault: Fault, failure: type[Exception], end: int
) -> None:
    log = MemoryLog()
    log.fault = fault
    with pytest.raises(failure):
        await log.append([(b"a", b""), (b"b", b"")], deadline_s=1)
    assert await log.bounds() == (0, end)
    await log.disconnect()
    assert await log.append([(b"c", b"")], deadline_s=1) == end


async def test_a_delayed_batch_lands_whole_behind_later_ones() -> None:
    log = MemoryLog()
    log.fault = Fault.DELAYED
    with pytest.raises(OutcomeUnknown):
        await log.append([(b"a", b""), (b"b", b"")], deadline_s=1)
    await log.twin().append([(b"c", b"")], deadline_s=1)
    assert log.delayed == 1
    assert log.land_late() == 1
    assert [entry.key for entry in await log.read(0, bytes_max=100)] == [b"c", b"a", b"b"]


async def test_an_append_after_an_unknown_outcome_needs_a_disconnect() -> None:
    log = MemoryLog()
    log.fault = Fault.LOST_ANSWER
    with pytest.raises(OutcomeUnknown):
        await log.append([(b"a", b"")], deadline_s=1)
    with pytest.raises(AssertionError, match="disconnect"):
        await log.append([(b"b", b"")], deadline_s=1)


async def test_a_truncated_log_has_lost_what_it_acknowledged() -> None:
    log = MemoryLog()
    await log.append([(b"a", b""), (b"b", b"")], deadline_s=1)
    log.truncate(1)
    assert await log.bounds() == (0, 1)
    assert await log.append([(b"c", b"")], deadline_s=1) == 1
