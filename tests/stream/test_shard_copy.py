"""A copy continues whatever the outcome of an append, and ends if another writer has appended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from rowtide.core.records import record
from rowtide.core.rows.mutation import PUT
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import ShardRange
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard import copy as module
from rowtide.stream.shard.copy import CopyLost, ShardCopy, is_complete, row_ranges
from tests.contract.memory_log import Fault, MemoryLog, Pairs
from tests.core.shard_model import NOW_US, table
from tests.stream.test_changelog_flush import columns, open_shop

RECORDS = 5
"""Of the copies here: the options, two rows, options again, and that this is all."""


class Faulty(MemoryLog):
    """A log whose appends meet what ``meets`` says of each, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.meets: list[Callable[[MemoryLog], None]] = []

    async def append(self, entries: Pairs, *, deadline_s: float) -> int:
        if self.meets:
            self.meets.pop(0)(self)
        return await super().append(entries, deadline_s=deadline_s)


def nothing(_log: MemoryLog) -> None:
    """Let an append succeed."""


def fault(kind: Fault) -> Callable[[MemoryLog], None]:
    """Let an append meet a fault."""

    def meet(log: MemoryLog) -> None:
        log.fault = kind

    return meet


def late(log: MemoryLog) -> None:
    """Let what is delayed land just before an append."""
    log.land_late()


@asynccontextmanager
async def copying(path: Path, log: MemoryLog) -> AsyncIterator[ShardCopy]:
    """Copy a sealed shard of two rows, each in a record of its own."""
    async with open_shop(path) as shop:
        for row in "ab":
            await shop.write(PUT, columns(0, 1), row)
        await shop.owner.seal("{}")
        ranges = row_ranges(table(), ShardRange("s1", 0))
        yield ShardCopy(shop.owner, ranges, log, Counts())


@pytest.fixture(autouse=True)
def _small_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPY_BYTES", 1)
    monkeypatch.setattr(module, "RETRY_S", 0.0001)


async def valid(log: MemoryLog) -> list[record.Body]:
    """Return the bodies that count."""
    entries = await log.read(0, bytes_max=1 << 20)
    return [
        record.decode_record(entry.value)[1]
        for entry in entries
        if record.decode_envelope(entry.value).at == entry.offset
    ]


async def copy_all(copy: ShardCopy) -> None:
    """Copy all there is."""
    await copy.base()
    await copy.complete()


async def without_faults(path: Path) -> list[record.Body]:
    """Return what a copy consists of."""
    log = MemoryLog()
    async with copying(path, log) as copy:
        await copy_all(copy)
    found = await valid(log)
    assert len(found) == RECORDS
    return found


@pytest.mark.parametrize("kind", Fault)
@pytest.mark.parametrize("at", range(RECORDS))
async def test_an_append_that_meets_a_fault_is_sent_again_and_counts_once(
    tmp_path: Path, at: int, kind: Fault
) -> None:
    wanted = await without_faults(tmp_path / "wanted")
    log = Faulty()
    log.meets = [*[nothing] * at, fault(kind), fault(kind)]
    async with copying(tmp_path / "faulty", log) as copy:
        await copy_all(copy)
    assert await valid(log) == wanted
    assert await is_complete(log)


@pytest.mark.parametrize("kind", Fault)
async def test_a_shard_that_is_written_meanwhile_is_copied_once_all_the_same(
    tmp_path: Path, kind: Fault
) -> None:
    """The repeated record was another one then, with a later stamp. Its former sender was
    taken for another writer, and the copy given up.
    """
    log = Faulty()
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1), "a")
        copy = ShardCopy(shop.owner, row_ranges(table(), ShardRange("s1", 0)), log, Counts())

        async def append_after_write(entries: Pairs, *, deadline_s: float) -> int:
            await shop.write(PUT, columns(0, 1), "b")
            return await Faulty.append(log, entries, deadline_s=deadline_s)

        log.meets = [nothing, fault(kind), fault(kind)]
        with patch.object(log, "append", append_after_write):
            await copy.base()
        await shop.owner.seal("{}")
        await copy.complete()
    assert await is_complete(log)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("at", range(RECORDS))
async def test_what_lands_late_displaces_nothing(tmp_path: Path, at: int, others: int) -> None:
    """It lands before it is repeated, and is that; or in the place of what follows, and is void."""
    wanted = await without_faults(tmp_path / "wanted")
    log = Faulty()
    log.meets = [*[nothing] * at, fault(Fault.DELAYED), *[nothing] * others, late]
    async with copying(tmp_path / "late", log) as copy:
        await copy_all(copy)
    if log.delayed:
        log.land_late()
    assert await valid(log) == wanted
    assert await is_complete(log)


async def test_a_copy_ends_where_another_has_appended(tmp_path: Path) -> None:
    def another(log: MemoryLog) -> None:
        envelope = record.Envelope(2, 9, b"another8", NOW_US, record.SINGLE)
        body = record.encode_body(record.NoOp())
        log._storage.write([(b"", record.encode_record(envelope, body))])

    log = Faulty()
    log.meets = [nothing, nothing, another]
    async with copying(tmp_path / "ours", log) as copy:
        with pytest.raises(CopyLost):
            await copy_all(copy)
    assert not await is_complete(log)


async def test_a_copy_ends_where_its_log_has_lost_some(tmp_path: Path) -> None:
    log = Faulty()
    log.meets = [nothing, nothing, lambda log: log.truncate(1)]
    async with copying(tmp_path / "short", log) as copy:
        with pytest.raises(CopyLost):
            await copy_all(copy)


async def test_a_copy_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    log = Faulty()
    log.meets = [fault(Fault.REFUSED)] * 10_000
    async with copying(tmp_path / "refused", log) as copy:
        with pytest.raises(Unavailable, match="refused"):
            await copy_all(copy)
