"""ComputeSplitPointsBySize: keys that cut a table into parts for parallel readers.

Rows are measured by reading their chunks, up to ``SCAN_BYTES_MAX`` per request (seconds).
Other requests are served between the slices of a measurement. The rest is estimated from
RocksDB's files, whose borders are the finest cuts there. Sizes are those of names and
values as stored.

RocksDB merges its files at any time. So an estimate uses the files of the moment when the
shard's log first had its present end. An unchanged table is cut at the same keys again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from hashlib import md5
from itertools import groupby
from typing import NamedTuple
from weakref import WeakKeyDictionary

from rowtide.core.cluster.split_points import RowRun, StoredFile, choose, estimate
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import PiecesAnswer, PiecesRequest
from rowtide.core.rows.chunk import DELETED, header, row_end, table_prefix
from rowtide.core.values import key
from rowtide.core.values.errors import Elsewhere, Unavailable, invalid
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.schema import ShardRange, Table, check_table_name
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row_requests import parse
from rowtide.stream.api.table_requests import key_schema
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore

__all__ = ["Forward", "Measure", "Measured", "SplitPointOperations", "files_within"]

UNIT_BYTES = 100 * 1024 * 1024
"""The unit of ``split_size`` unless the request has another."""

POINTS_MAX = 10_000
SCAN_BYTES_MAX = 1024 * 1024 * 1024
SLICE_BYTES = 2 * 1024 * 1024
PIECE_BYTES_MIN = 64 * 1024
PIECES_PER_SPLIT = 16


Forward = Callable[[int, str, Identity, bytes], Awaitable[bytes]]
"""Forwards an operation to a slot's worker; returns its answer."""


class Measured(NamedTuple):
    """A shard's rows in pieces, and the bytes read for the measurement."""

    pieces: list[RowRun]
    read: int


class SplitPointOperations:
    """The handler; it takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory, forward: Forward) -> None:
        self._directory = directory
        self._forward = forward
        self._limits = directory.limits
        self._files = WeakKeyDictionary[ShardOwner, tuple[int, dict[Range, list[StoredFile]]]]()
        """By shard: the end of its log, and the files that had its rows then.

        The files are kept by key range: a local index has the same shards as its table.
        """

    @answers("ComputeSplitPointsBySize")
    async def compute_split_points_by_size(self, identity: Identity, body: bytes) -> bytes:
        """Return cuts of a table into parts of about the requested size."""
        request = parse(pb.ComputeSplitPointsBySizeRequest, body)
        check_table_name(request.table_name, self._limits)
        split_bytes = self._split_bytes(request)
        points_max = _points_max(request)
        table = self._directory.table(identity.instance, request.table_name)
        piece_bytes = max(split_bytes // PIECES_PER_SPLIT, PIECE_BYTES_MIN)
        pieces = await self._pieces(identity, table, piece_bytes)
        points = choose(pieces, split_bytes, points_max)
        self._directory.consumption.count(table, None, 1, 0)
        response = pb.ComputeSplitPointsBySizeResponse(schema=key_schema(table))
        response.consumed.capacity_unit.read = 1
        response.consumed.capacity_unit.write = 0
        names = [name for name, _ in table.key_wire]
        for point in points:
            columns = list(zip(names, key.decode(point), strict=True))
            response.split_points.append(HEADER + plainbuffer.encode_row(columns, []))
        for slot, run in groupby(self._slots(table, points)):
            response.locations.add(location=_location(slot), repeat=len(list(run)))
        return response.SerializeToString()

    def _split_bytes(self, request: pb.ComputeSplitPointsBySizeRequest) -> int:
        unit = UNIT_BYTES
        if request.HasField("split_size_unit_in_byte"):
            unit = request.split_size_unit_in_byte
        if request.split_size <= 0:
            raise invalid("The split_size should be greater than 0.")
        least = self._limits.split_unit_bytes_min
        if unit < least:
            raise invalid(f"The split_size_unit_in_byte should be greater equal than: {least}")
        return request.split_size * unit

    async def _pieces(self, identity: Identity, table: Table, piece_bytes: int) -> list[RowRun]:
        """Return the table's rows in pieces, shard after shard; keys are encoded primary keys."""
        pieces: list[RowRun] = []
        left = SCAN_BYTES_MAX
        for shard in table.shards:
            measured = await self.measure_shard(identity, table, shard, piece_bytes, left)
            pieces += measured.pieces
            left -= measured.read
        return pieces

    async def measure_shard(
        self,
        identity: Identity,
        table: Table,
        shard: ShardRange,
        piece_bytes: int,
        bytes_max: int = SCAN_BYTES_MAX,
    ) -> Measured:
        """Return the pieces of one shard on any worker. Raises ``Unavailable``."""
        try:
            return await self._measure_here(table, shard, piece_bytes, bytes_max)
        except Elsewhere:
            request = PiecesRequest(table.name, shard.shard_id, piece_bytes, bytes_max)
            body = request.encode()
            answer = await self._forward(shard.slot, request.operation, identity, body)
            pieces = PiecesAnswer.decode(answer)
            found = [RowRun(bytes.fromhex(place), size) for place, size in pieces.pieces]
            return Measured(found, pieces.read)

    async def _measure_here(
        self, table: Table, shard: ShardRange, piece_bytes: int, bytes_max: int
    ) -> Measured:
        """Return the pieces of one shard. Raises ``Unavailable``."""
        owner = self._directory.shard(shard)
        owner.require_readable()
        low, high = _bounds(table, shard)
        measure = Measure(
            owner.rows, low, high, piece_bytes, lambda: self._files_of(owner, low, high)
        )
        read = 0
        for size in measure.slices(bytes_max):
            read += size
            await asyncio.sleep(0)
            owner.require_readable()
        return Measured(measure.pieces(), read)

    def _files_of(self, owner: ShardOwner, low: bytes, high: bytes) -> list[StoredFile]:
        """Return the files with rows of a range, as of the shard's first estimate at its end."""
        end, files = self._files.get(owner, (-1, {}))
        if end != owner.end:
            files = {}
            self._files[owner] = owner.end, files
        if (low, high) not in files:
            files[low, high] = files_within(owner.rows, low, high)
        return files[low, high]

    @answers(PiecesRequest.operation)
    async def pieces_request(self, identity: Identity, body: bytes) -> bytes:
        """Measure a shard for another worker."""
        request = PiecesRequest.decode(body)
        table = self._directory.table(identity.instance, request.table)
        shard = table.shard(request.shard)
        if shard is None:
            raise Unavailable
        measured = await self._measure_here(table, shard, request.piece_bytes, request.bytes_max)
        pieces = [(piece.key.hex(), piece.size) for piece in measured.pieces]
        return PiecesAnswer(pieces, measured.read).encode()

    def _slots(self, table: Table, points: Sequence[bytes]) -> Iterator[int]:
        """Yield the slot of every part's first row."""
        catalog = self._directory.catalog
        yield table.shards[0].slot
        for point in points:
            yield catalog.shard_for(table, point).slot


