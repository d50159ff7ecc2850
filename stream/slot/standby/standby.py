"""The rows of one slot that another worker owns, kept warm here.

The changelog is read first, then every shard's log from its mark on, and both are followed.
The children of a shard are followed once its seal was read. A shard's entries go through the
same fold as any replay: groups whole, void entries skipped, rows and mark written together.
So the rows here are the fold of the log at the mark, and never have half a transaction.

The changelog is never ahead of the logs. It is read up to an end only after every log was
read to an end that was requested later. So its entries bring nothing new, except what it
alone has: how far it is complete, and which chunks it has dropped. An end that a deposed
broker reported does not count: entries ahead of a log are not folded
(``stream/slot/standby/standby_reach.py``). The changelog brings rows only for a shard whose
log was trimmed below its mark. Such a shard is not shown until its log has been read to its
end.

One task runs ``run``. When it has ended, the directory is free for the slot to open on. It
ends without a report, because nothing depends on a standby.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.shard.row_store import RowStore, StoreFailed, destroy
from rowtide.stream.slot.changelog.recovery import StartPassed, recover_rows
from rowtide.stream.slot.failures import StoreBehind, log_failures
from rowtide.stream.slot.local_rows import find_begun, find_known_shards, local_rows, unseen
from rowtide.stream.slot.standby.followed_shards import FollowedShards
from rowtide.stream.slot.standby.standby_life import (
    CatchingUpStandby,
    ClosedStandby,
    FailedStandby,
    FollowingStandby,
    OpenStandby,
    StandbyEvent,
    StandbyLife,
)
from rowtide.stream.slot.standby.standby_links import StandbyLinks
from rowtide.stream.slot.standby.standby_reach import Reach, Removed
from rowtide.stream.slot.standby.standby_shard import StandbyShard, Unflushed
from rowtide.stream.slot.surroundings import Surroundings

__all__ = ["Standby"]

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 4 * 1024 * 1024
BACKOFF_S = 0.5
BACKOFF_S_MAX = 10.0
ROUND_S = 1.0
"""Interval of the checks for new entries in the changelog."""
FRESH_S_MAX = 30.0
"""Time for which a round waits for the logs; then the next one begins."""
TOUCH_S = 60.0
"""Interval of notes that the rows equal the changelog, while it has nothing new."""
LACKING_S = 0.01
LACKING_S_MAX = 5.0
SWEEP_ROUNDS = 30
WARM_S = 3.0
"""A view older than this does not count as warm."""


class Standby:
    """A slot's rows on a worker that does not own it."""

    def __init__(
        self,
        number: int,
        path: Path,
        surroundings: Surroundings,
        links: StandbyLinks,
    ) -> None:
        self.number = number
        self.left: dict[str, Unflushed] = {}
        """Its knowledge of each shard when it ended, by shard id."""
        self._life = StandbyLife()
        self._path = path
        self._surroundings = surroundings
        self._links = links
        self._reader = surroundings.cluster.changelog_reader(surroundings.topics.changelog, number)
        self._followed = FollowedShards(number, surroundings, links, self.settle)
        self._touched_s = 0.0
        self._lacking_rounds = 0
        self._misled = False
        """True if the changelog is known to be ahead of the catalog as it was read."""

    # Calls from other parts.

    @property
    def rows(self) -> RowStore | None:
        """The open rows, or None in a closed standby."""
        state = self._life.state
        return state.rows if isinstance(state, OpenStandby) else None

    @property
    def shards(self) -> dict[str, StandbyShard]:
        """The shards that are followed, by id."""
        return self._followed.by_id

    @property
    def is_warm(self) -> bool:
        """True if the slot can be opened here with little to read."""
        age_s = self.age_s()
        return age_s is not None and age_s < WARM_S

    def age_s(self) -> float | None:
        """Return the age of the oldest shard's view; None while a shard has none."""
        if not isinstance(self._life.state, FollowingStandby | FailedStandby):
            return None
        fresh = [shard.fresh_s for shard in self.shards.values() if not shard.has_ended]
        if None in fresh:
            return None
        now_s = self._links.clock_s()
        return now_s - min((s for s in fresh if s is not None), default=now_s)

    @property
    def lag(self) -> int:
        """The number of records that the logs had more than the rows, at their last reads."""
        return sum(shard.lag for shard in self.shards.values())

    def view(self, shard_id: str, age_s_max: float) -> StandbyShard | None:
        """Return a shard whose rows are complete as of ``age_s_max`` seconds ago, or None."""
        shard = self.shards.get(shard_id)
        if shard is None or shard.fresh_s is None:
            return None
        return shard if self._links.clock_s() - shard.fresh_s <= age_s_max else None

    def settle(self) -> None:
        """Follow the catalog's present shards; called at each change of the catalog.

        If the rows cannot be read, this does not raise: the standby starts again, and the
        follower of the catalog continues.
        """
        if not isinstance(state := self._life.state, FollowingStandby):
            return
        try:
            self._followed.settle(state.rows)
        except StoreFailed as error:
            self._life.move(StandbyEvent.FAIL, FailedStandby(state.rows, error))
            self._followed.leave()
            self._followed.moved.set()
            self._followed.wake.set()

    def _require_settled(self) -> None:
        """Call ``settle``; raise the error of a failed read of the rows, now or earlier."""
        self.settle()
        self._require_going()

    def _require_going(self) -> None:
        """Raise the error of an earlier failed read of the rows."""
        if isinstance(state := self._life.state, FailedStandby):
            raise state.failure

    # The one task.

    async def run(self) -> None:
        """Keep the rows warm until cancelled; start again after any failure."""
        backoff_s = BACKOFF_S
        while True:
            began_s = self._links.clock_s()
            try:
                await self._live()
            except (StartPassed, StoreBehind) as error:
                logger.warning("standby of slot %d: %s; rebuilding from Kafka", self.number, error)
                self._throw_away()
            except (StoreError, StoreFailed) as error:
                logger.info("standby of slot %d: failed, starting again: %s", self.number, error)
                state = self._life.state
                # The next life would meet the damage too.
                if isinstance(state, OpenStandby) and state.rows.damaged:
                    self._throw_away()
            finally:
                self._close()
            if self._links.clock_s() - began_s > BACKOFF_S_MAX:
                backoff_s = BACKOFF_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)

    async def _live(self) -> None:
        rows = self._open_rows()
        self._life.move(StandbyEvent.OPEN_ROWS, CatchingUpStandby(rows))
        known = find_known_shards(rows)
        # Until it has not grown meanwhile: compaction may have moved a key's entry above the
        # end that we read to.
        while (until := await self._reader.end()) != rows.changelog_position():
            # The catalog has every table with entries up to there.
            await self._links.catalog_read()
            await self._recover(rows, until)
        # A shard that has come by now, unread, would be followed on older rows.
        await self._links.catalog_proven()
        coming = find_begun(rows, self._links.coming(self.number))
        if came := unseen(known, [*self._links.tables(self.number), *coming]):
            # For later arrivals, older rows are removed; see ``FollowedShards.make_room``.
            raise StoreBehind(f"{self._path} has not seen these come: {', '.join(came)}")
        self._life.move(StandbyEvent.CATCH_UP, FollowingStandby(rows))
        self._require_settled()
        logger.info("slot %d is kept warm here, %d shards", self.number, len(self.shards))
        for count in range(1, 1 << 62):
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await self._followed.wake.wait()
            self._followed.wake.clear()
            self._require_going()
            # A shard that lacks entries again at once is restored after growing pauses.
            await asyncio.sleep(min(LACKING_S * 2**self._lacking_rounds, LACKING_S_MAX))
            if rows.damaged:  # Another reader of the rows noted it.
                raise StoreBehind(f"{self._path}: {rows.damaged}")
            await self._round(rows)
            if count % SWEEP_ROUNDS == 0:
                await self._sweep(rows)

    def _open_rows(self) -> RowStore:
        return local_rows(
            self._path,
            kept_s=self._surroundings.settings.changelog_kept_s,
            write_buffer_bytes=WRITE_BUFFER_BYTES,
        )

    def _throw_away(self) -> None:
        """Close the local rows and delete them; the next life rebuilds them."""
        self._close(flush=False)
        with log_failures(f"standby of slot {self.number}"):
            destroy(self._path)

    async def _round(self, rows: RowStore) -> None:
        """Read the changelog as far as the logs were read, and restore shards that lack entries."""
        # In this order: a restored shard was lacking before the changelog's end was requested.
        lacking = self._followed.lacking()
        until = await self._reader.end()
        self._lacking_rounds = min(self._lacking_rounds + 1, 20) if lacking else 0
        if until > (rows.changelog_position() or 0) or lacking:
            asked_s = self._links.clock_s()
            links = self._links
            await (links.catalog_proven() if self._misled else links.catalog_read())
            self._misled = False
            self._require_settled()
            if not await self._wait_for_logs(asked_s):
                return
            self._require_going()
            for shard in self._followed.lacking():
                await self._followed.make_room(shard, rows)
            try:
                await self._recover(rows, until)
            except Removed as error:
                self._hide(error.shards)
                return
            except Unavailable as error:
                # Shards that lack entries are not shown: they wait for the next round.
                logger.info("standby of slot %d: cannot read on, retrying: %s", self.number, error)
                return
            for shard in self.shards.values():
                shard.note_flush()
            await self._mend(lacking, until)
        elif self._links.clock_s() - self._touched_s > TOUCH_S:
            rows.set_changelog_position(until, time.time())
        else:
            return
        self._touched_s = self._links.clock_s()

    def _hide(self, shards: Collection[StandbyShard]) -> None:
        """Hide shards whose rows are removed: they moved, and our catalog does not have that."""
        self._misled = True
        for shard in shards:
            if shard.has_ended:
                shard.leave()
            else:
                shard.lack("its rows are removed: it may have moved to another slot")
        self._followed.wake.set()

    async def _mend(self, lacking: Collection[StandbyShard], until: int) -> None:
        """Resume shards that lacked entries: the changelog, read up to ``until``, had them.

        If it has grown since, compaction may have replaced some of their entries by later
        ones, which were not read: a mark without its rows, or rows without their mark.
        """
        if lacking and await self._reader.end() != until:
            self._followed.wake.set()
            return
        for shard in lacking:
            if self.shards.get(shard.place.shard_id) is shard:
                shard.mend(self._links.table_known)

    async def _recover(self, rows: RowStore, until: int) -> None:
        """Read the changelog up to ``until``. Raises ``Unavailable`` if it is ahead of a log."""
        shards, known = self._links.tables(self.number), self._links.table_known
        is_open = isinstance(self._life.state, FollowingStandby | FailedStandby)
        require_read = Reach(self.shards.values()).require if is_open else None
        await recover_rows(
            rows, self._reader, known, shards, until=until, require_read=require_read
        )

    async def _wait_for_logs(self, asked_s: float) -> bool:
        """Wait until every log is read to an end requested since; False if that takes too long.

        Shards that need the changelog or the catalog to continue are not waited for. Raises the
        error of a failed read of the rows meanwhile: then no log is read any more.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_S_MAX):
                while not self._followed.has_read_since(asked_s):
                    self._followed.moved.clear()
                    await self._followed.moved.wait()
                    self._require_going()
                return True
        return False

    async def _sweep(self, rows: RowStore) -> None:
        """Remove rows of dropped tables; their owner removes them from the changelog."""
        while keys := rows.find_left_over(self._links.table_known):
            rows.take([(key, None) for key in keys])
            await asyncio.sleep(0.05)

    def _close(self, *, flush: bool = True) -> None:
        self._followed.leave()
        state = self._life.state
        if isinstance(state, FollowingStandby | FailedStandby):
            self.left = {name: shard.list_unflushed() for name, shard in self.shards.items()}
        self._followed.clear()
        if isinstance(state, OpenStandby):
            self._life.move(StandbyEvent.CLOSE, ClosedStandby())
            try:
                state.rows.close(flush=flush)
            except StoreFailed as error:
                logger.warning("closing %s: %s", self._path, error)
