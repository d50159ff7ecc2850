"""What the runtime asks of a sink, and what ``verify`` asks of one that can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.core.values.variant import Scalar

__all__ = ["Comparable", "ConvertsRows", "HeldRow", "Sink", "Traits", "traits_of"]


class Traits(NamedTuple):
    """What a sink may say of itself, by attributes of its class of these names.

    ``every_change``: it wants each row of a key in a batch, not the last one alone (a topic does, a
    table does not). ``alone``: its target is files of this machine, which one process writes at a
    time, so that all shards go through one process. ``batch_rows``: how many changes of a shard it
    is given at once, at most, where its declaration does not say: more where each call is dear.
    """

    every_change: bool = False
    alone: bool = False
    batch_rows: int = 1000


def traits_of(sink: Sink) -> Traits:
    """Return what a sink says of itself."""
    said = {name: getattr(sink, name) for name in Traits._fields if hasattr(sink, name)}
    return Traits(**said)


class Sink(Protocol):
    """One target of one table.

    Every method raises ``Unavailable`` where the target can't be reached or is too busy: the same
    call is made again after a pause. Anything else it raises stops the connector until the next
    restart with back-off. Batches of several shards may be applied at the same time.
    """

    async def open(self, table: TableShape) -> None:
        """Make what is missing at the target. It may be there already, also half made."""
        ...

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply a batch; return, when the target has made it durable, the rows it refuses.

        The same batch, or one older than what the target has, may come at any time (after a crash,
        a rewind, from a process that was paused): it changes nothing.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and files."""
        ...


class HeldRow(NamedTuple):
    """A row as the target has it. Columns without a value are left out."""

    key_bytes: bytes
    stamp: int
    columns: Mapping[str, Scalar]


class Comparable(Protocol):
    """A sink whose rows can be read back.

    One that only one process may hold has ``open_to_read`` too, in place of ``open`` where it is
    to be compared and not written.
    """

    def expected(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return what ``held`` gives for a row of these columns, after the target's conversions."""
        ...

    async def held(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return up to ``limit`` living rows from ``begin`` on, before ``end``, in keys' order.

        An empty end is unbounded. They are what every applied batch left, no less.
        """
        ...


@runtime_checkable
class ConvertsRows(Protocol):
    """A ``Comparable`` whose target converts values in ways that only the target knows."""

    async def expected_rows(
        self, rows: Mapping[bytes, Mapping[str, Scalar]]
    ) -> Mapping[bytes, Mapping[str, Scalar]]:
        """Return what ``held`` gives for these rows, by key: asked of the target itself."""
        ...