def files_within(rows: RowStore, low: bytes, high: bytes) -> list[StoredFile]:
    """Return the files that may have chunks from ``low`` on, below ``high``."""
    return [file for file in rows.files() if file.end >= low and file.start < high]


class Measure:
    """Measures the rows of one store between two chunk keys; ``files`` returns their files."""

    def __init__(
        self,
        rows: RowStore,
        low: bytes,
        high: bytes,
        piece_bytes: int,
        files: Callable[[], Sequence[StoredFile]],
    ) -> None:
        self._files = files
        self._rows = rows
        self._low = low
        self._high = high
        self._piece_bytes = piece_bytes
        self._pieces: list[RowRun] = []
        self._chunks = self._bytes = 0
        self._behind: bytes | None = None
        """Key of the first chunk that was not read; None if all were read."""

    def slices(self, bytes_max: int) -> Iterator[int]:
        """Read chunks until ``bytes_max`` or the end; yield the bytes of each slice."""
        read = in_slice = 0
        start, size = b"", 0
        for chunk_key, value in self._rows.scan(self._low, self._high):
            if read >= bytes_max:
                self._behind = chunk_key
                break
            if header(value)[3]:
                if size >= self._piece_bytes:
                    self._pieces.append(RowRun(start, size))
                    size = 0
                start = start if size else chunk_key
            self._chunks += 1
            size += _chunk_bytes(value)
            read += len(value)
            in_slice += len(value)
            if in_slice >= SLICE_BYTES:
                yield in_slice
                in_slice = 0
        if size:
            self._pieces.append(RowRun(start, size))
        yield in_slice

    def pieces(self) -> list[RowRun]:
        """Return the pieces with encoded primary keys; unread rows are estimated from files."""
        pieces = list(self._pieces)
        if self._behind is not None:
            pieces += self._estimate_rest(self._behind)
        prefix = len(table_prefix(0))
        return [RowRun(piece.key[prefix:], piece.size) for piece in pieces]

    def _estimate_rest(self, behind: bytes) -> list[RowRun]:
        measured = self._pieces
        total = sum(piece.size for piece in measured)
        entry_bytes = total / self._chunks if self._chunks else float(PIECE_BYTES_MIN)
        pieces: list[RowRun] = []
        for piece in estimate(self._files(), measured, behind, entry_bytes):
            row = self._row_from(piece.key)
            if row is not None and (not pieces or row > pieces[-1].key):
                pieces.append(RowRun(row, piece.size))
        return pieces

    def _row_from(self, chunk_key: bytes) -> bytes | None:
        """Return the key of the first row at or after a chunk key."""
        found = next(self._rows.scan(chunk_key, self._high), None)
        while found is not None and not header(found[1])[3]:
            row = found[0][: len(found[0]) - header(found[1])[8]]
            found = next(self._rows.scan(row_end(row), self._high), None)
        return None if found is None else found[0]


def _chunk_bytes(value: bytes) -> int:
    """Return the bytes that a chunk counts: its cells' names and values, its key's wire bytes."""
    _, flags, _, key_bytes, _, _, _, data_bytes, _ = header(value)
    return 0 if flags & DELETED else key_bytes + data_bytes


def _bounds(table: Table, shard: ShardRange) -> tuple[bytes, bytes]:
    """Return a shard's rows as chunk keys, low <= key < high."""
    prefix = table_prefix(table.table_id)
    high = prefix + shard.end if shard.end else table_prefix(table.table_id + 1)
    return prefix + shard.begin, high


def _points_max(request: pb.ComputeSplitPointsBySizeRequest) -> int:
    if not request.HasField("split_point_limit"):
        return POINTS_MAX
    if request.split_point_limit <= 0:
        raise invalid("The split_point_limit should be greater than 0.")
    return min(request.split_point_limit, POINTS_MAX)


def _location(slot: int) -> str:
    """Return 32 characters that are equal for parts whose rows have one owner."""
    return md5(f"slot {slot}".encode(), usedforsecurity=False).hexdigest()
