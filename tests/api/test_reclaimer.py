"""The reclaimer on a running server: run now, paused, resumed, shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import ask, get, key, put, rows, update
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

ROW = key("row", 1)


@pytest.fixture(autouse=True)
def by_hand(client: ProtocolClient) -> Iterator[None]:
    """Let nothing be reclaimed but what a test asks for, which is done however it is paused."""
    client.call_json("RowtidePauseReclaimer", {})
    yield
    client.call_json("RowtideResumeReclaimer", {})


def surplus(client: ProtocolClient, make_table: MakeTable, columns: int = 1) -> str:
    """Return a table that keeps fewer versions than its row has."""
    anything = 2**33
    table = make_table(
        options=pb.TableOptions(max_versions=9, deviation_cell_version_in_sec=anything)
    )
    for version in (1, 2, 3):
        cells = [Put(f"c{number:04d}", version, version) for number in range(columns)]
        ask(client, update(table, ROW, cells))
    keep(client, table, 1)
    return table


def keep(client: ProtocolClient, table: str, max_versions: int) -> None:
    """Change the table's max versions."""
    options = pb.TableOptions(max_versions=max_versions)
    ask(client, pb.UpdateTableRequest(table_name=table, table_options=options))


def versions(client: ProtocolClient, table: str) -> list[int | None]:
    """Return the versions that are seen of all columns."""
    found = rows(ask(client, get(table, ROW, max_versions=99)).row)
    return [cell.version_ms for row in found for cell in row.columns]


def reclaimers(client: ProtocolClient) -> list[dict[str, Any]]:
    """Return the state of every slot's reclaimer."""
    return [slot["reclaimer"] for slot in client.call_json("RowtideStatus", {})["slots"]]


@pytest.mark.parametrize("reclaimed", [False, True])
def test_surplus_versions_come_back_unless_reclaimed(
    client: ProtocolClient, make_table: MakeTable, reclaimed: bool
) -> None:
    table = surplus(client, make_table)
    assert versions(client, table) == [3]
    if reclaimed:
        assert client.call_json("RowtideReclaim", {"table": table}) == {
            "table": table,
            "rows": 1,
            "ranges": 1,
        }
    keep(client, table, 9)
    assert versions(client, table) == ([3] if reclaimed else [3, 2, 1])


def test_a_wide_row_is_reclaimed_in_ranges(client: ProtocolClient, make_table: MakeTable) -> None:
    table = surplus(client, make_table, columns=1000)
    done = client.call_json("RowtideReclaim", {"table": table})
    assert done["rows"] > 5
    keep(client, table, 9)
    assert versions(client, table) == [3] * 1000
    ask(client, put(table, ROW))
    assert versions(client, table) == []


def test_it_is_paused_and_resumed(client: ProtocolClient) -> None:
    assert client.call_json("RowtideResumeReclaimer", {}) == {"paused": False}
    assert not any(slot["paused"] for slot in reclaimers(client))
    assert client.call_json("RowtidePauseReclaimer", {}) == {"paused": True}
    assert all(slot["paused"] for slot in reclaimers(client))
    assert set(reclaimers(client)[0]) == {"paused", "shard", "passes", "rows", "ranges"}


def test_reclaiming_a_table_that_is_not_there_is_refused(client: ProtocolClient) -> None:
    with pytest.raises(ServerError, match="does not exist"):
        client.call_json("RowtideReclaim", {"table": "nowhere"})
