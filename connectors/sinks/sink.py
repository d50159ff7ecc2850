"""What the runtime needs of a sink, and what ``verify`` needs to compare one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.core.values.variant import Scalar

__all__ = ["Comparable", "ConvertsRows", "HeldRow", "Sink", "Traits", "traits_of"]


class Traits(NamedTuple):
    """Optional properties of a sink, given as class attributes of these names.

    ``every_change``: the sink needs each row of a key in a batch, not only the last (a
    topic does, a table does not). ``alone``: the target is files of this machine, which
    one process writes at a time. So all shards go through one process. ``batch_rows``:
    most changes of a shard in one batch, unless the declaration sets it. Choose more
    where each call is expensive. ``changes_only``: the sink does nothing with the rows of
    a snapshot. So one that would begin with them, also after a rewind, begins with the
    oldest change.
    """

    every_change: bool = False
    alone: bool = False
    batch_rows: int = 1000
    changes_only: bool = False


def traits_of(sink: Sink) -> Traits:
    """Return the traits of a sink."""
    said = {name: getattr(sink, name) for name in Traits._fields if hasattr(sink, name)}
    return Traits(**said)


class Sink(Protocol):
    """One target of one table.

    Every method raises ``Unavailable`` if the target can't be reached or is too busy. The
    runtime then repeats the call after a pause. Any other exception stops the connector,
    which restarts with back-off. Batches of several shards may be applied at the same
    time.
    """

    async def open(self, table: TableShape) -> None:
        """Create what is missing at the target. It may exist already, or exist in part."""
        ...

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply a batch and return the rows that the sink refuses, once the others are
        durable.

        The same batch or an older one may arrive at any time: after a crash, a rewind, or
        from a process that was paused. A row whose stamp is below the target's stamp of
        the key must change nothing. A row with an equal stamp takes its place: it is the
        same row, perhaps under new settings.
        """
        ...

    async def close(self) -> None:
        """Close connections and files."""
        ...


class HeldRow(NamedTuple):
    """A row as the target stores it. Columns without a value are left out."""

    key_bytes: bytes
    stamp: int
    columns: Mapping[str, Scalar]


class Comparable(Protocol):
    """A sink whose rows can be read back.

    A sink that only one process may open has ``open_to_read`` too. It takes the place of
    ``open`` if the sink is compared and not written.
    """

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return what ``read_rows`` returns for a row of these columns, after the target's
        conversions.
        """
        ...

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return up to ``limit`` living rows from ``begin`` on, before ``end``, in key
        order.

        An empty end is unbounded. The rows include the effect of every applied batch.
        """
        ...


@runtime_checkable
class ConvertsRows(Protocol):
    """A ``Comparable`` whose target converts values in ways that only the target knows."""

    async def convert_rows(
        self, rows: Mapping[bytes, Mapping[str, Scalar]]
    ) -> Mapping[bytes, Mapping[str, Scalar]]:
        """Return what ``read_rows`` returns for these rows, by key. The target computes it."""
        ...
