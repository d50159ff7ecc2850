"""The records of a shard's log: envelope, body, and their bytes.

A record is an envelope (where it is valid, its writer, its time, its place in an atomic batch) and
one body. The bytes are Avro's single-object encoding: ``C3 01``, the fingerprint of a schema, the
envelope, the body. The body's bytes do not depend on the envelope. So a record that was void at one
offset is sent for another without encoding its body again.

A record names the oldest of the last two schemas that has its body: only one with original columns
needs the newest.

This module does not know if a record is void, or what a body does to rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rowtide.core import native
from rowtide.core.native import KeptChange, ReadChange
from rowtide.core.protocol.row_form import PackedCells
from rowtide.core.records.avro import (
    read_bytes,
    read_cells,
    read_count,
    read_key,
    read_long,
    read_text,
    read_texts,
    write_bytes,
    write_cells,
    write_key,
    write_long,
    write_texts,
)
from rowtide.core.records.body import (
    NO_INDEXES,
    Body,
    Commit,
    CopyBody,
    CopyEntry,
    DeleteBody,
    IndexBuild,
    IndexFeed,
    IndexWrite,
    Kept,
    NoOp,
    Options,
    PutBody,
    Reclaim,
    Seal,
    Snapshot,
    SnapshotRow,
    SourcePosition,
    StreamOptions,
    UpdateBody,
)
from rowtide.core.records.change_body import (
    CHANGES,
    KEPT_BEGIN,
    READERS,
    READERS_V1,
    ChangeBody,
    encode_change_body,
    read_indexes,
    write_indexes,
)
from rowtide.core.values.cell import Cell

__all__ = [
    "CHANGES",
    "FINGERPRINT",
    "FINGERPRINT_V1",
    "FINGERPRINT_V2",
    "FINGERPRINT_V3",
    "FINGERPRINT_V4",
    "FIRST",
    "HEAD",
    "LAST",
    "SCHEMAS",
    "SINGLE",
    "Body",
    "Commit",
    "CopyBody",
    "CopyEntry",
    "CorruptRecord",
    "DeleteBody",
    "Envelope",
    "IndexBuild",
    "IndexFeed",
    "IndexWrite",
    "Kept",
    "NoOp",
    "Options",
    "PutBody",
    "Reclaim",
    "Seal",
    "Snapshot",
    "SnapshotRow",
    "SourcePosition",
    "StreamOptions",
    "UpdateBody",
    "decode_body",
    "decode_envelope",
    "decode_record",
    "encode_body",
    "encode_record",
    "has_indexes",
    "has_kept",
    "read_envelope",
]

# Bits of ``Envelope.group``: the place of a record in its atomic batch. 0 is in the middle.
FIRST = 1
LAST = 2
SINGLE = FIRST | LAST

SCHEMAS = tuple(f"record-v{number}.avsc" for number in range(1, 6))
"""Every schema of records so far, in ``rowtide.core/schemas``, newest last."""

FINGERPRINT = bytes.fromhex("022a8e459e9b91da")
"""CRC-64-AVRO of the newest schema's parsing canonical form, little-endian."""

FINGERPRINT_V4 = bytes.fromhex("afab1687423e7f96")
"""Fingerprint of the fourth schema, without ``kept``. It is written for all other records."""

FINGERPRINT_V3 = bytes.fromhex("ba4f0f07d8403259")
"""Fingerprint of the third schema, without sources. Its records can still be read."""

FINGERPRINT_V2 = bytes.fromhex("f794eea38f11e6ce")
"""Fingerprint of the second schema, without copies. Its records can still be read."""

FINGERPRINT_V1 = bytes.fromhex("00ebff1841f294a7")
"""Fingerprint of the first schema, without indexes. Its records can still be read."""

HEAD = b"\xc3\x01" + FINGERPRINT
"""What records of the newest schema begin with."""

_HEAD_V4 = b"\xc3\x01" + FINGERPRINT_V4
_HEAD_V3 = b"\xc3\x01" + FINGERPRINT_V3
_HEAD_V2 = b"\xc3\x01" + FINGERPRINT_V2
_HEAD_V1 = b"\xc3\x01" + FINGERPRINT_V1


_GROUPS = {group << 1: group for group in range(SINGLE + 1)}
"""A record's place in its group, by the byte that encodes it."""

_new = tuple.__new__


class CorruptRecord(Exception):
    """Bytes that are not a record of this log: damaged, or written by an unknown version."""


