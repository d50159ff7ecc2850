"""What of a shard survives a restart beside its rows, and the record that puts options in force."""

from __future__ import annotations

from dataclasses import dataclass

from rowtide.core.records import record
from rowtide.core.shard.reshape import Sealed
from rowtide.core.values.schema import StreamSettings, Table, TableOptions

__all__ = ["ShardState", "in_force", "options_body", "stream_settings"]


@dataclass(slots=True)
class ShardState:
    """What of a shard survives a restart beside its rows: the mark.

    ``applied`` is the last offset folded into the rows, ``entry`` the digest of what stands there
    (``core/shard/mark.py``; None where it is not known), ``stamp`` the highest commit stamp so far.
    ``stream_start`` is the first offset of the present stream's life, ``seal`` where the log ended.
    """

    options: TableOptions
    applied: int = -1
    stamp: int = 0
    stream: StreamSettings | None = None
    stream_start: int = 0
    seal: Sealed | None = None
    entry: int | None = None


def options_body(of: Table | ShardState) -> record.Options:
    """Return the hidden record that puts a table's options in force, or a shard's."""
    stream = of.stream
    return record.Options(
        of.options.time_to_live_s,
        of.options.max_versions,
        None
        if stream is None
        else record.StreamOptions(
            stream.stream_id, stream.enabled_at_us, stream.expiration_hours, list(stream.columns)
        ),
    )


def in_force(state: ShardState, table: Table) -> bool:
    """True if a shard has its table's options, or has ended and needs none."""
    options = state.options
    return state.seal is not None or (
        options.time_to_live_s == table.options.time_to_live_s
        and options.max_versions == table.options.max_versions
        and state.stream == table.stream
    )


def stream_settings(stream: record.StreamOptions | None) -> StreamSettings | None:
    """Return a stream's settings as its log has them."""
    if stream is None:
        return None
    return StreamSettings(
        stream.id, stream.enabled_at_us, stream.expiration_hours, tuple(stream.columns)
    )
