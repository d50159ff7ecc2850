"""Which shards a reader takes, and whom it asks for one."""

from __future__ import annotations

import pytest

from rowtide.client.changes.lease_balance import plan_leases, plan_owned, readable
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.source import SourceShard


def shards(*names: str) -> list[SourceShard]:
    """Return shards by name; ``c<ab`` is one whose parents are a and b."""
    split = (name.partition("<") for name in names)
    return [SourceShard(name, tuple(parents), b"", b"") for name, _, parents in split]


def leases(text: str) -> dict[str, ReaderLease]:
    """Return rows: ``a:me b: c:x>me d!`` are mine, free, x's that I want, and ended."""
    found = {}
    for part in text.split():
        name, _, owner = part.partition(":")
        owner, _, wanted = owner.partition(">")
        shard = name.removesuffix("!")
        found[shard] = ReaderLease(shard, owner=owner, wanted=wanted, ended=name.endswith("!"))
    return found


READABLE = """
case                                     shards        rows      readable
a shard that nobody has read             a             -         a
one that is read to its end              a b           a!        b
a child waits for its parent             a b<a         a:x       a
a child whose parent is read             a b<a         a!        b
a child waits for both of its parents    a b c<ab      a!        b
a parent that is kept no more            b<a           -         b
"""


PLANS = """
case                                     shards    rows              expired   takes    asks
alone it takes all                       a b c     -                 -         a b c    -
half of what there is beside another     a b c d   a:x b:x           -         c d      -
no more than its share                   a b c d   a:me b:me c:x     -         -        -
the larger half where it is uneven       a b c     a:x               -         b c      -
what a crashed reader had                a b       a:x b:x           a b       a b      -
it asks the fullest for one              a b c d   a:x b:x c:x d:x   -         -        a
not for what is asked for already        a b c d   a:x>y b:x c:x d:x -         -        b
once at a time                           a b c d   a:x>me b:x c:x d:x -        -        -
not to be fuller than who is asked       a b c     a:x b:x c:me      -         -        -
what was given up for it                 a b       a:>me b:x         -         a        -
not what was given up for another        a b       a:>y b:x          -         -        -
unless that one never comes              a b       a:>y b:x          a         a        -
whoever never came has no share          a b       a:>y b:me         a         a        -
one shard has one reader                 a         a:x               -         -        -
"""

OWNED = """
case                                     shards    owned     rows          expired   takes
it takes all that it owns                a b c     a c       -             -         a c
also more than an even share             a b c d   a b c     d:x           -         a b c
not what its former reader still has     a b       a b       a:x           -         b
what a crashed reader had                a b       a b       a:x           a         a b
nothing of others, also if it is free    a b       a         a:me b:       b         -
nothing while it owns nothing            a b       -         a:me          a         -
"""


def lines(table: str) -> list[list[str]]:
    """Return the cells of a table, whose columns begin where its head's do."""
    head, *rows = table.strip().splitlines()
    starts = [i for i in range(len(head)) if head[i] != " " and (i == 0 or head[i - 1] == " ")]
    ends = [*starts[1:], None]
    found = [[row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in rows]
    return [["" if cell == "-" else cell for cell in row] for row in found]


@pytest.mark.parametrize(("case", "listed", "rows", "expected"), lines(READABLE))
def test_parents_are_read_before_their_children(
    case: str, listed: str, rows: str, expected: str
) -> None:
    found = readable(shards(*listed.split()), leases(rows))
    assert " ".join(shard.shard_id for shard in found) == expected, case


@pytest.mark.parametrize(("case", "listed", "rows", "expired", "takes", "asks"), lines(PLANS))
def test_each_takes_its_share(
    case: str, listed: str, rows: str, expired: str, takes: str, asks: str
) -> None:
    plan = plan_leases("me", shards(*listed.split()), leases(rows), expired.split())
    assert " ".join(shard.shard_id for shard in plan.take) == takes, case
    assert ("" if plan.ask is None else plan.ask.shard_id) == asks, case


@pytest.mark.parametrize(("case", "listed", "owned", "rows", "expired", "takes"), lines(OWNED))
def test_a_reader_with_partitions_takes_exactly_what_it_owns(
    case: str, listed: str, owned: str, rows: str, expired: str, takes: str
) -> None:
    plan = plan_owned(
        "me", shards(*listed.split()), leases(rows), expired.split(), owned.split().__contains__
    )
    assert " ".join(shard.shard_id for shard in plan.take) == takes, case
    assert plan.ask is None, case