class Envelope(NamedTuple):
    """The part of every record besides its body.

    ``at`` is the offset at which the record is valid, ``claim`` the offset of its writer's claim,
    ``owner`` the writer's eight random bytes, ``stamp`` the commit stamp in microseconds.
    """

    at: int
    claim: int
    owner: bytes
    stamp: int
    group: int


_KEPT = bytes((KEPT_BEGIN,))

_NATIVE = frozenset((2, 4, 26, 28, 30))
"""Branches that a kernel may read."""


def encode_change(key: Sequence[bytes], cells: PackedCells, *, whole: bool) -> bytes:
    """Return the body of a ``PutBody`` (``whole``) or an ``UpdateBody`` with only these cells."""
    kind = b"\x02" if whole else b"\x04"
    return b"".join((kind, write_key(key), write_cells(cells), b"\x00\x00"))


def encode_body(body: Body) -> bytes:
    """Return the bytes of a body, including its branch of the schema's union."""
    if isinstance(body, PutBody | UpdateBody | DeleteBody):
        return encode_change_body(body)
    if isinstance(body, NoOp):
        return b"\x00"
    return _encode_hidden(body)


Hidden = (
    Options
    | Reclaim
    | Seal
    | Snapshot
    | Commit
    | IndexBuild
    | IndexFeed
    | CopyBody
    | SourcePosition
)


def _encode_hidden(body: Hidden) -> bytes:
    if isinstance(body, Options):
        return b"".join(
            (
                b"\x08",
                write_long(body.time_to_live),
                write_long(body.max_versions),
                _encode_stream(body.stream),
            )
        )
    if isinstance(body, Reclaim):
        return b"".join(
            (
                b"\x0a",
                write_bytes(body.first),
                write_bytes(body.last),
                write_long(body.version_cutoff_ms),
                write_long(body.max_versions),
            )
        )
    if isinstance(body, Seal):
        return b"\x0c" + write_bytes(body.plan.encode())
    if isinstance(body, Commit):
        return b"\x10" + write_bytes(body.id.encode())
    if isinstance(body, IndexBuild | IndexFeed):
        return _encode_index(body)
    if isinstance(body, CopyBody):
        return _encode_copy(body)
    if isinstance(body, SourcePosition):
        fields = (body.source.encode(), body.begin, body.end, body.position)
        return b"\x18" + b"".join(map(write_bytes, fields))
    return _encode_snapshot(body)


def _encode_copy(body: CopyBody) -> bytes:
    parts = [
        b"\x16",
        write_bytes(body.source.encode()),
        write_long(body.offset),
        b"\x01" if body.complete else b"\x00",
        write_long(len(body.entries)),
    ]
    for entry in body.entries:
        parts += (write_bytes(entry.key), write_bytes(entry.value))
    if body.entries:
        parts.append(b"\x00")
    return b"".join(parts)


def _encode_index(body: IndexBuild | IndexFeed) -> bytes:
    if isinstance(body, IndexFeed):
        head = (
            b"\x14",
            write_bytes(body.source.encode()),
            write_long(body.following),
            write_long(body.stamp),
        )
        return b"".join((*head, write_indexes(body.indexes)))
    following = b"\x00" if body.following is None else b"\x02" + write_bytes(body.following)
    return b"".join((b"\x12", write_long(body.table), following, write_indexes(body.indexes)))


def _encode_stream(stream: StreamOptions | None) -> bytes:
    if stream is None:
        return b"\x00"
    return b"".join(
        (
            b"\x02",
            write_bytes(stream.id.encode()),
            write_long(stream.enabled_at_us),
            write_long(stream.expiration_hours),
            write_texts(stream.columns),
        )
    )


def _encode_snapshot(body: Snapshot) -> bytes:
    parts = [b"\x0e", write_long(len(body.rows))]
    for row in body.rows:
        parts += (write_key(row.key), write_cells(row.cells))
    if body.rows:
        parts.append(b"\x00")
    return b"".join(parts)


def has_indexes(value: bytes) -> bool:
    """True if a record's schema has the changes of indexes."""
    return not value.startswith(_HEAD_V1)


def has_kept(value: bytes) -> bool:
    """True if a record's schema has changes with ``kept``."""
    return value.startswith(HEAD)


def encode_record(envelope: Envelope, body: bytes) -> bytes:
    """Return a whole record; ``body`` is a result of ``encode_body``."""
    at, claim, owner, stamp, group = envelope
    head = _head_of(body)
    made = native.kernels.write_record(head, at, claim, owner, stamp, group, body)
    if made is not None:
        return made
    writer = _writer(claim, owner)
    return b"".join((head, write_long(at), writer, write_long(stamp), write_long(group), body))


