"""Where a source is in the binlog and in its snapshots, and the positions of its rows.

A **place** is a file of the binlog and an offset in it. Every transaction begins at one
and ends where the next begins. A **position** has 32 bytes, big-endian, and rises with
every row:

    epoch 4 | file 4 | offset 8 | event 4 | run 4 | row 8

- A row of the binlog: the place where its transaction begins, the number of the row event
  in it (from 1), run 0, and the number of the row in the event. The row has the same
  position each time it is read, so a shard that has it skips it.
- A row of a snapshot, of a sweep or of an emptied table: the place as of which it is,
  event 0, the run, and a number that rises within the run. It is read again after a crash
  and may then differ. So each start has a higher run, and nothing is skipped. Deletes of
  an emptied table come before the rows of the same transaction: a table may be created
  from a query.
- The epoch rises if places start again or some were missed: with the binlog of another
  server, after a reset, or if unread files were purged. It is stored before it is used.

The checkpoint is JSON. It names only what is durable in rowtide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

from rowtide.connectors.sources.mysql.gtids import DomainGtids, Gtids, parse_gtids
from rowtide.connectors.sources.progress import SourceProgress, TableProgress

__all__ = ["MySqlCheckpoint", "Place", "place_of", "prefix"]

_PREFIX = Struct(">IIQII")


class Place(NamedTuple):
    """A place of the binlog: the number of a file, and an offset in the file."""

    file: int
    offset: int


def prefix(epoch: int, place: Place, *, event: int = 0, run: int = 0) -> bytes:
    """Return the first 24 bytes of a position. Eight bytes with the row's number follow."""
    return _PREFIX.pack(epoch, *place, event, run)


def place_of(file: str, offset: int) -> tuple[str, Place]:
    """Return the base name of the binlog's files, and the place."""
    name, _, number = file.rpartition(".")
    if not number.isdigit():
        raise ValueError(f"{file!r} is no file of a binlog.")
    return name, Place(int(number), offset)


@dataclass(slots=True)
class MySqlCheckpoint(SourceProgress[TableProgress]):
    """What is durable in rowtide. ``log`` is the base name of the binlog's files.

    ``server`` is the server's UUID if its kind has one. An empty ``log`` means that no
    binlog was read in this epoch. ``looks`` are those of ``Statements``.
    """

    kind: ClassVar[str] = "mysql"

    log: str = ""
    place: Place = field(default_factory=lambda: Place(0, 0))
    gtids: Gtids = field(default_factory=DomainGtids)
    server: str = ""
    looks: dict[str, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """See ``SourceProgress``."""
        tables = {name: TableProgress(**kept) for name, kept in found.pop("tables").items()}
        place, gtids = Place(*found.pop("place")), parse_gtids(found.pop("gtids"))
        looks = {name: Place(*end) for name, end in found.pop("looks", {}).items()}
        return cls(**found, place=place, gtids=gtids, tables=tables, looks=looks)

    def parts(self) -> Mapping[str, Any]:
        """See ``SourceProgress``."""
        return asdict(self) | {"gtids": self.gtids.text(), "place": list(self.place)}

    def begin_epoch(self, log: str, place: Place, gtids: Gtids, server: str) -> None:
        """Start a new epoch at a place that does not continue the former ones."""
        self.epoch += 1
        self.log, self.place, self.gtids, self.server = log, place, gtids, server
        self.looks.clear()

    def leave_out(self, tables: Iterable[str]) -> None:
        """Forget these tables. If they appear again, they are new."""
        for name in list(tables):
            self.tables.pop(name, None)
