"""The bodies of calls between workers, as typed messages.

Workers of two versions run side by side during an upgrade, so the bytes must not change. A message
is JSON: an object of its fields, or a list of them for some classes. A reader ignores fields that
it does not know. Two messages are bytes, see ``PartRequest`` and ``KeyAnswer``.

A class with ``operation`` is the request of that operation, see ``operations.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from struct import Struct
from typing import Any, ClassVar, Self

__all__ = [
    "BeginCopyRequest",
    "ConsumptionAnswer",
    "ConsumptionRequest",
    "ExportPartRequest",
    "FarewellRequest",
    "FinishIndexRequest",
    "FinishReshapeRequest",
    "ForgetShardRequest",
    "HandOverRequest",
    "IndexStateAnswer",
    "IndexStateRequest",
    "KeyAnswer",
    "LeavingAnswer",
    "LeavingRequest",
    "LoadsRequest",
    "NoFields",
    "ObjectAnswer",
    "OffsetAnswer",
    "PartRequest",
    "PiecesAnswer",
    "PiecesRequest",
    "RangePartRequest",
    "ReceivedRequest",
    "ReclaimRequest",
    "SettleRequest",
    "StatusRequest",
    "TableFiguresRequest",
    "WelcomeRequest",
    "WrittenMiddleRequest",
]

_SIZE = Struct(">H")


class _Fields:
    """A JSON object with the fields of a dataclass."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the body."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body. Raises ``KeyError`` for a missing field."""
        found = json.loads(body)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: found[name] for name in names})


class _Listed:
    """A JSON list of the fields of a dataclass."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the body."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return json.dumps([getattr(self, name) for name in names]).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        return cls(*json.loads(body))


@dataclass(slots=True)
class NoFields(_Fields):
    """An empty object: the call is done."""


@dataclass(slots=True)
class ObjectAnswer:
    """A JSON object with arbitrary names: a status, or counts by shard."""

    content: dict[str, Any]

    def encode(self) -> bytes:
        """Return the body."""
        return json.dumps(self.content).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        return cls(json.loads(body))


# Slots.


@dataclass(slots=True)
class HandOverRequest(_Fields):
    """Give a slot to the caller."""

    operation: ClassVar[str] = "RowtideHandOver"
    slot: int


@dataclass(slots=True)
class LeavingAnswer(_Fields):
    """Whether the answering worker is leaving."""

    leaving: bool


@dataclass(slots=True)
class LeavingRequest:
    """Whether the worker at the address ``sender`` is leaving."""

    operation: ClassVar[str] = "RowtideLeaving"
    sender: str
    leaving: bool

    def encode(self) -> bytes:
        """Return the body."""
        return json.dumps({"from": self.sender, "leaving": self.leaving}).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        found = json.loads(body)
        return cls(found["from"], found["leaving"])


@dataclass(slots=True)
class SettleRequest(_Fields):
    """Open, change or seal the shards of ``tables``, by the catalog up to ``applied``."""

    operation: ClassVar[str] = "RowtideSettle"
    applied: int
    tables: Sequence[int]


# The workers.


@dataclass(slots=True)
class WelcomeRequest(_Fields):
    """Register a worker, and its key and instance if they are new."""

    operation: ClassVar[str] = "RowtideWelcome"
    name: str
    address: str
    access_key_id: str
    access_key_secret: str
    instance: str


@dataclass(slots=True)
class FarewellRequest(_Fields):
    """Remove a worker that shuts down."""

    operation: ClassVar[str] = "RowtideFarewell"
    name: str
    address: str


@dataclass(slots=True)
class StatusRequest(NoFields):
    """Report the status of the called worker."""

    operation: ClassVar[str] = "RowtideWorkerStatus"


@dataclass(slots=True)
class TableFiguresRequest(_Fields):
    """Report the figures of tables that are newer than a Unix second, by worker address."""

    operation: ClassVar[str] = "RowtideWorkerTableFigures"
    since: dict[str, int]


@dataclass(slots=True)
class ConsumptionRequest(_Listed):
    """Report what one worker counted, for all tables or one; the bounds are Unix seconds."""

    operation: ClassVar[str] = "RowtideWorkerConsumption"
    instance: str
    table: str | None
    begin_s: int | None
    end_s: int | None


@dataclass(slots=True)
class ConsumptionAnswer(_Fields):
    """``uses`` are lists of an hour, its instance and table, and the units; see ``Taken``.

    The keys of ``seconds`` are hours. They are text if they were read from a body.
    """

    uses: Sequence[Sequence[Any]]
    seconds: Mapping[Any, float]


