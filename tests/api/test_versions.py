"""Which versions are kept, hidden, chosen by a read and refused by a write."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Delete, Put, Row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import ask, get, key, put, puts, read_row, refusal, rows, update
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

INVALID = "400 OTSParameterInvalid "
DAY_S = 86400
EPOCH_TO_NOW_S = 2**33
"""A deviation that takes every version from 0 on."""
_numbers = count()


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table that keeps 100 versions of any age."""
    return make_table(
        options=pb.TableOptions(max_versions=100, deviation_cell_version_in_sec=EPOCH_TO_NOW_S)
    )


@pytest.fixture
def row() -> Any:
    """Return a key that no other test uses."""
    return key("row", next(_numbers))


def versions(found: Row | None, name: str = "c") -> list[int | None]:
    """Return the versions of one column as they were answered."""
    return [c.version_ms for c in found.columns if c.name == name] if found else []


def between(start: int, end: int) -> pb.TimeRange:
    """Return a time range, its end exclusive."""
    return pb.TimeRange(start_time=start, end_time=end)


def test_the_newest_versions_by_number_are_kept(
    client: ProtocolClient, table: str, row: Any
) -> None:
    for version in range(1, 1001, 200):
        cells = [Put("c", v, v) for v in range(version, version + 200)]
        ask(client, update(table, row, cells))
    ask(client, update(table, row, [Put("c", 5, 5)]))
    found = read_row(client, table, row, max_versions=2**31 - 1)
    assert versions(found) == list(range(1000, 900, -1))


