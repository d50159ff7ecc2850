"""The Stream API: ListStream, DescribeStream, GetShardIterator, GetStreamRecord.

Times are microseconds, expirations hours. A stream's id is its table's name and the time
when it was enabled. After disabling, enabling again makes another stream. Positions of
the former stream are rejected as trimmed.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.core.rows import capacity
from rowtide.core.shard.reshape import sort_ended
from rowtide.core.values.errors import LogTrimmed, Rejected, Unavailable, invalid
from rowtide.core.values.schema import ShardRange, StreamSettings, Table, check_table_name
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row_answers import stream_answer
from rowtide.stream.api.row_requests import change_selection_of, parse
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.stream_reader import Page, find_stamp, has_stream, horizon, read_page

__all__ = ["StreamOperations"]

HORIZON_US = 1_000_000
"""Time for which a stream's first offset is cached: expiry may show this much late."""

WAIT_S_MAX = 2.0
"""Bound of a request's wait for new records, and so of the delay of a server that stops."""

STREAM_TABLE_NAME_MAX = 238
"""GetStreamRecord alone rejects tables with longer names, as the service does."""


class StreamOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory, counts: Counts | None = None) -> None:
        self._directory = directory
        self._counts = counts or Counts()
        self._horizons = WeakKeyDictionary[ShardOwner, tuple[StreamSettings, int, int]]()

    @answers("ListStream")
    def list_stream(self, identity: Identity, body: bytes) -> bytes:
        """List the enabled streams of one table or of the instance."""
        request = parse(pb.ListStreamRequest, body)
        catalog = self._directory.catalog
        if request.HasField("table_name"):
            check_table_name(request.table_name, self._directory.limits)
            table = catalog.table(identity.instance, request.table_name)
            tables = [] if table is None else [table]
        else:
            tables = catalog.tables_of(identity.instance)
        streams = [
            pb.Stream(
                stream_id=table.stream.stream_id,
                table_name=table.name,
                creation_time=table.stream.enabled_at_us,
            )
            for table in tables
            if table.stream is not None
        ]
        return pb.ListStreamResponse(streams=streams).SerializeToString()

    @answers("DescribeStream")
    def describe_stream(self, identity: Identity, body: bytes) -> bytes:
        """Describe a stream and page through its shards."""
        request = parse(pb.DescribeStreamRequest, body)
        table, stream = self._stream(identity, request.stream_id)
        shards = _shards(table, stream)
        if request.HasField("inclusive_start_shard_id"):
            known = [shard.shard_id for shard in shards]
            if request.inclusive_start_shard_id not in known:
                raise _no_stream()
            shards = shards[known.index(request.inclusive_start_shard_id) :]
        limit = request.shard_limit if request.HasField("shard_limit") else len(shards)
        if limit <= 0:
            raise invalid(f"The shard_limit must be greater than 0, but is {limit}.")
        response = pb.DescribeStreamResponse(
            stream_id=stream.stream_id,
            expiration_time=stream.expiration_hours,
            table_name=table.name,
            creation_time=stream.enabled_at_us,
            stream_status=pb.STREAM_ACTIVE,
            shards=[_shard(s, ranges=request.want_ranges) for s in shards[:limit]],
        )
        if len(shards) > limit:
            response.next_shard_id = shards[limit].shard_id
        return response.SerializeToString()

    @answers("GetShardIterator")
    async def get_shard_iterator(self, identity: Identity, body: bytes) -> bytes:
        """Return a position: the oldest record kept, or the first at or after a time."""
        request = parse(pb.GetShardIteratorRequest, body)
        table, stream = self._stream(identity, request.stream_id)
        shard = next((s for s in _shards(table, stream) if s.shard_id == request.shard_id), None)
        if shard is None:
            beyond = self._directory.catalog.can_exist_unread(request.shard_id)
            raise _no_stream().unless(beyond=beyond)
        owner = self._owner(shard, stream)
        first = await horizon(owner, stream, self._directory.clock_us())
        if request.HasField("timestamp"):
            first = await find_stamp(owner, request.timestamp, first)
        position = Position(shard.shard_id, stream.enabled_at_us, first)
        response = pb.GetShardIteratorResponse(shard_iterator=encode_position(position))
        return response.SerializeToString()

    @answers("GetStreamRecord")
    async def get_stream_record(self, identity: Identity, body: bytes) -> bytes:
        """Return records from a position on; at the end, none and the same position.

        At the end of an ended shard the answer has no position: its children, which are
        listed by then, continue.
        """
        request = parse(pb.GetStreamRecordRequest, body)
        limits = self._directory.limits
        limit = request.limit if request.HasField("limit") else limits.stream_records_default
        if limit <= 0:
            raise invalid(f"The limit must be greater than 0, but is {limit}.")
        position = decode_position(request.shard_iterator)
        selection = change_selection_of(request, limits)
        owner = await self._readable_from(identity, position)
        at_end = position.offset == owner.end
        if request.wait_ms > 0 and at_end and not self._has_ended(owner, position.offset):
            await _more(owner, min(request.wait_ms / 1000, WAIT_S_MAX))
        page = await read_page(
            owner,
            position.offset,
            limit=min(limit, limits.stream_records_default),
            bytes_max=limits.stream_bytes_max,
            selection=selection,
        )
        owner.require_followable()
        units = capacity.units(sum(len(change.row) for change in page.changes))
        self._directory.consumption.count(owner.shard.table, None, units, 0)
        self._counts.stream_reads += 1
        self._counts.stream_records += len(page.changes)
        ended = self._has_ended(owner, page.next_offset)
        answer = _answer(request, position, page, units, ended=ended)
        return answer + _places(page) if request.want_places else answer

    async def _readable_from(self, identity: Identity, position: Position) -> ShardOwner:
        """Return the shard of a position that is still readable."""
        catalog = self._directory.catalog
        found = catalog.shards.get(position.shard_id)
        if found is None or found[0].instance.lower() != identity.instance:
            raise LogTrimmed().unless(beyond=catalog.can_exist_unread(position.shard_id))
        table, shard = found
        _check_name(table)
        stream = table.stream
        if stream is None or stream.enabled_at_us != position.enabled_at_us:
            raise LogTrimmed().unless(beyond=position.enabled_at_us > catalog.stamp)
        owner = self._owner(shard, stream)
        if position.offset < owner.end and position.offset < await self._first(owner, stream):
            raise LogTrimmed()
        return owner

    def _has_ended(self, owner: ShardOwner, offset: int) -> bool:
        """True if a shard has nothing from ``offset`` on, and its children are listed.

        A reader that learns of an end lists the shards once. It may take a stream without
        a listed child for finished.
        """
        seal = owner.shard.state.seal
        if seal is None or offset <= seal.offset:
            return False
        found = self._directory.catalog.shards.get(owner.shard.shard_id)
        return found is None or found[1].sealed_us > 0

    async def _first(self, owner: ShardOwner, stream: StreamSettings) -> int:
        """Return the stream's first readable offset, at most a second old."""
        now_us = self._directory.clock_us()
        known = self._horizons.get(owner)
        if (
            known is not None
            and known[0] == stream
            and 0 <= now_us - known[1] < HORIZON_US  # The clock may have gone back.
        ):
            return known[2]
        first = await horizon(owner, stream, now_us)
        self._horizons[owner] = (stream, now_us, first)
        return first

    def _owner(self, shard: ShardRange, stream: StreamSettings) -> ShardOwner:
        """Return a shard whose log has the beginning of a stream, or ended before it."""
        owner = self._directory.find_followable(shard)
        owner.require_followable()
        if owner.shard.state.seal is None and not has_stream(owner, stream):
            raise Unavailable("The stream is not in force yet.")
        return owner

    def _stream(self, identity: Identity, stream_id: str) -> tuple[Table, StreamSettings]:
        name = stream_id.rpartition("_")[0]
        table = self._directory.catalog.table(identity.instance, name)
        if table is None or table.stream is None or table.stream.stream_id != stream_id:
            raise _no_stream()
        return table, table.stream


