"""The rows of ``rowtide_dashboard_state``: what a build of a dashboard keeps of each source shard.

A *part* is the partition key: dashboard, build and source shard. So all rows of a part are in one
shard of the state table, at any time. A write of a part is one group of that shard's log: groups
of panels together with the position that they stand for.

Writes have positions of a source (docs/guides/source-writes.md) that begin with a *term*, the
counter of the reader's lease when it took the shard. The owner drops what is not above the stored
position. So once a reader has written its fence, no earlier reader can change the part, and what it
reads then stays. A repeated write has no effect.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from rowtide.client.changes.own_tables import make_table
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.endpoint import Endpoint
from rowtide.client.failures import failure_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.core.values.key_ranges import Ranges
from rowtide.core.values.schema import BINARY, STRING
from rowtide.core.values.variant import Scalar

__all__ = [
    "ROWS_MAX",
    "STATE_TABLE",
    "PartPosition",
    "PartRows",
    "PartWriter",
    "StateRow",
    "StateTable",
    "part_of",
]

logger = logging.getLogger(__name__)

STATE_TABLE = "rowtide_dashboard_state"
ROWS_MAX = 200
"""Rows of one write. A worker evaluates so many at once, as one group of the log."""

RETRY_S = 0.2
POSITIONS_MAX = 100
"""Rows that one request may name."""

SETTLED_TRIES_MAX = 20
"""Reads of a part that needs several pages, before its changes are called too quick."""

_KEY = (("part", STRING), ("panel", STRING), ("group", BINARY))
_POSITION, _FENCE = b"", b"fence"
"""The groups of the rows without a panel."""

_TERM = Struct(">QQ")


def part_of(dashboard: str, build: str = "", shard_id: str = "") -> str:
    """Return the partition key of a shard, or what those of a build or a dashboard begin with."""
    return f"{dashboard}/{build}/{shard_id}" if build else f"{dashboard}/"


class StateRow(NamedTuple):
    """A row of a part. ``columns`` is None if it is deleted."""

    panel: str
    group: bytes
    columns: Mapping[str, Scalar] | None


_POSITION_KEY = StateRow("", _POSITION, {})


class PartPosition(NamedTuple):
    """What a part stands for: every change up to ``stamp``, but none of the ``pending`` ranges.

    ``position`` is an iterator of the stream, at which the next change is read.
    """

    position: str
    stamp: int
    pending: Ranges

    def row(self) -> StateRow:
        """Return the row that stores it."""
        pending = json.dumps([[begin.hex(), end.hex()] for begin, end in self.pending])
        columns: dict[str, Scalar] = {"position": self.position, "stamp": self.stamp}
        return StateRow("", _POSITION, {**columns, "pending": pending})

    @classmethod
    def parse(cls, columns: Mapping[str, Scalar]) -> PartPosition:
        """Return the position that a row stores."""
        pending = json.loads(str(columns["pending"]))
        ranges = tuple((bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in pending)
        return cls(str(columns["position"]), int(columns["stamp"]), ranges)


class PartRows:
    """The rows of one part, as of one moment."""

    def __init__(self) -> None:
        self.position: PartPosition | None = None
        self.panels: dict[str, dict[bytes, Mapping[str, Scalar]]] = {}
        self.pages = 0
        """Pages in which they came: rows of one page are of one moment."""

    def add(self, panel: str, group: bytes, columns: Mapping[str, Scalar]) -> None:
        """Add a row that was read."""
        if panel:
            self.panels.setdefault(panel, {})[group] = columns
        elif group == _POSITION:
            self.position = PartPosition.parse(columns)


class PartWriter:
    """Writes a part as the reader of ``term``. ``stopping`` ends the retries of a write.

    ``note`` gets the failure of a write that is retried, and None when a write has succeeded.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        part: str,
        term: int,
        stopping: asyncio.Event,
        note: Callable[[StoreError | None], None] = lambda _: None,
    ) -> None:
        self._endpoint = endpoint
        self._part = part
        self._term = term
        self._stopping = stopping
        self._note = note
        self._number = 0

    async def fence(self) -> None:
        """Return once no reader of an earlier term can write the part."""
        await self.write([StateRow("", _FENCE, {"term": self._term})], time_ms=0)

    async def write(self, rows: Sequence[StateRow], *, time_ms: int) -> None:
        """Write all rows or none; retry until it is known. Raises ``Unfinished`` when stopped."""
        assert 0 < len(rows) <= ROWS_MAX, "a write is one group"
        request = pb.BulkImportRequest(table_name=STATE_TABLE, source=self._part)
        for row in rows:
            self._number += 1
            request.rows.add(
                type=pb.DELETE if row.columns is None else pb.PUT,
                row_change=_encode_row(self._part, row),
                position=_TERM.pack(self._term, self._number),
                time_ms=time_ms,
            )
        body = request.SerializeToString()
        while (failure := await self._send(body)) is not None:
            if isinstance(failure, Rejected):
                raise failure
            logger.info("%s: state is written later: %s", self._part, failure)
            self._note(failure)
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._stopping.wait()
                raise Unfinished
            except TimeoutError:
                pass
        self._note(None)

    async def _send(self, body: bytes) -> StoreError | None:
        """Send a write once; return its failure."""
        try:
            answer = await self._endpoint.ask("BulkImport", body)
        except StoreError as error:
            return error
        response = pb.BulkImportResponse.FromString(answer)
        failed = [row.error for row in response.rows if not row.is_ok]
        return failure_of(failed[0].code, failed[0].message) if failed else None