READS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "the newest": ({"max_versions": 1}, [50]),
    "the newest two": ({"max_versions": 2}, [50, 40]),
    "more than there are": ({"max_versions": 9}, [50, 40, 30, 20, 10]),
    "a range, its end excluded": ({"time_range": between(20, 40)}, [30, 20]),
    "a range of nothing": ({"time_range": between(41, 50)}, []),
    "a range from zero": ({"time_range": between(0, 11)}, [10]),
    "the newest within a range": ({"time_range": between(10, 40), "max_versions": 2}, [30, 20]),
    "one version": ({"time_range": pb.TimeRange(specific_time=30)}, [30]),
    "one version that is not there": ({"time_range": pb.TimeRange(specific_time=31)}, []),
    "all of time": ({"time_range": between(0, 2**63 // 1000 - 1)}, [50, 40, 30, 20, 10]),
}


@pytest.mark.parametrize("case", READS)
def test_a_read_chooses_versions(client: ProtocolClient, table: str, row: Any, case: str) -> None:
    chosen, seen = READS[case]
    ask(client, put(table, row, [Put("c", v, v) for v in (30, 10, 50, 20, 40)]))
    fields = {"max_versions": None, **chosen}
    (found,) = rows(ask(client, get(table, row, **fields)).row)
    assert versions(found) == seen


def test_an_equal_version_is_overwritten(client: ProtocolClient, table: str, row: Any) -> None:
    ask(client, put(table, row, [Put("c", "old", 10)]))
    ask(client, update(table, row, [Put("c", "new", 10)]))
    found = read_row(client, table, row, max_versions=9)
    assert found is not None
    assert [(c.value, c.version_ms) for c in found.columns] == [("new", 10)]


def test_one_version_or_all_are_deleted(client: ProtocolClient, table: str, row: Any) -> None:
    ask(client, put(table, row, [Put("c", v, v) for v in (1, 2, 3)] + [Put("d", 1, 1)]))
    ask(client, update(table, row, [Delete("c", 2), Delete("c", 9)]))
    assert versions(read_row(client, table, row, max_versions=9)) == [3, 1]
    ask(client, update(table, row, [Delete("c")]))
    found = read_row(client, table, row, max_versions=9)
    assert (versions(found), versions(found, "d")) == ([], [1])


def test_cells_without_a_version_share_the_servers_time(
    client: ProtocolClient, table: str, row: Any
) -> None:
    before_ms = int(time.time() * 1000)
    ask(client, put(table, row, [Put("a", 1), Put("b", 2), Put("c", 3, 7)]))
    found = read_row(client, table, row)
    assert found is not None
    given = {c.name: c.version_ms or 0 for c in found.columns}
    assert given["a"] == given["b"]
    assert before_ms <= given["a"] <= int(time.time() * 1000) + 1
    assert given["c"] == 7


def test_versions_of_one_row_never_go_back(client: ProtocolClient, table: str, row: Any) -> None:
    for number in range(50):
        ask(client, update(table, row, puts(c=number)))
    found = read_row(client, table, row, max_versions=100)
    assert found is not None
    # Writes within one millisecond share a version: the later one wins.
    assert found.columns[0].value == 49
    seen = [c.value for c in found.columns]
    assert seen == sorted(seen, key=lambda value: -int(value))


@pytest.mark.parametrize(
    ("offset_s", "taken"), [(-90, True), (-110, False), (90, True), (110, False)]
)
def test_a_version_lies_within_the_offset_around_now(
    client: ProtocolClient, make_table: MakeTable, offset_s: int, taken: bool
) -> None:
    table = make_table(options=pb.TableOptions(deviation_cell_version_in_sec=100))
    version = (int(time.time()) + offset_s) * 1000
    for write in (put, update):
        answer = refusal(client, write(table, key("a", 1), [Put("c", 1, version)]))
        assert answer == "ok" if taken else answer.startswith(INVALID)


def test_a_version_already_expired_is_refused(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(
        options=pb.TableOptions(time_to_live=DAY_S, deviation_cell_version_in_sec=EPOCH_TO_NOW_S)
    )
    now_ms = int(time.time() * 1000)
    too_old = now_ms - (DAY_S + 60) * 1000
    assert refusal(client, put(table, key("a", 1), [Put("c", 1, too_old)])).startswith(INVALID)
    young = now_ms - (DAY_S - 60) * 1000
    assert refusal(client, put(table, key("a", 1), [Put("c", 1, young)])) == "ok"


def test_a_shorter_life_hides_at_once_and_a_longer_one_shows_again(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(
        options=pb.TableOptions(max_versions=9, deviation_cell_version_in_sec=EPOCH_TO_NOW_S)
    )
    now_ms = int(time.time() * 1000)
    ages_h = [1, 23, 25, 47, 49]
    at = [now_ms - age * 3_600_000 for age in ages_h]
    ask(client, put(table, key("a", 1), [Put("c", "x", version) for version in at]))

    def change_options(**changed: Any) -> list[int | None]:
        changes = pb.TableOptions(**changed)
        ask(client, pb.UpdateTableRequest(table_name=table, table_options=changes))
        found = read_row(client, table, key("a", 1), max_versions=9)
        assert found is not None, "a row whose cells have all expired is a row"
        return versions(found)

    assert change_options(time_to_live=2 * DAY_S) == at[:4]
    assert change_options(time_to_live=DAY_S) == at[:2]
    assert change_options(max_versions=1) == at[:1]
    assert change_options(max_versions=9, time_to_live=2 * DAY_S) == at[:4]
    assert change_options(time_to_live=-1) == at


def test_columns_and_versions_are_chosen_together(
    client: ProtocolClient, table: str, row: Any
) -> None:
    ask(client, put(table, row, [Put(name, v, v) for name in "abcd" for v in (1, 2)]))

    def read_cells(**fields: Any) -> list[tuple[str, int | None]] | None:
        found = read_row(client, table, row, **fields)
        return found and [(c.name, c.version_ms) for c in found.columns]

    assert read_cells(columns_to_get=["d", "b"]) == [("b", 2), ("d", 2)]
    assert read_cells(start_column="b", end_column="d") == [("b", 2), ("c", 2)]
    assert read_cells(start_column="c", max_versions=2) == [("c", 2), ("c", 1), ("d", 2), ("d", 1)]
    assert read_cells(columns_to_get=["x"]) is None, "no named column: no row"
    assert read_cells(columns_to_get=["x", "PK2"]) == [], "but a named key column keeps it"
    assert read_cells(columns_to_get=["a"], max_versions=None, time_range=between(5, 9)) is None
    assert read_cells(start_column="x") == []
