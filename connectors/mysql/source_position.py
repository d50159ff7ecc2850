"""Where a source is: in the binlog, in its snapshots; and the positions that its rows get from it.

A **place** is a file of the binlog and an offset in it. Every transaction begins at one and ends at
the one where the next begins. A **position** is 32 bytes, big-endian, that rise with every row:

    epoch 4 | file 4 | offset 8 | event 4 | run 4 | row 8

- A row of the binlog: the place where its transaction begins, which event of rows it is in there
  (from 1), run 0, which row of the event. The same row has the same position however often it is
  read, so a shard that has it skips it.
- A row of a snapshot, of a sweep or of an emptied table: the place that it is as of, event 0 (1
  for an emptied table: the statement itself), the run, and a number that rises within the run. It
  is read again after a crash, and may then be another: each start has a higher run, so nothing is
  skipped.
- The epoch rises where places start anew or leave something out: another server's binlog, one that
  was reset, one that no longer has what was not read yet. It is kept before it is used.

The checkpoint is JSON. It names what is durable in rowtide, no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import NamedTuple, Self

__all__ = ["Checkpoint", "Place", "TableProgress", "gtid_text", "parsed_gtids", "prefix"]

_PREFIX = Struct(">IIQII")
_FORM = 1


class Place(NamedTuple):
    """A place of the binlog: the number in a file's name, an offset in the file."""

    file: int
    offset: int


def prefix(epoch: int, place: Place, *, event: int, run: int = 0) -> bytes:
    """Return the first 24 bytes of a position; eight of the row's number follow."""
    return _PREFIX.pack(epoch, *place, event, run)


def parsed_gtids(text: str) -> dict[int, str]:
    """Return the last GTID of each domain, as the server lists them."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return {int(part.split("-")[0]): part for part in parts}


def gtid_text(gtids: Mapping[int, str]) -> str:
    """Return GTIDs as the server takes them."""
    return ",".join(gtid for _, gtid in sorted(gtids.items()))


@dataclass(slots=True)
class TableProgress:
    """How far one table is.

    ``columns`` are (name, type) as of the last change of the table that was dealt with. ``cursor``
    are SQL literals of the last key copied, None before the first. ``copied``: the snapshot is
    done. ``sweep``: rowtide may have rows that the source has no more; they are looked for after
    it.
    """

    columns: list[list[str]] = field(default_factory=list)
    cursor: list[str] | None = None
    copied: bool = False
    sweep: bool = False

    def restart(self, *, sweep: bool) -> None:
        """Copy the table again from the beginning."""
        self.cursor, self.copied = None, False
        self.sweep = self.sweep or sweep


@dataclass(slots=True)
class Checkpoint:
    """What is durable in rowtide. ``log`` is the name that the binlog's files begin with."""

    epoch: int = 0
    run: int = 0
    log: str = ""
    place: Place = field(default_factory=lambda: Place(0, 0))
    gtids: dict[int, str] = field(default_factory=dict)
    tables: dict[str, TableProgress] = field(default_factory=dict)

    @classmethod
    def parsed(cls, text: bytes) -> Self:
        """Return a checkpoint that ``encoded`` made; a new one for no bytes."""
        if not text:
            return cls()
        found = json.loads(text)
        if found.pop("form") != _FORM:
            raise ValueError(f"The checkpoint was written by another version: {text!r}")
        tables = {name: TableProgress(**kept) for name, kept in found.pop("tables").items()}
        place, gtids = Place(*found.pop("place")), parsed_gtids(found.pop("gtids"))
        return cls(**found, place=place, gtids=gtids, tables=tables)

    def encoded(self) -> bytes:
        """Return the checkpoint as bytes."""
        found = asdict(self)
        found |= {"form": _FORM, "gtids": gtid_text(self.gtids), "place": list(self.place)}
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()

    def begin_epoch(self, log: str, place: Place, gtids: Mapping[int, str]) -> None:
        """Go on at a place that the former ones don't lead to."""
        self.epoch += 1
        self.log, self.place, self.gtids = log, place, dict(gtids)

    def leave_out(self, tables: Iterable[str]) -> None:
        """Know nothing of these tables: should they come again, they are new."""
        for name in list(tables):
            self.tables.pop(name, None)

    def restart(self, tables: Iterable[str], *, sweep: bool) -> None:
        """Copy these tables again from the beginning."""
        for name in tables:
            self.tables.setdefault(name, TableProgress()).restart(sweep=sweep)