def encode_records(
    changes: Sequence[object], bodies: Sequence[bytes], base: int, claim: int, owner: bytes
) -> list[tuple[bytes, bytes]] | None:
    """Return the log key and the record of each evaluated change, or None without a kernel.

    ``changes`` is a list of ``Evaluated`` with these ``bodies``. The first record is for the offset
    ``base``. None is returned too if their records are not all of one schema.
    """
    lowest = min(bodies, default=b"")
    if lowest < _KEPT <= max(bodies):
        return None
    return native.kernels.write_records(_head_of(lowest), base, claim, owner, changes)


def _head_of(body: bytes) -> bytes:
    """Return what a record begins with: its schema."""
    return HEAD if body[:1] >= _KEPT else _HEAD_V4


@lru_cache(64)
def _writer(claim: int, owner: bytes) -> bytes:
    """Return the bytes that all of a writer's records share."""
    if len(owner) != 8:
        raise ValueError(f"an owner of {len(owner)} bytes, not 8")
    return write_long(claim) + owner


def decode_record(value: bytes) -> tuple[Envelope, Body]:
    """Return the envelope and the body of a record."""
    envelope, position = read_envelope(value)
    return envelope, decode_body(value, position)


def decode_body(value: bytes, position: int) -> Body:
    """Return the body of a record, which begins at ``position``."""
    try:
        branch = value[position]
        readers = _READERS_OF[value[:10]]
        if branch in _NATIVE and branch in readers:
            found = native.kernels.read_change(value, position, has_indexes(value), Cell)
            if found is not None:
                return _make_change(branch, found)
        reader = readers.get(branch)
        if reader is None:
            raise ValueError(f"byte {position}: body {branch} is unknown")
        body, position = reader(value, position + 1)
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise _corrupt(value, error) from error
    if position != len(value):
        raise CorruptRecord(f"record of {len(value)} bytes: its body ends at byte {position}")
    return body


def _make_change(branch: int, found: ReadChange | KeptChange) -> ChangeBody:
    """Return the change that a kernel has read."""
    body = CHANGES[branch]
    if len(found) == 2:
        return UpdateBody(*found) if body is UpdateBody else PutBody(*found)
    key, cells, before, existed, absent, after = found
    kept = Kept(existed, absent, after)
    if body is DeleteBody:
        return DeleteBody(key, before, NO_INDEXES, kept)
    if body is PutBody:
        return PutBody(key, cells, before, NO_INDEXES, kept)
    return UpdateBody(key, cells, before, NO_INDEXES, kept)


def decode_envelope(value: bytes) -> Envelope:
    """Return the envelope of a record without reading its body."""
    return read_envelope(value)[0]


def read_envelope(value: bytes) -> tuple[Envelope, int]:
    """Return the envelope of a record, and the position of its body."""
    try:
        return _read_envelope(value)
    except (ValueError, IndexError) as error:
        raise _corrupt(value, error) from error


def _corrupt(value: bytes, error: Exception) -> CorruptRecord:
    """Return the failure for damaged bytes of a record."""
    if isinstance(error, KeyError):
        return CorruptRecord(f"record of {len(value)} bytes: an unknown cell operation")
    cause = str(error) if isinstance(error, ValueError) else "it breaks off"
    return CorruptRecord(f"record of {len(value)} bytes: {cause}")


def _read_envelope(value: bytes) -> tuple[Envelope, int]:
    """Return the envelope and the body's position. Raises ``ValueError``, ``IndexError``."""
    if not value.startswith(_HEADS):
        raise ValueError(f"it begins with {value[:10].hex()}, no schema known here")
    found = native.kernels.read_envelope(value)
    if found is not None:
        return _new(Envelope, found[0]), found[1]
    at, position = read_long(value, 10)
    claim, position = read_long(value, position)
    owner = value[position : position + 8]
    stamp, position = read_long(value, position + 8)
    group = _GROUPS.get(value[position])
    if group is None:
        raise ValueError(f"byte {position}: group {read_long(value, position)[0]}")
    position += 1
    return _new(Envelope, (at, claim, owner, stamp, group)), position


def _read_noop(_value: bytes, position: int) -> tuple[NoOp, int]:
    return NoOp(), position


def _read_index_build(value: bytes, position: int) -> tuple[IndexBuild, int]:
    table, position = read_long(value, position)
    branch = value[position]
    position += 1
    following = None
    if branch == 2:
        following, position = read_bytes(value, position)
    elif branch != 0:
        raise ValueError(f"byte {position - 1}: branch {branch} before a place")
    indexes, position = read_indexes(value, position)
    return IndexBuild(table, following, indexes), position


