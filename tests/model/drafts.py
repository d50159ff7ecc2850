"""What the machine draws: requests in terms of what is there when they are made.

A draft names versions by their distance to the clock or by their place among those stored, keys of
the second table by their place among those that the server gave.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.model.requests import Combined, Compare, Options, Page, Stream, Test, Value

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
PARTITIONS = ("a", "n")
COLUMNS = ("c1", "c2", "c3", "w05")
DEVIATION_S_MAX = 2**32


class VersionDraft(NamedTuple):
    """A version ``distance_ms`` from the clock, or the stored one of that number."""

    distance_ms: int = 0
    stored: int | None = None


class ChangeDraft(NamedTuple):
    """A change of one column: put a value, delete, or add (an integer value)."""

    op: str
    column: str
    value: Value
    version: VersionDraft | None


class WriteDraft(NamedTuple):
    """A write. ``wide`` adds thirty columns of 2000 bytes, which make a row of many chunks."""

    table: int
    kind: str
    partition: str
    number: int
    changes: list[ChangeDraft]
    expect: str
    condition: Test | None
    returns: str
    wide: bool


class ReadDraft(NamedTuple):
    """A read; without bounds it is of the newest versions."""

    start: VersionDraft | None
    end: VersionDraft | None
    exact: bool
    newest: int | None
    columns: tuple[str, ...]
    start_column: str
    end_column: str | None
    filter: Test | Page | None


class Bound(NamedTuple):
    """An end of a range; a missing value is an infinite one."""

    partition: str | None
    number: int | None


values: st.SearchStrategy[Value] = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, -(2**63), 0.0, -0.0, 1.5, -1e300, "", "b", "é", b"", b"\xff\x00"]),
    st.booleans(),
    st.sampled_from(["x" * 3000, b"y" * 5000]),
)
versions = st.one_of(
    st.builds(
        VersionDraft,
        st.sampled_from([0, 1, -1, 999, -1000, 5000, -(10**9)])
        | st.sampled_from(
            [-DAY_MS, -DAY_MS - 1000, -DAY_MS + 1000, -2 * DAY_MS, -2 * DAY_MS - 1000]
        )
        | st.sampled_from([DAY_MS, DAY_MS - 1000, 2 * DAY_MS]),
        st.none(),
    ),
    st.builds(VersionDraft, st.just(0), st.integers(0, 5)),
)
columns = st.sampled_from(("c1", "c1", "c1", *COLUMNS))
changes = st.one_of(
    st.builds(ChangeDraft, st.just("put"), columns, values, st.none() | versions),
    st.builds(ChangeDraft, st.just("put"), columns, st.integers(-1, 1), st.none() | versions),
    st.builds(ChangeDraft, st.just("put"), st.just("c1"), st.integers(-1, 1), versions),
    st.builds(ChangeDraft, st.just("delete"), columns, st.just(0), st.none() | versions),
    st.builds(ChangeDraft, st.just("add"), columns, st.integers(-3, 3), st.none()),
)
compares = st.builds(
    Compare,
    st.sampled_from(("c1", "c1", "c1", *COLUMNS, "PK1", "PK2")),
    st.sampled_from(["EQ", "NE", "GT", "GE", "LT", "LE"]),
    st.integers(-1, 1) | st.integers(-1, 1) | st.sampled_from(["", "b", "n", b"", 0.0, True]),
    st.booleans(),
    st.booleans(),
)
combined = st.one_of(
    st.builds(Combined, st.just("NOT"), st.tuples(compares)),
    st.builds(Combined, st.sampled_from(["AND", "OR"]), st.tuples(compares, compares)),
)
nested = st.builds(Combined, st.sampled_from(["AND", "OR"]), st.tuples(combined, compares))
tests: st.SearchStrategy[Test] = st.one_of(compares, compares, combined, nested)
writes = st.builds(
    WriteDraft,
    table=st.sampled_from([0, 0, 0, 0, 1, 1, 2]),
    kind=st.sampled_from(["PUT", "PUT", "UPDATE", "UPDATE", "UPDATE", "UPDATE", "DELETE"]),
    partition=st.sampled_from(PARTITIONS),
    number=st.integers(0, 2),
    changes=st.just([]) | st.lists(changes, min_size=3, max_size=8),
    expect=st.sampled_from(["IGNORE", "IGNORE", "IGNORE", "EXPECT_EXIST", "EXPECT_NOT_EXIST"]),
    condition=st.one_of(st.none(), st.none(), st.none(), tests),
    returns=st.sampled_from(["nothing", "nothing", "key", "modified", "wrong"]),
    wide=st.sampled_from([False] * 15 + [True]),
)
reads = st.builds(
    ReadDraft,
    start=st.one_of(st.none(), st.none(), versions),
    end=st.one_of(st.none(), st.none(), versions),
    exact=st.booleans(),
    newest=st.one_of(st.none(), st.none(), st.integers(1, 4)),
    columns=st.just(())
    | st.just(())
    | st.lists(st.sampled_from((*COLUMNS, "PK2")), max_size=3).map(tuple),
    start_column=st.sampled_from(["", "", "", "c2", "w03"]),
    end_column=st.sampled_from([None, None, None, "c2", "c3", "w10"]),
    filter=st.one_of(
        st.none(), st.none(), tests, st.builds(Page, st.integers(0, 3), st.integers(1, 4))
    ),
)
bounds = st.builds(Bound, st.none() | st.sampled_from(PARTITIONS), st.none() | st.integers(0, 3))
first_changes = st.lists(
    st.builds(
        ChangeDraft,
        st.just("put"),
        st.sampled_from(("c1", "c1", "c2", "c3")),
        st.integers(-1, 1),
        st.none() | st.builds(VersionDraft, st.sampled_from([-1000, -2000, 5000]), st.none()),
    ),
    min_size=3,
    max_size=6,
)
"""What a row has at first: several versions, which differ."""
options = st.builds(
    Options,
    st.sampled_from([-1, -1, 86400, 2 * 86400]),
    st.sampled_from([1, 2, 3, 5]),
    st.sampled_from([86400, 2 * 86400, DEVIATION_S_MAX, DEVIATION_S_MAX]),
)
streams = st.builds(
    Stream,
    st.sampled_from([168, 168, 24, 1]),
    st.sampled_from([(), (), ("c1",), ("c3", "c1")]),
)
jumps_ms = st.sampled_from(
    [1, 1000, 999, HOUR_MS, HOUR_MS + 1, DAY_MS - 1000, DAY_MS, DAY_MS + 1000]
)
