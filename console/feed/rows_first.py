"""The rows of a table as they are, before the changes that follow: ``begin=rows``.

Rows come in the order of their keys, page by page. A page is exact at a commit stamp of its shard.
Before a page is written, the stream of that shard is read up to the stamp: changes of rows that the
viewer has are written, and changes of later rows are left out, because a later page has them. So
the viewer never sees a row go back in time. Position and next key together say where it is, so a
viewer that reconnects goes on in the middle.
"""

from __future__ import annotations

import asyncio

from rowtide.client.changes.source import RowPage, SourceShard
from rowtide.console.feed.feed_position import TokenTooLong
from rowtide.console.feed.feed_wire import RECORDS
from rowtide.console.feed.stream_reading import RETRIED
from rowtide.console.feed.viewer_walk import ViewerWalk
from rowtide.core.records.change import Change
from rowtide.core.records.position import decode_position
from rowtide.core.values.errors import LogTrimmed, Rejected
from rowtide.core.values.key_ranges import holds

__all__ = ["ROWS_EVENT", "RowsFirst"]

ROWS_EVENT = "rows"
ROWS_MAX = 500
RETRY_S = 0.5


class RowsFirst:
    """Writes the rows from ``walk.rows_from`` on, all or those of one partition key."""

    def __init__(self, walk: ViewerWalk, partition_key: bytes | None) -> None:
        self._walk = walk
        self._partition_key = partition_key
        self._hub = walk.hub
        self._reading = walk.hub.reading

    async def run(self) -> None:
        """Return when all rows are written, or the viewer's feed is over."""
        walk = self._walk
        try:
            while walk.rows_from is not None and not walk.viewer.is_over:
                try:
                    await self._write_page(walk.rows_from)
                except RETRIED:
                    await asyncio.sleep(RETRY_S)
        except LogTrimmed as error:
            await self._hub.tell_end(walk.viewer, await self._hub.find_end(error))
        except Rejected as error:
            walk.viewer.end("end", {"code": "refused", "reason": error.message})
        except TokenTooLong as error:
            walk.viewer.end("end", {"code": "too_many_shards", "reason": str(error)})

    async def _write_page(self, begin: bytes) -> None:
        """Write the next page of rows, in front of which the stream is read up to its stamp."""
        shard = await self._find_shard(begin)
        if shard is None:
            return
        try:
            page = await self._reading.read_rows(shard.shard_id, begin, shard.end, limit=ROWS_MAX)
        except Rejected as error:
            if error.code == "OTSObjectNotExist" and not isinstance(error, LogTrimmed):
                await self._require_table()
                return  # The shard has ended meanwhile.
            raise
        await self._read_changes(shard.shard_id, page.stamp)
        self._write_rows(page, shard)
        await self._walk.viewer.drain()

    async def _require_table(self) -> None:
        """Raise ``LogTrimmed`` if the stream itself is gone."""
        try:
            await self._reading.list_shards()
        except Rejected as error:
            raise LogTrimmed(error.message) from error

    async def _find_shard(self, begin: bytes) -> SourceShard | None:
        """Return the open shard that holds a key, once its parents are read; None: try again."""
        shards = await self._reading.list_shards()
        split = {parent for shard in shards for parent in shard.parents}
        frontier = self._walk.frontier
        for shard in shards:
            if shard.shard_id in split or not holds(((shard.begin, shard.end),), begin):
                continue
            if shard.shard_id in frontier.offsets:
                return shard
        for name in frontier.offsets.keys() & split - frontier.ended:
            await self._read_changes(name, None)
        begun = frontier.find_children(shards)
        children = await self._hub.find_first_offsets(begun, frontier)
        frontier.begin_children(children)
        if not children:
            await self._hub.wait_change()
        return None

    async def _read_changes(self, shard: str, stamp: int | None) -> None:
        """Read a shard up to a stamp, None: to its end. Write the changes of rows already written.

        A read that begins after the page was read and is at the end has all changes of the page.
        """
        frontier = self._walk.frontier
        while shard not in frontier.ended:
            offset = frontier.offsets[shard]
            page = await self._reading.read_changes(shard, offset)
            due = [change for change in page.changes if stamp is None or change.stamp <= stamp]
            is_whole = len(due) == len(page.changes)
            if not is_whole:
                end = page.changes[len(due)].sequence
            elif page.following is not None:
                end = decode_position(page.following).offset
            else:
                end = page.changes[-1].sequence + 1 if page.changes else offset
            has_ended = is_whole and page.following is None
            time_us = due[-1].stamp if due else 0
            frontier.advance(shard, end, time_us, has_ended=has_ended)
            self._write_changes(due)
            await self._walk.viewer.drain()
            if not is_whole or (stamp is not None and page.at_end):
                return

    def _write_changes(self, changes: list[Change]) -> None:
        begin = self._walk.rows_from
        assert begin is not None, "rows are left"
        texts = self._select([change for change in changes if change.key_bytes < begin])
        if texts:
            self._write(RECORDS, b'{"records":[%b]}' % b",".join(texts))

    def _select(self, changes: list[Change]) -> list[bytes]:
        return self._walk.lens.select_all(map(self._reading.record_of, changes))

    def _write_rows(self, page: RowPage, shard: SourceShard) -> None:
        following = page.following or shard.end
        is_done = not following
        if self._partition_key is not None:
            passed = any(row.parts.key[0] != self._partition_key for row in page.rows)
            is_done = is_done or passed
        self._walk.rows_from = None if is_done else following
        texts = self._select(list(page.rows))
        done = b"true" if is_done else b"false"
        self._write(ROWS_EVENT, b'{"rows":[%b],"done":%b}' % (b",".join(texts), done))

    def _write(self, event: str, content: bytes) -> None:
        """Write an event; its id is where the viewer is now, if a token holds the next key."""
        try:
            token = self._walk.make_token()
        except TokenTooLong:
            token = ""
        viewer = self._walk.viewer
        viewer.push(viewer.encoding.encode(event, token, content), token or viewer.token)
