"""A shard's mark: how far its rows are complete, and the options in force there.

The mark is written to RocksDB with every applied batch and to the changelog with every flush, under
the key ``m`` + shard id. Value: format (1 byte), applied offset and commit stamp (int64, little-
endian each), then the rest of the state as JSON. ``docs/internals/formats/chunk.md`` has golden
bytes.

With the offset goes a digest of the entry at that offset. A log with a different entry there has
lost its end and was written to since. Older marks have no digest.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from struct import Struct

from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.schema import StreamSettings, TableOptions

__all__ = ["decode_mark", "encode_mark", "entry_digest", "mark_key", "mark_position"]

FORMAT = 1
_HEAD = Struct("<Bqq")


def mark_key(shard_id: str) -> bytes:
    """Return the key of a shard's mark in RocksDB and in the changelog."""
    return b"m" + shard_id.encode()


def entry_digest(value: bytes) -> int:
    """Return the digest of a log entry: the CRC-32 of its value, which contains its stamp."""
    return zlib.crc32(value)


def encode_mark(state: ShardState) -> bytes:
    """Return the mark's bytes."""
    rest = _rest(state.options, state.stream, state.stream_start, state.seal)
    if state.entry is not None:
        rest = b'%s,"entry":%d}' % (rest[:-1], state.entry)
    return _HEAD.pack(FORMAT, state.applied, state.stamp) + rest


def mark_position(value: bytes) -> tuple[int, int]:
    """Return (applied offset, commit stamp) of a mark without parsing the rest."""
    _, applied, stamp = _HEAD.unpack_from(value)
    return applied, stamp


def decode_mark(value: bytes) -> ShardState:
    """Return the state that a mark's bytes store."""
    _, applied, stamp = _HEAD.unpack_from(value)
    rest = json.loads(value[_HEAD.size :])
    stream = rest["stream"]
    return ShardState(
        options=TableOptions(*rest["options"]),
        applied=applied,
        stamp=stamp,
        stream=None
        if stream is None
        else StreamSettings(stream[0], stream[1], stream[2], tuple(stream[3])),
        stream_start=rest["stream_start"],
        seal=Sealed(*rest["sealed"]) if rest["sealed"] else None,
        entry=rest.get("entry"),
    )


@lru_cache(256)
def _rest(
    options: TableOptions, stream: StreamSettings | None, stream_start: int, seal: Sealed | None
) -> bytes:
    return json.dumps(
        {
            "options": [
                options.time_to_live_s,
                options.max_versions,
                options.deviation_s,
                options.allow_update,
            ],
            "stream": None
            if stream is None
            else [
                stream.stream_id,
                stream.enabled_at_us,
                stream.expiration_hours,
                list(stream.columns),
            ],
            "stream_start": stream_start,
            "sealed": False if seal is None else [*seal],
        },
        separators=(",", ":"),
    ).encode()
