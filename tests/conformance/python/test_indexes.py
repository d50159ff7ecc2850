"""Secondary indexes through the official Python SDK: made, followed, refused and dropped.

The SDK shows no phase of an index. So where an index has to catch up, it is read until it has what
it must have, and the test fails where that takes longer than ``CAUGHT_UP_S_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.conformance.python.conftest import KEY
from tests.conformance.python.test_batches import invalid, putting, write
from tests.conformance.python.test_rows import Key, read
from tests.conformance.python.test_tables import read_refusal
from tests.support.waiting import until

pytestmark = pytest.mark.system

CAUGHT_UP_S_MAX = 30.0
POLL_S = 0.02
COLUMNS = [("n", "INTEGER"), ("s", "STRING"), ("b", "BINARY"), ("d", "DOUBLE")]
NO_TABLE = (404, "OTSObjectNotExist", "Requested table does not exist.")
TAKEN = (409, "OTSObjectAlreadyExist", "Requested table already exists.")
LOCAL_READ = invalid("Disallow read local index")
KINDS = pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
_numbers = count()


class Indexed:
    """A table keyed pk1 STRING, pk2 INTEGER with defined columns n, s, b, d, and its indexes."""

    def __init__(self, ts: Any, sdk: Any, *indexes: Any, **options: Any) -> None:
        self.ts, self.sdk = ts, sdk
        self.name = f"python_indexed_{next(_numbers)}"
        self.make(self.name, *indexes, **options)

    def make(self, name: str, *indexes: Any, **options: Any) -> None:
        self.sdk.create_table(
            self.ts.TableMeta(name, KEY, COLUMNS),
            self.ts.TableOptions(**options),
            self.ts.ReservedThroughput(self.ts.CapacityUnit(0, 0)),
            list(indexes),
        )

    def put(self, first: str, second: int, **cells: Any) -> None:
        self.sdk.put_row(self.name, self.ts.Row(row_key(first, second), list(cells.items())))

    def update(self, first: str, second: int, **changes: Any) -> None:
        self.sdk.update_row(self.name, self.ts.Row(row_key(first, second), changes), None)

    def delete(self, first: str, second: int) -> None:
        self.sdk.delete_row(self.name, self.ts.Row(row_key(first, second)))

    def create(self, index: Any, *, base: bool) -> None:
        self.sdk.create_secondary_index(self.name, index, base)

    def rows(self, index: Any, *, backward: bool = False, limit: int | None = None) -> list[Any]:
        """Return an index's rows, page by page: the values of its key, then its columns."""
        low, high = ([(n, end) for n in whole_key(index)] for end in self._ends())
        start, end = (high, low) if backward else (low, high)
        direction = self.ts.Direction.BACKWARD if backward else self.ts.Direction.FORWARD
        found: list[Any] = []
        while start:
            page = self.sdk.get_range(index.index_name, direction, start, end, limit=limit)
            start = page[1]
            found += [
                (*(c[1] for c in row.primary_key), {c[0]: c[1] for c in row.attribute_columns})
                for row in page[2]
            ]
        return found

    def _ends(self) -> tuple[Any, Any]:
        return self.ts.INF_MIN, self.ts.INF_MAX

    def holds(self, index: Any, *wanted: Any) -> None:
        """Hold an index to its rows: a local one at once, a global one when it has caught up."""
        if index.index_type == self.ts.SecondaryIndexType.GLOBAL_INDEX:
            caught_up(lambda: self.rows(index) == list(wanted))
        assert self.rows(index) == list(wanted)
        assert self.rows(index, backward=True, limit=2) == list(wanted)[::-1]


def caught_up(holds: Callable[[], bool]) -> None:
    """Wait until something holds that an index has to catch up with."""
    until(holds, "the index caught up", s_max=CAUGHT_UP_S_MAX, poll_s=POLL_S)


def row_key(first: str, second: int) -> Key:
    return [("pk1", first), ("pk2", second)]