class StateTable:
    """Reads and removes parts, for readers that write none."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def ensure(self) -> None:
        """Create the table if it is missing."""
        options = pb.TableOptions(time_to_live=-1, max_versions=1)
        await make_table(self._endpoint, STATE_TABLE, _KEY, options)

    async def read(self, part: str) -> PartRows:
        """Return one part, which may be empty. Several pages may be of several moments."""
        found = PartRows()
        async for page in self._pages(part, part + "\0"):
            found.pages += 1
            for _, panel, group, columns in page:
                found.add(panel, group, columns)
        return found

    async def read_all(self, prefix: str) -> dict[str, PartRows]:
        """Return the parts that begin with ``prefix``, each as of one moment.

        Raises ``Unavailable`` if a part that needs several pages changes all the time.
        """
        found: dict[str, PartRows] = {}
        async for page in self._pages(prefix, prefix + "\U0010ffff"):
            seen: set[str] = set()
            for part, panel, group, columns in page:
                rows = found.setdefault(part, PartRows())
                rows.pages += part not in seen
                seen.add(part)
                rows.add(panel, group, columns)
        for part, rows in found.items():
            if rows.pages > 1:
                found[part] = await self._read_settled(part)
        return found

    async def read_positions(self, parts: Sequence[str]) -> list[PartPosition | None]:
        """Return the positions of parts, in one request for each 100 of them."""
        found: list[PartPosition | None] = []
        for start in range(0, len(parts), POSITIONS_MAX):
            batch = parts[start : start + POSITIONS_MAX]
            request = pb.BatchGetRowRequest()
            keys = [_encode_row(part, _POSITION_KEY) for part in batch]
            request.tables.add(table_name=STATE_TABLE, primary_key=keys, max_versions=1)
            answer = await self._endpoint.call("BatchGetRow", request, pb.BatchGetRowResponse)
            for row in answer.tables[0].rows:
                if not row.is_ok:
                    raise failure_of(row.error.code, row.error.message)
                stored = plainbuffer.decode_row(row.row) if row.row else None
                found.append(None if stored is None else PartPosition.parse(_columns(stored)))
        return found

    async def _read_settled(self, part: str) -> PartRows:
        """Return a part of several pages, once its position is the same before and after."""
        for _ in range(SETTLED_TRIES_MAX):
            before = await self._read_position(part)
            found = await self.read(part)
            if before is not None and await self._read_position(part) == before:
                return found
        raise Unavailable(f"The state {part} changes too quickly to be read.", "OTSServerBusy")

    async def _read_position(self, part: str) -> PartPosition | None:
        request = pb.GetRowRequest(
            table_name=STATE_TABLE, primary_key=_encode_row(part, _POSITION_KEY), max_versions=1
        )
        response = await self._endpoint.call("GetRow", request, pb.GetRowResponse)
        if not response.row:
            return None
        return PartPosition.parse(_columns(plainbuffer.decode_row(response.row)))

    async def _pages(
        self, begin: str, end: str
    ) -> AsyncIterator[list[tuple[str, str, bytes, Mapping[str, Scalar]]]]:
        """Yield the rows of parts in [begin, end), a page at a time. No table: no rows."""
        request = pb.GetRangeRequest(
            table_name=STATE_TABLE,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=_encode_bound(begin),
            exclusive_end_primary_key=_encode_bound(end),
        )
        while True:
            try:
                response = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            except Rejected as error:
                if error.code == "OTSObjectNotExist":
                    return
                raise
            rows = plainbuffer.decode_rows(response.rows) if response.rows else ()
            yield [(*_decode_key(row), _columns(row)) for row in rows]
            if not response.next_start_primary_key:
                return
            request.inclusive_start_primary_key = response.next_start_primary_key
            request.token = response.next_token

    async def list_builds(self, dashboard: str) -> set[str]:
        """Return the builds of a dashboard that have rows."""
        found: set[str] = set()
        begin, end = f"{dashboard}/", f"{dashboard}0"
        while (part := await self._first_part(begin, end)) is not None:
            build = part.split("/")[1]
            found.add(build)
            begin = f"{dashboard}/{build}0"  # The sign after "/".
        return found

    async def list_parts(self, prefix: str) -> list[str]:
        """Return the parts that begin with ``prefix``, with one small request for each."""
        found: list[str] = []
        begin, end = prefix, prefix + "\U0010ffff"
        while (part := await self._first_part(begin, end)) is not None:
            found.append(part)
            begin = part + "\0"
        return found

    async def _first_part(self, begin: str, end: str) -> str | None:
        """Return the first part in [begin, end) that has rows."""
        request = pb.GetRangeRequest(
            table_name=STATE_TABLE,
            direction=pb.FORWARD,
            max_versions=1,
            limit=1,
            inclusive_start_primary_key=_encode_bound(begin),
            exclusive_end_primary_key=_encode_bound(end),
        )
        try:
            response = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
        except Rejected as error:
            if error.code == "OTSObjectNotExist":
                return None
            raise
        if not response.rows:
            return None
        return _decode_key(plainbuffer.decode_rows(response.rows)[0])[0]

    async def remove(self, prefix: str) -> None:
        """Delete the rows of the parts that begin with ``prefix``."""
        async for page in self._pages(prefix, prefix + "\U0010ffff"):
            for start in range(0, len(page), ROWS_MAX):
                batch = pb.BatchWriteRowRequest()
                rows = batch.tables.add(table_name=STATE_TABLE).rows
                for part, panel, group, _ in page[start : start + ROWS_MAX]:
                    change = _encode_row(part, StateRow(panel, group, None))
                    rows.add(type=pb.DELETE, row_change=change).condition.row_existence = pb.IGNORE
                await self._endpoint.call("BatchWriteRow", batch, pb.BatchWriteRowResponse)


def _encode_row(part: str, row: StateRow) -> bytes:
    values: list[Scalar] = [part, row.panel, row.group]
    key = [(name.encode(), variant.encode(v)) for (name, _), v in zip(_KEY, values, strict=True)]
    cells = [
        plainbuffer.put_cell(name.encode(), variant.encode(value), None)
        for name, value in (row.columns or {}).items()
    ]
    return HEADER + plainbuffer.encode_row(key, cells, deleted=row.columns is None)


def _encode_bound(part: str) -> bytes:
    values = [variant.encode(part), variant.V_INF_MIN, variant.V_INF_MIN]
    names = [name.encode() for name, _ in _KEY]
    return HEADER + plainbuffer.encode_row(list(zip(names, values, strict=True)), [])


def _decode_key(row: plainbuffer.RowChange) -> tuple[str, str, bytes]:
    part, panel, group = (variant.decode(value) for _, value in row.key)
    assert isinstance(part, str), "the table's key has this type"
    assert isinstance(panel, str), "the table's key has this type"
    assert isinstance(group, bytes), "the table's key has this type"
    return part, panel, group


def _columns(row: plainbuffer.RowChange) -> dict[str, Scalar]:
    return {cell.name.decode(): variant.decode(cell.variant) for cell in row.cells}
