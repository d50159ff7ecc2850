"""A batch that the log rejects, of which nothing was written, affects no other change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rowtide.core.shard.shard_state import options_body
from rowtide.core.values.errors import Rejected, Unavailable
from tests.contract.memory_log import Fault, MemoryLog
from tests.stream.test_owned_transactions import Owned, running

TOO_LARGE = "OTSRequestBodyTooLarge"


class NarrowLog(MemoryLog):
    """A log that takes no batch of more records than ``most``, nor one of the key ``never``."""

    most = 100
    most_after: int | None = None
    """What ``most`` is behind the next batch."""
    refused = 0

    async def append(self, entries: Sequence[tuple[bytes, bytes]], *, deadline_s: float) -> int:
        """Append one batch, see ``Log.append``."""
        if len(entries) > self.most or any(b"never" in value for _, value in entries):
            self.refused += 1
            raise Rejected(TOO_LARGE, "checked before the append")
        if self.most_after is not None:
            self.most = self.most_after
        return await super().append(entries, deadline_s=deadline_s)


async def all_of(owned: Owned, *asked: str) -> list[str]:
    """Write rows at once, in one batch; return each client's answer.

    Each is a change. After ``@`` comes its partition key if it is not that of the others.
    """
    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(owned.write(*text.split("@"))) for text in asked]
    return [task.result() for task in writes]


async def test_a_change_is_refused_alone_and_the_shard_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, NarrowLog()) as owned:
        assert await owned.write("P a=1") == "ok"
        before = owned.rows
        assert await owned.write("P a=1", "never") == TOO_LARGE
        assert owned.rows == before
        assert await owned.write("U b=2") == "ok"
        assert not owned.owner.is_closed


async def test_those_of_its_batch_are_told_what_became_of_them(tmp_path: Path) -> None:
    async with running(tmp_path / "one", NarrowLog()) as owned:
        outcomes = await all_of(owned, "P a=1", "P a=1@never", "U b=2", "U c=3")
        assert outcomes == ["ok", TOO_LARGE, "ok", "ok"]
        assert owned.log.refused == 2, "the batch, then the one"  # type: ignore[attr-defined]
        found = owned.rows
    async with running(tmp_path / "other") as owned:
        assert await all_of(owned, "P a=1", "U b=2", "U c=3") == ["ok"] * 3
        assert columns(owned.rows) == columns(found)


def columns(rows: str) -> list[str]:
    """Return rows as shown without the versions, which are times."""
    return re.findall(r"\w+=\w+", rows)


async def test_a_batch_too_large_for_the_log_is_written_in_smaller_ones(tmp_path: Path) -> None:
    log = NarrowLog()
    log.most = 2
    async with running(tmp_path, log) as owned:
        assert await all_of(owned, "U a=1", "U b=2", "U c=3", "U d=4") == ["ok"] * 4
        assert log.refused == 1
        assert await all_of(owned, "U a=1", "U b=2") == ["ok"] * 2
        assert log.refused == 1, "what follows shares a batch again"


async def test_a_group_is_refused_whole(tmp_path: Path) -> None:
    log = NarrowLog()
    log.most = 2
    async with running(tmp_path, log) as owned:
        assert await owned.batch("U a=1", "U b=2", "U c=3") == TOO_LARGE
        assert owned.rows == "-"
        assert await owned.begin(1) == "ok"
        assert [owned.apply(1, f"U {name}=1") for name in "abc"] == ["ok"] * 3
        assert await owned.commit(1) == TOO_LARGE
        assert await owned.write("U a=1") == "ok", "the partition key is held no more"


async def test_a_hidden_record_that_is_refused_holds_nobody_up(tmp_path: Path) -> None:
    log = NarrowLog()
    async with running(tmp_path, log) as owned:
        log.most = 0
        hidden = owned.owner.submit_hidden(options_body(owned.owner.shard.table))
        with pytest.raises(Unavailable):
            await hidden
        log.most = 1
        assert await owned.write("U b=2") == "ok"


async def test_an_outcome_that_is_unknown_is_no_refusal(tmp_path: Path) -> None:
    log = NarrowLog()
    async with running(tmp_path, log) as owned:
        assert await owned.write("U b=2") == "ok"
        log.fault, log.most_after = Fault.DELAYED, 0
        assert await owned.write("U b=3") == "OTSTimeout"
        assert isinstance(owned.owner.failed, Rejected)
