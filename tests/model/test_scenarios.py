"""What random steps found, or would seldom find, told one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowtide.cli.wire_row import Delete, Put, encoded
from rowtide.core.wire import ots_pb2 as pb
from tests.api.calls import OK, ask, get, key, put, refusal, stored, update
from tests.model.drafts import DAY_MS
from tests.model.pair import Pair
from tests.model.requests import Options
from tests.model.table_model import TableModel
from tests.model.world import World

pytestmark = [pytest.mark.system, pytest.mark.kafka]

ROW = key("a", 1)


@pytest.fixture
def table(world: World) -> Iterator[str]:
    """Return a table whose cells live for a day."""
    world.set_clock(world.high_ms + 1)
    model = TableModel(Options(ttl_s=86400), split=None, auto=False, originals=())
    name = Pair(world, model).name
    yield name
    world.client.delete_table(name)


def test_a_transaction_commits_over_a_row_that_was_reclaimed_meanwhile(
    world: World, table: str
) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    world.set_clock(world.now_ms + 2 * DAY_MS)
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encoded(key("a")))
    transaction_id = ask(world.client, begin).transaction_id
    ask(world.client, update(table, ROW, [Delete("c")], transaction_id=transaction_id))
    world.client.call_json("RowtideReclaim", {"table": table})
    assert stored(world.client, table, ROW) is None
    commit = pb.CommitTransactionRequest(transaction_id=transaction_id)
    assert refusal(world.client, commit) == OK
    assert refusal(world.client, put(table, ROW, [Put("c", 2)])) == OK, "the key is free again"


def test_an_expired_row_is_there_until_it_is_reclaimed(world: World, table: str) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    world.set_clock(world.now_ms + 2 * DAY_MS)
    found = stored(world.client, table, ROW)
    assert found is not None
    assert found.columns == ()
    world.client.call_json("RowtideReclaim", {"table": table})
    assert not ask(world.client, get(table, ROW)).row


def test_versions_of_the_server_never_go_back_with_its_clock(world: World, table: str) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    high_ms = world.now_ms
    world.set_clock(high_ms - DAY_MS // 2)
    world.restart(kill=True)
    ask(world.client, update(table, ROW, [Put("c", 2)]))
    found = stored(world.client, table, ROW)
    assert found is not None
    assert found.columns == (Put("c", 2, high_ms),)
    world.set_clock(high_ms)
