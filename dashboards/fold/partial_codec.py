"""A partial as bytes: a summary, and one key and one body per group.

They are cells of rows of ``rowtide_dashboard_state``, so a batch of changes writes only the groups
that it changed. The format is in docs/internals/formats/dashboard-state.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowtide.dashboards.fold.partial import Key, Overfull, PanelBounds, PanelGroup, PanelPartial
from rowtide.dashboards.fold.plan import PanelPlan
from rowtide.dashboards.fold.state_bytes import CorruptState, StateReader, StateWriter
from rowtide.dashboards.fold.states import STATES

__all__ = [
    "decode_partial",
    "encode_group",
    "encode_key",
    "encode_partial",
    "encode_summary",
]

_VERSION = 1
_OVERFULL: tuple[Overfull, ...] = ("", "groups", "values")


def encode_key(key: Key) -> bytes:
    """Return a group's key. Equal keys give equal bytes."""
    writer = StateWriter()
    writer.integer(len(key))
    for value in key:
        writer.value(value)
    return bytes(writer.buffer)


def encode_group(group: PanelGroup) -> bytes:
    """Return a group's states. Equal groups give equal bytes."""
    writer = StateWriter()
    writer.integer(_VERSION)
    writer.integer(group.rows)
    writer.integer(len(group.states))
    for state in group.states:
        state.write(writer)
    return bytes(writer.buffer)


def encode_summary(partial: PanelPartial) -> bytes:
    """Return everything of a partial but its groups."""
    writer = StateWriter()
    writer.integer(_VERSION)
    writer.integer(_OVERFULL.index(partial.overfull))
    writer.integer(partial.failures)
    writer.integer(len(partial.mistyped))
    for place, count in sorted(partial.mistyped.items()):
        writer.integer(place)
        writer.integer(count)
    return bytes(writer.buffer)


def encode_partial(partial: PanelPartial) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the summary, and the body of each group by its key."""
    groups = {encode_key(key): encode_group(group) for key, group in partial.groups.items()}
    return encode_summary(partial), groups


def decode_partial(
    plan: PanelPlan, bounds: PanelBounds, summary: bytes, groups: Mapping[bytes, bytes]
) -> PanelPartial:
    """Return the partial that ``encode_partial`` encoded. Raises ``CorruptState``."""
    partial = PanelPartial(plan, bounds)
    reader = _read_version(summary)
    overfull = reader.integer()
    if not 0 <= overfull < len(_OVERFULL):
        raise CorruptState(f"an unknown fault {overfull}")
    partial.overfull = _OVERFULL[overfull]
    partial.failures = reader.integer()
    for _ in range(reader.count()):
        place = reader.integer()
        partial.mistyped[place] = reader.integer()
    reader.end()
    for key, body in groups.items():
        partial.groups[_decode_key(plan, key)] = _decode_group(plan, body)
    return partial


def _read_version(content: bytes) -> StateReader:
    reader = StateReader(content)
    if (version := reader.integer()) != _VERSION:
        raise CorruptState(f"version {version}; this release reads version {_VERSION}")
    return reader


def _decode_key(plan: PanelPlan, content: bytes) -> Key:
    reader = StateReader(content)
    values = tuple(reader.value() for _ in range(reader.count()))
    reader.end()
    if len(values) != len(plan.keys):
        raise CorruptState(f"a key of {len(values)} values; the panel has {len(plan.keys)}")
    return values


def _decode_group(plan: PanelPlan, content: bytes) -> PanelGroup:
    reader = _read_version(content)
    group = PanelGroup([STATES[spec.state]() for spec in plan.states])
    group.rows = reader.integer()
    if (held := reader.count()) != len(group.states):
        raise CorruptState(f"{held} states; the panel has {len(group.states)}")
    for state in group.states:
        state.read(reader)
    reader.end()
    return group
