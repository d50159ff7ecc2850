"""The state of a shard that is stored beside its rows, and the record that changes options."""

from __future__ import annotations

from dataclasses import dataclass

from rowtide.core.records import record
from rowtide.core.shard.reshape import Sealed
from rowtide.core.values.schema import StreamSettings, Table, TableOptions

__all__ = ["ShardState", "has_current_options", "options_body", "stream_settings"]


@dataclass(slots=True)
class ShardState:
    """The state of a shard that is stored beside its rows: the mark.

    ``applied`` is the last offset folded into the rows, ``entry`` the digest of the entry there
    (``core/shard/mark.py``; None if it is not known). ``stamp`` is the highest commit stamp so far.
    ``stream_start`` is the offset at which the present stream was enabled, ``seal`` the end of the
    log.
    """

    options: TableOptions
    applied: int = -1
    stamp: int = 0
    stream: StreamSettings | None = None
    stream_start: int = 0
    seal: Sealed | None = None
    entry: int | None = None


def options_body(of: Table | ShardState) -> record.Options:
    """Return the hidden record that puts the options of a table or a shard in force."""
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


def has_current_options(state: ShardState, table: Table) -> bool:
    """True if a shard has its table's options, or has ended and needs none."""
    options = state.options
    return state.seal is not None or (
        options.time_to_live_s == table.options.time_to_live_s
        and options.max_versions == table.options.max_versions
        and state.stream == table.stream
    )


def stream_settings(stream: record.StreamOptions | None) -> StreamSettings | None:
    """Return the settings of a stream from its log record."""
    if stream is None:
        return None
    return StreamSettings(
        stream.id, stream.enabled_at_us, stream.expiration_hours, tuple(stream.columns)
    )