def by(ts: Any, *key: str, local: bool = False, columns: Any = (), name: str | None = None) -> Any:
    """Return an index, under a fresh name."""
    kinds = ts.SecondaryIndexType
    kind = kinds.LOCAL_INDEX if local else kinds.GLOBAL_INDEX
    return ts.SecondaryIndexMeta(
        name or f"python_index_{next(_numbers)}", list(key), list(columns), kind
    )


def by_n(ts: Any, *, local: bool, columns: Any = ("s",)) -> Any:
    """Return an index by the column n, of either kind."""
    return by(ts, *(["pk1", "n"] if local else ["n"]), local=local, columns=columns)


def whole_key(index: Any) -> list[str]:
    """Return an index's key with what is left of its table's."""
    given = list(index.primary_key_names)
    return given + [name for name, _ in KEY if name not in given]


def entry(index: Any, first: str, n: int, second: int, **columns: Any) -> Any:
    """Return a row as an index by n has it."""
    values = {"pk1": first, "n": n, "pk2": second}
    return (*(values[name] for name in whole_key(index)), columns)


@pytest.fixture
def make(ts: Any, sdk: Any) -> Iterator[Callable[..., Indexed]]:
    """Make tables that go after their test, with the indexes that they still have."""
    made: list[Indexed] = []

    def one(*indexes: Any, **options: Any) -> Indexed:
        made.append(Indexed(ts, sdk, *indexes, **options))
        return made[-1]

    yield one
    for table in made:
        sdk.delete_table(table.name)


class TestHowAnIndexIsShown:
    def test_by_its_table_with_the_key_that_was_asked_for(
        self, ts: Any, sdk: Any, make: Any
    ) -> None:
        local = by(ts, "pk1", "n", local=True, columns=["s", "d"])
        other = by(ts, "s", "n")
        table = make(local, other)
        later = by(ts, "b", columns=["n"])
        table.create(later, base=True)
        description = sdk.describe_table(table.name).secondary_indexes
        shown = [
            (i.index_name, i.primary_key_names, i.defined_column_names, i.index_type)
            for i in description
        ]
        kinds = ts.SecondaryIndexType
        assert shown == [
            (local.index_name, ["pk1", "n"], ["s", "d"], kinds.LOCAL_INDEX),
            (other.index_name, ["s", "n"], [], kinds.GLOBAL_INDEX),
            (later.index_name, ["b"], ["n"], kinds.GLOBAL_INDEX),
        ]

    def test_by_its_own_name_as_a_table_that_is_not_listed(
        self, ts: Any, sdk: Any, make: Any
    ) -> None:
        index = by(ts, "n", columns=["s"])
        table = make(index)
        description = sdk.describe_table(index.index_name)
        assert [tuple(c[:2]) for c in description.table_meta.schema_of_primary_key] == [
            ("n", "INTEGER"),
            ("pk1", "STRING"),
            ("pk2", "INTEGER"),
        ]
        assert (description.table_options.max_version, description.table_options.time_to_live) == (
            1,
            -1,
        )
        listed = sdk.list_table()
        assert table.name in listed
        assert index.index_name not in listed


