"""What is asked of a table and what it answers, as plain values: model and server take the same.

A key is (PK1, PK2): a text and a number. Versions are milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from rowtide.client.wire_row import Change, Put

Value = str | int | float | bool | bytes
Key = tuple[str, int]
NO_KEY = cast(Key, ())
INT64_MAX = 2**63 - 1


class Compare(NamedTuple):
    """One column against a value, by its newest version or by any."""

    column: str
    operator: str
    value: Value
    if_missing: bool
    latest_only: bool


class Combined(NamedTuple):
    """AND, OR or NOT of tests."""

    operator: str
    tests: tuple[Test, ...]


class Page(NamedTuple):
    """A page of a row's columns."""

    offset: int
    limit: int


Test = Compare | Combined


class Options(NamedTuple):
    """A table's options; -1 seconds to live is for ever."""

    ttl_s: int = -1
    max_versions: int = 1
    deviation_s: int = 86400


class Stream(NamedTuple):
    """A table's stream: how long its records are kept, and the original columns they show."""

    hours: int = 168
    originals: tuple[str, ...] = ()


class Write(NamedTuple):
    """One row's change. ``returns`` names the columns of RT_AFTER_MODIFY, none for RT_PK.

    ``assigned`` says that the server gives the key's number, which the model learns.
    """

    kind: str
    key: Key
    changes: tuple[Change, ...] = ()
    expect: str = "IGNORE"
    condition: Test | None = None
    returns: tuple[str, ...] | None = None
    assigned: bool = False


class Read(NamedTuple):
    """What is read of a row: versions in [start, end), the newest few of them, of some columns."""

    start_ms: int = 0
    end_ms: int = INT64_MAX
    newest: int = INT64_MAX
    columns: tuple[str, ...] = ()
    start_column: str = ""
    end_column: str | None = None
    filter: Test | Page | None = None


class Found(NamedTuple):
    """A row as it is answered: cells by name, newest first.

    ``key`` is ``NO_KEY`` where only modified cells are returned.
    """

    key: Key
    cells: tuple[Put, ...]


class Done(NamedTuple):
    """What a write answers: the row returned, and the units used."""

    row: Found | None
    read: int
    write: int


class Originals(NamedTuple):
    """A row's original columns before and after a change, and whether it existed before."""

    before: tuple[Put, ...]
    after: tuple[Put, ...]
    existed: bool


class Entry(NamedTuple):
    """A change as the stream shows it. ``max_versions`` was in force when it was made.

    ``at_ms`` is the time of its stamp. ``originals`` is None where the stream keeps none.
    """

    kind: str
    key: Key
    changes: tuple[Change, ...]
    originals: Originals | None
    max_versions: int
    at_ms: int


class Reclaimed(NamedTuple):
    """A place in the history, shown to nobody, where hidden versions were removed.

    Rows of the partition keys ``held`` kept theirs.
    """

    options: Options
    now_ms: int
    held: frozenset[str]


class Refused(Exception):
    """A request that is refused, or a row of a batch; nothing has changed."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
