"""The rows of one slot that another worker owns, kept warm here.

The changelog is read first, then every shard's log from its mark on, and both are followed; a
shard that others became is followed from when their seals were read. A shard's entries go through
the fold of any replay: groups whole, void ones passed over, rows and mark written together, so what
is here is the fold of the log at the mark, and no transaction is ever half there.

The changelog is never ahead of the logs: it is read up to an end only after every log was read to
an end that was asked for later. So its entries bring nothing new, but for what it alone has: how
far it is complete, and which chunks it has dropped. An end that a deposed broker told is none: what
is ahead of a log is not folded (``stream/slot/standby/standby_reach.py``). Only for a shard whose
log was trimmed below its mark does it bring rows; such a shard is not shown until its log has been
read to its end.

One task runs ``run``. When it has ended the directory is free, for the slot to open on. It ends
without a word to anybody: nothing rests on a standby.
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
"""Between two looks at the changelog."""
FRESH_S_MAX = 30.0
"""How long a round waits for the logs; then the next one begins."""
TOUCH_S = 60.0
"""Between two notes that the rows are as new as the changelog, where it has nothing new."""
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
        """What it knew, by shard, when it ended."""
        self._life = StandbyLife()
        self._path = path
        self._surroundings = surroundings
        self._links = links
        self._reader = surroundings.cluster.changelog_reader(surroundings.topics.changelog, number)
        self._followed = FollowedShards(number, surroundings, links, self.settle)
        self._touched_s = 0.0
        self._lacking_rounds = 0
        self._misled = False
        """Whether what the changelog tells is known to be ahead of what the catalog was read to."""

    # What others ask.

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
    def warm(self) -> bool:
        """Whether the slot can be opened here with little to read."""
        age_s = self.age_s()
        return age_s is not None and age_s < WARM_S

    def age_s(self) -> float | None:
        """Return how old the view of the oldest shard is; None while one has none."""
        if not isinstance(self._life.state, FollowingStandby | FailedStandby):
            return None
        fresh = [shard.fresh_s for shard in self.shards.values() if not shard.ended]
        if None in fresh:
            return None
        now_s = self._links.clock_s()
        return now_s - min((s for s in fresh if s is not None), default=now_s)

    @property
    def lag(self) -> int:
        """Records that the logs had more than the rows, when they were last looked at."""
        return sum(shard.lag for shard in self.shards.values())

    def view(self, shard_id: str, age_s_max: float) -> StandbyShard | None:
        """Return a shard whose rows are complete as of ``age_s_max`` seconds ago, or None."""
        shard = self.shards.get(shard_id)
        if shard is None or shard.fresh_s is None:
            return None
        return shard if self._links.clock_s() - shard.fresh_s <= age_s_max else None

    def settle(self) -> None:
        """Follow what the catalog has now; called whenever it has changed.

        Where the rows can't be read the copy begins again: who follows the catalog goes on.
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
        """Do the same; raise what keeps the rows from being read, now or as somebody met it."""
        self.settle()
        self._require_going()

    def _require_going(self) -> None:
        """Raise what keeps the rows from being read, as somebody met it."""
        if isinstance(state := self._life.state, FailedStandby):
            raise state.failure

    # The one task.

    async def run(self) -> None:
        """Keep the rows warm until cancelled; begin again after whatever fails."""
        backoff_s = BACKOFF_S
        while True:
            began_s = self._links.clock_s()
            try:
                await self._live()
            except (StartPassed, StoreBehind) as error:
                logger.warning("standby of slot %d: %s; rebuilding from Kafka", self.number, error)
                self._throw_away()
            except (StoreError, StoreFailed) as error:
                logger.info("standby of slot %d begins again: %s", self.number, error)
                state = self._life.state
                if isinstance(state, OpenStandby) and state.rows.damaged:  # It would be met again.
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
        # Until it has not grown meanwhile: what was compacted away stands above where we began.
        while (until := await self._reader.end()) != rows.changelog_position():
            # It knows every table that there are entries of up to there.
            await self._links.catalog_read()
            await self._recover(rows, until)
        # A shard that had come by now, and was not heard of, would be followed on rows of before.
        await self._links.catalog_proven()
        coming = find_begun(rows, self._links.coming(self.number))
        if came := unseen(known, [*self._links.tables(self.number), *coming]):
            # Those that come from here on are made room for; see ``FollowedShards.make_room``.
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
            # What is mended and lacks something again at once is not mended all the time.
            await asyncio.sleep(min(LACKING_S * 2**self._lacking_rounds, LACKING_S_MAX))
            if rows.damaged:  # As somebody met who reads here.
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
        """Close the local rows and remove them; the next life rebuilds them."""
        self._close(flush=False)
        with log_failures(f"standby of slot {self.number}"):
            destroy(self._path)

    async def _round(self, rows: RowStore) -> None:
        """Read the changelog as far as the logs were read, and mend what shards lack."""
        # In this order: what is mended was lacking before the end of the changelog was asked for.
        lacking = self._followed.lacking()
        until = await self._reader.end()
        self._lacking_rounds = min(self._lacking_rounds + 1, 20) if lacking else 0
        if until > (rows.changelog_position() or 0) or lacking:
            asked_s = self._links.clock_s()
            links = self._links
            await (links.catalog_proven() if self._misled else links.catalog_read())
            self._misled = False
            self._require_settled()
            if not await self._read_since(asked_s):
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
                # Of shards that lack something nothing is shown: they wait for the next round.
                logger.info("standby of slot %d reads on later: %s", self.number, error)
                return
            for shard in self.shards.values():
                shard.flushed()
            await self._mend(lacking, until)
        elif self._links.clock_s() - self._touched_s > TOUCH_S:
            rows.set_changelog_position(until, time.time())
        else:
            return
        self._touched_s = self._links.clock_s()

    def _hide(self, shards: Collection[StandbyShard]) -> None:
        """Show shards no more whose rows go: they are elsewhere, which the catalog did not tell."""
        self._misled = True
        for shard in shards:
            if shard.ended:
                shard.leave()
            else:
                shard.lack("its rows are removed, as of one that is another slot's by now")
        self._followed.wake.set()

    async def _mend(self, lacking: Collection[StandbyShard], until: int) -> None:
        """Let shards go on that have what the changelog has of them, which was read ``until``.

        Where it has grown since then, entries of theirs may have been compacted away for others
        that were not read: a mark without its rows, or rows without their mark.
        """
        if lacking and await self._reader.end() != until:
            self._followed.wake.set()
            return
        for shard in lacking:
            if self.shards.get(shard.place.shard_id) is shard:
                shard.mend(self._links.table_known)

    async def _recover(self, rows: RowStore, until: int) -> None:
        """Read the changelog up to ``until``. Raises ``Unavailable`` where it is ahead of a log."""
        shards, known = self._links.tables(self.number), self._links.table_known
        is_open = isinstance(self._life.state, FollowingStandby | FailedStandby)
        require_read = Reach(self.shards.values()).require if is_open else None
        await recover_rows(
            rows, self._reader, known, shards, until=until, require_read=require_read
        )

    async def _read_since(self, asked_s: float) -> bool:
        """Wait until every log is read to an end asked for since; False where that takes long.

        Those that need the changelog, or the catalog, to go on are not waited for. Raises what was
        met meanwhile that keeps the rows from being read: no log is read any more then.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_S_MAX):
                while not self._followed.read_since(asked_s):
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
            self.left = {name: shard.unflushed() for name, shard in self.shards.items()}
        self._followed.clear()
        if isinstance(state, OpenStandby):
            self._life.move(StandbyEvent.CLOSE, ClosedStandby())
            try:
                state.rows.close(flush=flush)
            except StoreFailed as error:
                logger.warning("closing %s: %s", self._path, error)