class TestWhatAnIndexHolds:
    @KINDS
    def test_it_changes_and_goes_with_its_rows(self, ts: Any, make: Any, local: bool) -> None:
        index = by_n(ts, local=local)
        table = make(index)
        table.put("a", 1, n=20, s="x", other=1)
        table.put("a", 2, n=10)
        table.put("a", 3, s="without n")
        one, two = entry(index, "a", 10, 2), entry(index, "a", 20, 1, s="x")
        table.holds(index, one, two)
        table.update("a", 1, PUT=[("s", "y")])
        table.update("a", 2, INCREMENT=[("n", 15)])
        table.update("a", 3, PUT=[("n", 30)])
        two, one = entry(index, "a", 20, 1, s="y"), entry(index, "a", 25, 2)
        table.holds(index, two, one, entry(index, "a", 30, 3, s="without n"))
        table.update("a", 3, DELETE_ALL=["n"])
        table.delete("a", 1)
        table.put("a", 4, n=5)
        table.holds(index, entry(index, "a", 5, 4), one)

    @KINDS
    def test_a_row_of_it_is_found_by_its_key(
        self, ts: Any, sdk: Any, make: Any, local: bool
    ) -> None:
        index = by_n(ts, local=local, columns=["s", "b", "d"])
        table = make(index)
        cells = {"s": "Grüße 你好", "b": bytearray(b"\x00\xff"), "d": 0.5}
        table.put("a", 1, n=7, **cells)
        values: dict[str, Any] = {"pk1": "a", "n": 7, "pk2": 1}
        key = [(name, values[name]) for name in whole_key(index)]
        if not local:
            caught_up(lambda: read(sdk, index.index_name, key) is not None)
        assert read(sdk, index.index_name, key) == cells
        assert read(sdk, index.index_name, key, columns_to_get=["d"]) == {"d": 0.5}
        assert read(sdk, index.index_name, [*key[:2], (key[2][0], values[key[2][0]] * 2)]) is None
        request = ts.BatchGetRowRequest()
        request.add(ts.TableInBatchGetRowItem(index.index_name, [key], max_version=1))
        request.add(ts.TableInBatchGetRowItem(table.name, [row_key("a", 1)], max_version=1))
        result = sdk.batch_get_row(request)
        assert result.is_all_succeed()
        (found,) = result.get_result_by_table(index.index_name)
        assert {name: value for name, value, _ in found.row.attribute_columns} == cells

    def test_a_local_index_has_every_answered_write(self, ts: Any, sdk: Any, make: Any) -> None:
        index = by_n(ts, local=True)
        table = make(index)
        puts = [putting(ts, row_key("a", n), ("n", 100 - n)) for n in range(10)]
        gone = ts.DeleteRowItem(ts.Row(row_key("a", 5)), ts.Condition("IGNORE"))
        refused_row = ts.PutRowItem(
            ts.Row(row_key("a", 50), [("n", 1)]), ts.Condition("EXPECT_EXIST")
        )
        result = write(ts, sdk, {table.name: [*puts, gone, refused_row]})
        assert [item.is_ok for item in result.get_put_by_table(table.name)] == [True] * 10 + [False]
        wanted = [entry(index, "a", 100 - n, n) for n in reversed(range(10)) if n != 5]
        table.holds(index, *wanted)

    def test_a_transaction_reaches_it_with_its_commit(self, ts: Any, sdk: Any, make: Any) -> None:
        local, other = by_n(ts, local=True), by_n(ts, local=False)
        table = make(local, other)
        table.put("a", 1, n=1)
        within = sdk.start_local_transaction(table.name, [("pk1", "a")])
        row = ts.Row(row_key("a", 2), [("n", 5), ("s", "new")])
        sdk.put_row(table.name, row, transaction_id=within)
        sdk.delete_row(table.name, ts.Row(row_key("a", 1)), transaction_id=within)
        table.holds(local, entry(local, "a", 1, 1))
        table.holds(other, entry(other, "a", 1, 1))
        sdk.commit_transaction(within)
        table.holds(local, entry(local, "a", 5, 2, s="new"))
        table.holds(other, entry(other, "a", 5, 2, s="new"))
        aborted = sdk.start_local_transaction(table.name, [("pk1", "a")])
        sdk.put_row(table.name, ts.Row(row_key("a", 3), [("n", 6)]), transaction_id=aborted)
        sdk.abort_transaction(aborted)
        table.holds(local, entry(local, "a", 5, 2, s="new"))

    def test_a_local_index_is_not_read_within_a_transaction(
        self, ts: Any, sdk: Any, make: Any
    ) -> None:
        index = by_n(ts, local=True)
        table = make(index)
        within = sdk.start_local_transaction(table.name, [("pk1", "a")])
        names = whole_key(index)
        low, high = ([("pk1", "a"), *((n, end) for n in names[1:])] for end in table._ends())
        key = [("pk1", "a"), ("n", 1), ("pk2", 1)]
        name = index.index_name
        for call in (
            lambda: sdk.get_row(name, key, transaction_id=within),
            lambda: sdk.get_range(name, "FORWARD", low, high, transaction_id=within),
        ):
            assert read_refusal(ts, call) == LOCAL_READ
        sdk.abort_transaction(within)
        assert read(sdk, name, key) is None


