"""Where a source is in the log of a PostgreSQL server, and the positions of its rows.

A **position** has 28 bytes, big-endian, and rises with every row:

    epoch 4 | LSN 8 | change 4 | run 4 | number 8

- A row of the stream: the LSN of its transaction's commit (the server sends transactions
  in this order), the number of the change in the transaction (from 1), run 0, and number
  1 for the second row of one change. The row has the same position each time it is read,
  so a shard that has it skips it.
- A row of a chunk, or one that a sweep deletes: the LSN of the last commit before it, the
  highest change, the run, and a number that rises within the run. It may be read again
  after a crash and may then differ. So each start has a higher run, and nothing is
  skipped.
- A row that TRUNCATE deletes: the LSN and the change of the statement, the run, a rising
  number.
- The epoch rises if LSNs may start again or changes were missed: another server, another
  timeline, a lost slot. It is stored before it is used.

The checkpoint is JSON. It names only what is durable in rowtide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, ClassVar, Self

from rowtide.connectors.sources import progress as source_progress

__all__ = [
    "AFTER_ALL_CHANGES",
    "PostgresCheckpoint",
    "PostgresTableProgress",
    "lsn_text",
    "parse_lsn",
    "prefix",
]

AFTER_ALL_CHANGES = 0xFFFFFFFF
"""The change of a row that comes after a transaction."""

_PREFIX = Struct(">IQII")


def prefix(epoch: int, lsn: int, *, change: int, run: int = 0) -> bytes:
    """Return the first 20 bytes of a position. Eight bytes with the row's number follow."""
    return _PREFIX.pack(epoch, lsn, change, run)


def parse_lsn(text: str) -> int:
    """Return an LSN as a number."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as the server writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(slots=True)
class PostgresTableProgress(source_progress.TableProgress):
    """How far one table is.

    ``oid`` and ``file`` identify the table and its storage at the server. While both
    stay, every change of a row is in the stream. ``cursor`` has the last copied key as
    texts. A sweep comes before the copy. ``published`` has the numbers of its memberships
    in the publication: a change was missed if none of them stays. ``types`` is from
    ``type_parts.note_types``. ``parts`` has the states of its partitions by number. ``rows``
    counts the rows of the copy.
    """

    oid: int = 0
    file: int = 0
    published: list[str] = field(default_factory=list)
    types: dict[str, list[int]] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    rows: int = 0

    def restart(self, *, sweep: bool) -> None:
        """Copy the table again from the start."""
        source_progress.TableProgress.restart(self, sweep=sweep)
        self.rows = 0


@dataclass(slots=True)
class PostgresCheckpoint(source_progress.SourceProgress[PostgresTableProgress]):
    """What is durable in rowtide: all transactions whose commit ends at or before
    ``lsn``.

    ``system`` is the server's identifier and its timeline. An ``lsn`` of 0 means that the
    epoch has begun and nothing was read of a slot yet. ``publication`` is the
    publication's number, 0 if unknown, -1 if the server could not read the slot's log
    with it.
    """

    kind: ClassVar[str] = "postgres"

    system: str = ""
    slot: str = ""
    lsn: int = 0
    publication: int = 0

    @property
    def partitions(self) -> set[int]:
        """The numbers of all known partitions."""
        return {int(oid) for table in self.tables.values() for oid in table.parts}

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """See ``SourceProgress``."""
        tables = {name: PostgresTableProgress(**kept) for name, kept in found.pop("tables").items()}
        lsn = parse_lsn(found.pop("lsn"))
        return cls(**found, lsn=lsn, tables=tables)

    def parts(self) -> Mapping[str, Any]:
        """See ``SourceProgress``."""
        return asdict(self) | {"lsn": lsn_text(self.lsn)}

    def begin_epoch(self, system: str, slot: str) -> None:
        """Start again: copied tables may lack rows or have too many."""
        self.epoch += 1
        self.system, self.slot, self.lsn = system, slot, 0
        self.restart(self.tables, sweep=True)