# Indexes.


@dataclass(slots=True)
class _TableNumber(_Fields):
    table: int


@dataclass(slots=True)
class IndexStateRequest(_TableNumber):
    """Report the progress of the shards of a table and its indexes."""

    operation: ClassVar[str] = "RowtideIndexState"


@dataclass(slots=True)
class IndexStateAnswer(_Listed):
    """By shard: its log's end and stamp, its built indexes, and an index's progress."""

    ends: Mapping[str, Sequence[int]]
    built: Mapping[str, Sequence[int]]
    fed: Mapping[str, Mapping[str, Sequence[Any]]]


@dataclass(slots=True)
class FinishIndexRequest(_TableNumber):
    """Record which indexes of a table have all rows by now."""

    operation: ClassVar[str] = "RowtideIndexFinish"


# Shards.


@dataclass(slots=True)
class _ShardPlace(_Listed):
    slot: int
    shard: str


@dataclass(slots=True)
class ReceivedRequest(_ShardPlace):
    """Report the progress of a shard that moves to a slot."""

    operation: ClassVar[str] = "RowtideShardReceived"


@dataclass(slots=True)
class OffsetAnswer:
    """An offset; -1 for none."""

    offset: int

    def encode(self) -> bytes:
        """Return the body."""
        return json.dumps(self.offset).encode()

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        return cls(int(json.loads(body)))


@dataclass(slots=True)
class WrittenMiddleRequest(_ShardPlace):
    """Report the partition key in the middle of a shard's last writes."""

    operation: ClassVar[str] = "RowtideWrittenMiddle"


@dataclass(slots=True)
class KeyAnswer:
    """An encoded partition key as bytes; empty for none."""

    key: bytes

    def encode(self) -> bytes:
        """Return the body."""
        return self.key

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        return cls(body)


@dataclass(slots=True)
class BeginCopyRequest(_Fields):
    """Record that the owner with a claim starts to copy a shard; the answer is the new reshape."""

    operation: ClassVar[str] = "RowtideCopyBegun"
    id: str
    claim: int


@dataclass(slots=True)
class FinishReshapeRequest(_Fields):
    """Replace the parents by the children; ``seals`` are by the parents' ids."""

    operation: ClassVar[str] = "RowtideReshaped"
    id: str
    children: Sequence[str]
    seals: Mapping[str, Sequence[int]]


@dataclass(slots=True)
class ForgetShardRequest(_Fields):
    """Remove an ended shard that is no longer needed."""

    operation: ClassVar[str] = "RowtideShardForgotten"
    shard: str


@dataclass(slots=True)
class LoadsRequest(NoFields):
    """Report (end of the log, bytes on disk) of each shard that is open here."""

    operation: ClassVar[str] = "RowtideShardLoads"


@dataclass(slots=True)
class ReclaimRequest(_Fields):
    """Reclaim those of the shards that are open here; the answer is (rows, ranges) by shard."""

    operation: ClassVar[str] = "RowtideWorkerReclaim"
    shards: Sequence[str]


@dataclass(slots=True)
class PiecesRequest(_Listed):
    """Measure a shard in pieces, reading at most ``bytes_max``."""

    operation: ClassVar[str] = "RowtidePieces"
    table: str
    shard: str
    piece_bytes: int
    bytes_max: int


@dataclass(slots=True)
class PiecesAnswer(_Fields):
    """Each piece is its first key, as hex digits, and its bytes; ``read`` are bytes."""

    pieces: Sequence[Sequence[Any]]
    read: int


# Ranges.


@dataclass(slots=True)
class PartRequest:
    """A client's request for a range, to be answered from some shards only.

    On the wire: the size of the shards' names (2 bytes, big-endian), the names separated by commas,
    the request as the client sent it.
    """

    operation: ClassVar[str]
    shards: Sequence[str]
    request: bytes

    def encode(self) -> bytes:
        """Return the body."""
        names = ",".join(self.shards).encode()
        return b"".join((_SIZE.pack(len(names)), names, self.request))

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body."""
        (size,) = _SIZE.unpack_from(body)
        start = _SIZE.size + size
        return cls(body[_SIZE.size : start].decode().split(","), body[start:])


class RangePartRequest(PartRequest):
    """A part of a GetRange."""

    operation: ClassVar[str] = "RowtidePartOfRange"


class ExportPartRequest(PartRequest):
    """A part of a BulkExport."""

    operation: ClassVar[str] = "RowtidePartOfExport"