class TestAnIndexOfAnOlderTable:
    @KINDS
    def test_has_the_rows_there_were_if_so_asked(
        self, ts: Any, sdk: Any, make: Any, local: bool
    ) -> None:
        table = make()
        for start in range(0, 1000, 200):
            puts = [putting(ts, row_key("a", n), ("n", n % 7)) for n in range(start, start + 200)]
            assert write(ts, sdk, {table.name: puts}).is_all_succeed()
        index = by_n(ts, local=local)
        table.create(index, base=True)
        table.delete("a", 0)
        table.put("b", 1, n=99, s="later")
        wanted = [entry(index, "a", n % 7, n) for n in range(1, 1000)]
        wanted = [*sorted(wanted, key=lambda row: row[:3]), entry(index, "b", 99, 1, s="later")]

        def has_all() -> bool:
            # A local index is refused while it is built, a global one is behind.
            try:
                return bool(table.rows(index) == wanted)
            except ts.OTSServiceError as failure:
                if local and failure.message == LOCAL_READ[2]:
                    return False
                raise

        caught_up(has_all)
        assert table.rows(index, backward=True, limit=333) == wanted[::-1]

    @KINDS
    def test_else_it_has_what_is_written_from_then_on(
        self, ts: Any, make: Any, local: bool
    ) -> None:
        table = make()
        for number in range(4):
            table.put("a", number, n=number)
        index = by_n(ts, local=local)
        table.create(index, base=False)
        table.holds(index)
        table.put("a", 1, n=10)
        table.update("a", 2, PUT=[("other", "the row is written")])
        table.delete("a", 0)
        table.holds(index, entry(index, "a", 2, 2), entry(index, "a", 10, 1))


class TestWhatIsDropped:
    @KINDS
    def test_an_index_is_gone_and_may_be_made_again(
        self, ts: Any, sdk: Any, make: Any, local: bool
    ) -> None:
        index = by_n(ts, local=local)
        table = make(index)
        table.put("a", 1, n=1)
        table.holds(index, entry(index, "a", 1, 1))
        sdk.delete_secondary_index(table.name, index.index_name)
        assert sdk.describe_table(table.name).secondary_indexes == []
        for call in (
            lambda: table.rows(index),
            lambda: sdk.get_row(index.index_name, row_key("a", 1)),
            lambda: sdk.describe_table(index.index_name),
            lambda: sdk.delete_secondary_index(table.name, index.index_name),
            lambda: sdk.delete_secondary_index("absent", index.index_name),
        ):
            assert read_refusal(ts, call) == NO_TABLE
        assert read(sdk, table.name, row_key("a", 1)) == {"n": 1}
        table.create(index, base=False)
        table.holds(index)
        table.put("a", 1, n=2)
        table.holds(index, entry(index, "a", 2, 1))

    def test_indexes_go_with_their_table(self, ts: Any, sdk: Any, make: Any) -> None:
        local, other = by_n(ts, local=True), by_n(ts, local=False)
        table = make(local, other)
        table.put("a", 1, n=1)
        table.holds(other, entry(other, "a", 1, 1))
        sdk.delete_table(table.name)
        for index in (local, other):
            assert read_refusal(ts, lambda i=index: table.rows(i)) == NO_TABLE
        table.make(table.name, local, other)
        for index in (local, other):
            table.holds(index)