def _shards(table: Table, stream: StreamSettings) -> list[ShardRange]:
    """Return the shards of a stream, parents before their children."""
    ended = [s for s in sort_ended(table.ended) if s.sealed_us >= stream.enabled_at_us]
    return [*ended, *table.shards]


def _answer(
    request: pb.GetStreamRecordRequest, position: Position, page: Page, units: int, *, ended: bool
) -> bytes:
    more = bool(page.changes) or not page.at_end
    # Nothing new: the same text, so that a client that waits for it to stop changing
    # ends.
    following = request.shard_iterator
    if ended:
        following = ""
    elif more or request.want_places:
        following = encode_position(position._replace(offset=page.next_offset))
    return stream_answer(page.changes, units, following, more=more, wants_kept=request.want_kept)


async def _more(owner: ShardOwner, wait_s: float) -> None:
    """Wait until more of the log is acknowledged, its end is known, or ``wait_s`` has passed."""
    more = asyncio.Event()
    owner.readers.follow(more)
    try:
        async with asyncio.timeout(wait_s):
            await more.wait()
    except TimeoutError:
        pass
    finally:
        owner.readers.unfollow(more)


def _places(page: Page) -> bytes:
    """Return the records' offsets and stamps: fields of the answer that follow the others."""
    stamps = [change.stamp for change in page.changes]
    placed = pb.GetStreamRecordResponse(stamps=stamps, sequences=page.offsets)
    return placed.SerializeToString()


def _shard(shard: ShardRange, *, ranges: bool) -> pb.StreamShard:
    described = pb.StreamShard(shard_id=shard.shard_id)
    if ranges:
        described.begin, described.end = shard.begin, shard.end
    if shard.parents:
        described.parent_id = shard.parents[0]
    if len(shard.parents) > 1:
        described.parent_sibling_id = shard.parents[1]
    return described


def _check_name(table: Table) -> None:
    if len(table.name) > STREAM_TABLE_NAME_MAX:
        raise invalid(
            f"Invalid stream id: the table name has {len(table.name)} bytes, at most "
            f"{STREAM_TABLE_NAME_MAX} fit."
        )


def _no_stream() -> Rejected:
    return Rejected("OTSObjectNotExist", "Requested stream does not exist.")
