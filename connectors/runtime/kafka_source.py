"""Changes of a table read from its shards' logs in Kafka, for readers inside the
platform.

Lineage, positions and rows come from the API, so positions are the same as for other
readers. Void and hidden records are skipped, as in the Stream API. A record never
changes, so the owner of the shard does not matter. Filter and projection are evaluated
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rowtide.client.changes.api import ApiSource, ChangeStream
from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    UPDATE,
    Change,
    ChangeTable,
    Kind,
    LoggedChange,
)
from rowtide.core.records.change_selection import ChangeSelection
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.core.values.errors import LogTrimmed
from rowtide.core.values.limits import Limits
from rowtide.stream.api.row_requests import change_selection_of
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.group_offsets import GroupOffsets
from rowtide.stream.log.log import Entry
from rowtide.stream.log.topics import TopicNames

__all__ = ["KafkaSource"]

FETCH_BYTES = 2 * 1024 * 1024
"""Bytes of one fetch, which bounds the memory of one shard."""

_KIND_OF: dict[type, Kind] = {
    record.PutBody: PUT_ROW,
    record.UpdateBody: UPDATE,
    record.DeleteBody: DELETE,
}
_KINDS = {branch: _KIND_OF[body] for branch, body in record.CHANGES.items()}
"""Kinds by the branch of the body in the schema's union."""

_OPTIONS, _SEAL = 8, 12


@dataclass(slots=True)
class _Fetched:
    """What remains of one fetch.

    ``offset`` is where it begins, ``following`` where the next fetch begins.
    """

    offset: int
    changes: list[Change]
    following: int
    ended: bool = False


class KafkaSource:
    """The stream that ``api`` names, read from the logs in ``cluster``."""

    def __init__(self, api: ApiSource, cluster: KafkaCluster) -> None:
        self.api = api
        self._cluster = cluster
        self._names = TopicNames(cluster.config.topic_prefix, "")
        self._fetched: dict[str, _Fetched] = {}
        self._groups: dict[str, GroupOffsets] = {}
        self._ends: dict[str, int] = {}
        """End offsets of shards that were read to their end."""
        wanted = pb.GetStreamRecordRequest(columns_to_get=api.columns, filter=api.filter or None)
        self._selection = change_selection_of(wanted, Limits())

    async def table_name(self) -> str:
        """Return the table's name."""
        return await self.api.table_name()

    async def now_us(self) -> int:
        """Return the server's time in Unix microseconds."""
        return await self.api.now_us()

    async def shards(self) -> list[SourceShard]:
        """Return the shards, see ``ChangeSource.shards``."""
        return await self.api.shards()

    async def position(self, shard_id: str, since_us: int | None) -> str:
        """Return a position, see ``ChangeSource.position``."""
        return await self.api.position(shard_id, since_us)

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        """Return rows, see ``ChangeSource.rows``."""
        return await self.api.rows(shard_id, begin, end, limit=limit)

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        """Return changes, see ``ChangeSource.read``."""
        at = decode_position(position)
        fetched = self._fetched.pop(at.shard_id, None)
        if fetched is None or fetched.offset != at.offset:
            fetched = await self._fetch(at, wait_s)
        changes = fetched.changes
        if len(changes) > limit:
            rest = changes[limit:]
            fetched.offset, fetched.changes = rest[0].sequence, rest
            self._fetched[at.shard_id] = fetched
            return ChangePage(changes[:limit], _text(at, fetched.offset), at_end=False)
        if fetched.ended:
            self._ends[at.shard_id] = fetched.following
            return ChangePage(changes, None, at_end=True)
        at_end = fetched.following == at.offset
        return ChangePage(changes, _text(at, fetched.following), at_end)

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        """Commit the positions as the group's offsets, see ``ChangeSource.report_positions``."""
        group = self._groups.setdefault(consumer, GroupOffsets(self._cluster.brokers, consumer))
        found = {at.shard_id: at.offset for at in map(decode_position, positions)}
        ends, self._ends = self._ends, {}
        offsets = {self._names.shard(name): at for name, at in (found | ends).items()}
        await group.commit(offsets)

    async def _fetch(self, at: Position, wait_s: float) -> _Fetched:
        stream = await self.api.stream()
        if at.enabled_at_us != stream.enabled_at_us:
            raise LogTrimmed
        log = self._cluster.log(self._names.shard(at.shard_id))
        entries = await log.read(at.offset, bytes_max=FETCH_BYTES, wait_s=wait_s)
        fetched = _Fetched(at.offset, [], at.offset)
        self._take(entries, at, stream, fetched)
        return fetched

    def _take(
        self, entries: Sequence[Entry], at: Position, stream: ChangeStream, fetched: _Fetched
    ) -> None:
        """Add the stream's changes among ``entries``, up to the end of the shard or the stream."""
        table, shard, read_envelope = stream.table, at.shard_id, record.read_envelope
        changes = fetched.changes
        for offset, _, value in entries:
            (valid_at, _, _, stamp, _), begin = read_envelope(value)
            if valid_at == offset:
                kind = _KINDS.get(value[begin])
                if kind is not None:
                    changes.append(
                        LoggedChange(kind, table, shard, offset, stamp, value=value, at=begin)
                    )
                elif value[begin] == _SEAL:
                    fetched.ended = True
                    fetched.following = offset + 1
                    break
                elif value[begin] == _OPTIONS and not _is_of(stream, value, begin):
                    if offset == at.offset:
                        raise LogTrimmed
                    break  # Earlier entries still belong to the stream.
            fetched.following = offset + 1
        if self._selection is not None:
            fetched.changes = [c for c in changes if _reduce_change(c, table, self._selection)]


def _text(at: Position, offset: int) -> str:
    return encode_position(at._replace(offset=offset))


def _is_of(stream: ChangeStream, value: bytes, begin: int) -> bool:
    """True if options that took effect enable this stream."""
    body = record.decode_body(value, begin)
    assert isinstance(body, record.Options), "its kind was seen"
    return body.stream is not None and body.stream.id == stream.id


def _reduce_change(change: Change, table: ChangeTable, selection: ChangeSelection) -> bool:
    """Reduce a change to the selected columns. True if anything is left."""
    key = list(zip(table.key_names, change.parts.key, strict=True))
    kept = selection.choose(key, change.cells, merges=change.kind == UPDATE)
    if kept is None:
        return False
    change.narrow(kept)
    return True
