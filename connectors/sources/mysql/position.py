"""Where a source is: in the binlog, in its snapshots; and the positions that its rows get from it.

A **place** is a file of the binlog and an offset in it. Every transaction begins at one and ends at
the one where the next begins. A **position** is 32 bytes, big-endian, that rise with every row:

    epoch 4 | file 4 | offset 8 | event 4 | run 4 | row 8

- A row of the binlog: the place where its transaction begins, which event of rows it is in there
  (from 1), run 0, which row of the event. The same row has the same position however often it is
  read, so a shard that has it skips it.
- A row of a snapshot, of a sweep or of an emptied table: the place that it is as of, event 0, the
  run, and a number that rises within the run. It is read again after a crash, and may then be
  another: each start has a higher run, so nothing is skipped. What empties a table comes before
  the rows of its own transaction: a table may be made of a query.
- The epoch rises where places start anew or leave something out: another server's binlog, one that
  was reset, one that no longer has what was not read yet. It is kept before it is used.

The checkpoint is JSON. It names what is durable in rowtide, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

from rowtide.connectors.sources.mysql.gtids import DomainGtids, Gtids, parsed_gtids
from rowtide.connectors.sources.progress import SourceProgress, TableProgress

__all__ = ["MySqlCheckpoint", "Place", "place_of", "prefix"]

_PREFIX = Struct(">IIQII")


class Place(NamedTuple):
    """A place of the binlog: the number in a file's name, an offset in the file."""

    file: int
    offset: int


def prefix(epoch: int, place: Place, *, event: int = 0, run: int = 0) -> bytes:
    """Return the first 24 bytes of a position; eight of the row's number follow."""
    return _PREFIX.pack(epoch, *place, event, run)


def place_of(file: str, offset: int) -> tuple[str, Place]:
    """Return what the binlog's files are named like, and the place."""
    name, _, number = file.rpartition(".")
    if not number.isdigit():
        raise ValueError(f"{file!r} is no file of a binlog.")
    return name, Place(int(number), offset)


@dataclass(slots=True)
class MySqlCheckpoint(SourceProgress[TableProgress]):
    """What is durable in rowtide. ``log`` is the name that the binlog's files begin with.

    ``server`` is the server's own number, where its kind has one. Without a ``log`` nothing was
    read of a binlog in this epoch. ``looks`` are those of ``Statements``.
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
        place, gtids = Place(*found.pop("place")), parsed_gtids(found.pop("gtids"))
        looks = {name: Place(*end) for name, end in found.pop("looks", {}).items()}
        return cls(**found, place=place, gtids=gtids, tables=tables, looks=looks)

    def parts(self) -> Mapping[str, Any]:
        """See ``SourceProgress``."""
        return asdict(self) | {"gtids": self.gtids.text(), "place": list(self.place)}

    def begin_epoch(self, log: str, place: Place, gtids: Gtids, server: str) -> None:
        """Go on at a place that the former ones don't lead to."""
        self.epoch += 1
        self.log, self.place, self.gtids, self.server = log, place, gtids, server
        self.looks.clear()

    def leave_out(self, tables: Iterable[str]) -> None:
        """Know nothing of these tables: should they come again, they are new."""
        for name in list(tables):
            self.tables.pop(name, None)