def _read_index_feed(value: bytes, position: int) -> tuple[IndexFeed, int]:
    source, position = read_text(value, position)
    following, position = read_long(value, position)
    stamp, position = read_long(value, position)
    indexes, position = read_indexes(value, position)
    return IndexFeed(source, following, stamp, indexes), position


def _read_options(value: bytes, position: int) -> tuple[Options, int]:
    time_to_live, position = read_long(value, position)
    max_versions, position = read_long(value, position)
    branch = value[position]
    position += 1
    stream = None
    if branch == 2:
        stream, position = _read_stream(value, position)
    elif branch != 0:
        raise ValueError(f"byte {position - 1}: branch {branch} before a stream")
    return Options(time_to_live, max_versions, stream), position


def _read_stream(value: bytes, position: int) -> tuple[StreamOptions, int]:
    stream_id, position = read_text(value, position)
    enabled_at_us, position = read_long(value, position)
    expiration_hours, position = read_long(value, position)
    columns, position = read_texts(value, position)
    return StreamOptions(stream_id, enabled_at_us, expiration_hours, columns), position


def _read_reclaim(value: bytes, position: int) -> tuple[Reclaim, int]:
    first, position = read_bytes(value, position)
    last, position = read_bytes(value, position)
    version_cutoff_ms, position = read_long(value, position)
    max_versions, position = read_long(value, position)
    return Reclaim(first, last, version_cutoff_ms, max_versions), position


def _read_seal(value: bytes, position: int) -> tuple[Seal, int]:
    plan, position = read_text(value, position)
    return Seal(plan), position


def _read_snapshot(value: bytes, position: int) -> tuple[Snapshot, int]:
    rows: list[SnapshotRow] = []
    count, position = read_count(value, position)
    while count:
        for _ in range(count):
            key, position = read_key(value, position)
            cells, position = read_cells(value, position)
            rows.append(SnapshotRow(key, cells))
        count, position = read_count(value, position)
    return Snapshot(rows), position


def _read_commit(value: bytes, position: int) -> tuple[Commit, int]:
    transaction_id, position = read_text(value, position)
    return Commit(transaction_id), position


def _read_copy(value: bytes, position: int) -> tuple[CopyBody, int]:
    source, position = read_text(value, position)
    offset, position = read_long(value, position)
    complete = value[position]
    if complete > 1:
        raise ValueError(f"byte {position}: a boolean of {complete}")
    entries: list[CopyEntry] = []
    count, position = read_count(value, position + 1)
    while count:
        for _ in range(count):
            key, position = read_bytes(value, position)
            stored, position = read_bytes(value, position)
            entries.append(CopyEntry(key, stored))
        count, position = read_count(value, position)
    return CopyBody(source, offset, bool(complete), entries), position


def _read_source_position(value: bytes, position: int) -> tuple[SourcePosition, int]:
    source, position = read_text(value, position)
    begin, position = read_bytes(value, position)
    end, position = read_bytes(value, position)
    reached, position = read_bytes(value, position)
    return SourcePosition(source, begin, end, reached), position


_READERS: dict[int, Callable[[bytes, int], tuple[Body, int]]] = {
    0: _read_noop,
    8: _read_options,
    10: _read_reclaim,
    12: _read_seal,
    14: _read_snapshot,
    16: _read_commit,
    18: _read_index_build,
    20: _read_index_feed,
    22: _read_copy,
    24: _read_source_position,
    **READERS,
}
"""A body's reader by its branch of the schema's union, doubled by Avro's zigzag encoding."""

_READERS_V4 = {branch: reader for branch, reader in _READERS.items() if branch < KEPT_BEGIN}
_READERS_V3 = {branch: reader for branch, reader in _READERS.items() if branch < 24}
_READERS_V2 = {branch: reader for branch, reader in _READERS.items() if branch < 22}

_READERS_V1: dict[int, Callable[[bytes, int], tuple[Body, int]]] = {
    **{branch: reader for branch, reader in _READERS.items() if branch < 18},
    **READERS_V1,
}

_READERS_OF = {
    HEAD: _READERS,
    _HEAD_V4: _READERS_V4,
    _HEAD_V3: _READERS_V3,
    _HEAD_V2: _READERS_V2,
    _HEAD_V1: _READERS_V1,
}
_HEADS = tuple(_READERS_OF)