KEYS = invalid("The number of primary key columns must be in range: [1, 4] in index.")
ATTRIBUTES = invalid("The number of attribute columns must be in range: [0, 32] in index.")


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("keys", "attributes", "expected"), [(0, 0, KEYS), (5, 0, KEYS), (1, 33, ATTRIBUTES)]
    )
    def test_an_index_beyond_its_limits_whether_its_table_is_there_or_not(
        self, ts: Any, sdk: Any, make: Any, keys: int, attributes: int, expected: Any
    ) -> None:
        index = by(
            ts, *(f"k{n}" for n in range(keys)), columns=[f"a{n}" for n in range(attributes)]
        )
        table = make()
        for name in (table.name, "absent"):
            call = read_refusal(ts, lambda n=name: sdk.create_secondary_index(n, index, False))
            assert call == expected
        assert read_refusal(ts, lambda: table.make("absent", index)) == expected
        assert read_refusal(ts, lambda: sdk.describe_table("absent")) == NO_TABLE

    def test_what_is_just_within_them(self, ts: Any, sdk: Any) -> None:
        columns = [(f"c{n}", "INTEGER") for n in range(32)]
        widest = by(ts, "c0", "c1", "c2", "c3", columns=["c4"])
        fullest = by(ts, "pk1", local=True, columns=[name for name, _ in columns])
        sdk.create_table(
            ts.TableMeta("python_widest", KEY, columns),
            ts.TableOptions(),
            ts.ReservedThroughput(ts.CapacityUnit(0, 0)),
            [widest, fullest],
        )
        description = sdk.describe_table("python_widest").secondary_indexes
        assert [(len(i.primary_key_names), len(i.defined_column_names)) for i in description] == [
            (4, 1),
            (1, 32),
        ]
        cells = [(name, number) for number, (name, _) in enumerate(columns)]
        sdk.put_row("python_widest", ts.Row(row_key("a", 1), cells))
        assert read(sdk, fullest.index_name, row_key("a", 1)) == dict(cells)
        key = [*cells[:4], *row_key("a", 1)]
        caught_up(lambda: read(sdk, widest.index_name, key) == {"c4": 4})
        low, high = ([(name, end) for name, _ in key] for end in (ts.INF_MIN, ts.INF_MAX))
        _, _, (found,), _ = sdk.get_range(widest.index_name, "FORWARD", low, high)
        assert [(name, value) for name, value, *_ in found.primary_key] == key
        sdk.delete_table("python_widest")

    def test_more_indexes_than_five_are_refused(self, ts: Any, make: Any) -> None:
        many = [by_n(ts, local=True) for _ in range(6)]
        quota = invalid("Number of index per table exceeds the quota:5.")
        table = make(*many[:5])
        assert read_refusal(ts, lambda: table.create(many[5], base=False)) == quota
        assert read_refusal(ts, lambda: table.make("absent", *many)) == quota

    def test_an_index_of_a_table_that_is_not_there_is_refused(self, ts: Any, sdk: Any) -> None:
        index = by_n(ts, local=False)
        call = read_refusal(ts, lambda: sdk.create_secondary_index("absent", index, True))
        assert call == NO_TABLE

    def test_an_index_that_does_not_fit_its_table_is_refused(self, ts: Any, make: Any) -> None:
        table = make()
        for index, text in (
            (by(ts, "m", name="x"), "Column 'm' of index 'x' is not a defined column."),
            (
                by(ts, "n", columns=["m"], name="x"),
                "Column 'm' of index 'x' is not a defined column.",
            ),
            (by(ts, "d"), "VT_DOUBLE is an invalid type for the primary key."),
            (by(ts, "n", "n", name="x"), "Duplicated column name: 'n' in index 'x'."),
            (by(ts, "#n"), "Invalid column name: '#n'."),
            (by(ts, "n", name="3x"), "Invalid table name: '3x'."),
            (
                by(ts, "n", "pk1", local=True, name="x"),
                "The first primary key column of local index 'x' must be 'pk1', the table's, "
                "but is 'n'.",
            ),
        ):
            assert read_refusal(ts, lambda i=index: table.create(i, base=True)) == invalid(text)
            assert read_refusal(ts, lambda i=index: table.make("absent", i)) == invalid(text)

    def test_a_name_that_is_taken(self, ts: Any, make: Any) -> None:
        index = by_n(ts, local=False)
        table = make(index)
        for name in (index.index_name, table.name):
            taken = by(ts, "n", name=name)
            assert read_refusal(ts, lambda i=taken: table.create(i, base=False)) == TAKEN
        assert read_refusal(ts, lambda: table.make(index.index_name)) == TAKEN

    def test_an_index_of_versions_or_of_a_lifetime(self, ts: Any, sdk: Any, make: Any) -> None:
        index = by_n(ts, local=True)
        versions = "The max_versions of a table with an index must be 1, but is 2."
        lifetime = "The time_to_live of a table with an index must be -1, but is 86400."
        for options, text in (({"max_version": 2}, versions), ({"time_to_live": 86400}, lifetime)):
            table = make(**options)
            assert read_refusal(ts, lambda t=table: t.create(index, base=False)) == invalid(text)
            indexed = make(by_n(ts, local=True))
            wanted = ts.TableOptions(**{"time_to_live": None, "max_version": None, **options})
            call = read_refusal(ts, lambda t=indexed, w=wanted: sdk.update_table(t.name, w))
            assert call == invalid(text)

    @KINDS
    def test_every_change_by_an_indexs_own_name(
        self, ts: Any, sdk: Any, make: Any, local: bool
    ) -> None:
        index = by_n(ts, local=local)
        make(index)
        name = index.index_name
        values = {"pk1": "a", "n": 1, "pk2": 1}
        key = [(column, values[column]) for column in whole_key(index)]
        expected = invalid(f"Table '{name}' is an index: it can only be read, and dropped.")
        for call in (
            lambda: sdk.put_row(name, ts.Row(key, [("s", "x")])),
            lambda: sdk.update_row(name, ts.Row(key, {"PUT": [("s", "x")]}), None),
            lambda: sdk.delete_row(name, ts.Row(key)),
            lambda: write(ts, sdk, {name: [putting(ts, key, ("s", "x"))]}),
            lambda: sdk.update_table(name, ts.TableOptions(-1, 1)),
            lambda: sdk.delete_table(name),
            lambda: sdk.create_secondary_index(name, by(ts, "s"), False),
            lambda: sdk.start_local_transaction(name, key[:1]),
        ):
            assert read_refusal(ts, call) == expected

    @KINDS
    def test_a_value_that_cannot_be_in_an_index(
        self, ts: Any, sdk: Any, make: Any, local: bool
    ) -> None:
        index = by_n(ts, local=local)
        table = make(index, by(ts, "b"))
        wrong = "Invalid column type for column n expect VT_INTEGER actual VT_STRING"
        long = (
            "The length of primary key column: 'b' exceeds the MaxLength:1024 with "
            "CurrentLength:1025."
        )
        for cell, text in ((("n", "1"), wrong), (("b", bytearray(1025)), long)):
            row = ts.Row(row_key("a", 1), {"PUT": [cell]})
            assert read_refusal(ts, lambda c=cell: table.put("a", 1, **dict([c]))) == invalid(text)
            assert read_refusal(ts, lambda r=row: sdk.update_row(table.name, r, None)) == invalid(
                text
            )
        assert read(sdk, table.name, row_key("a", 1)) is None
        table.put("a", 1, n=1, d="no index looks at it", b=bytearray(1024))
        table.holds(index, entry(index, "a", 1, 1))
