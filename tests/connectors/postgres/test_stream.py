"""What happens at PostgreSQL happens in rowtide."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.rows import SourceRow
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following, plain
from tests.connectors.running_source import check_lag

pytestmark = pytest.mark.system


async def test_rows_that_are_there_come_and_then_what_changes(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x text, y int)",
        "INSERT INTO shop.a VALUES (1, 'one', 1), (2, NULL, 2), (3, 'three', NULL)",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        assert plain(target.rows["a"]) == {
            1: {"x": "one", "y": 1},
            2: {"y": 2},
            3: {"x": "three"},
        }
        postgres.execute(
            "INSERT INTO shop.a VALUES (4, 'four', 4)",
            "UPDATE shop.a SET x = NULL, y = 10 WHERE id = 1",
            "DELETE FROM shop.a WHERE id = 2",
        )
        await running.settle()
    assert plain(target.rows["a"]) == {
        1: {"y": 10},
        3: {"x": "three"},
        4: {"x": "four", "y": 4},
    }
    assert [(row.whole, row.columns) for row in target.made[3:]] == [
        (True, {"x": "four", "y": 4}),
        (False, {"x": None, "y": 10}),
        (True, None),
    ]


async def test_it_tells_how_far_it_is_behind(postgres: PostgreSQL) -> None:
    postgres.execute("CREATE TABLE shop.a (id int PRIMARY KEY)", "CREATE TABLE public.b (n int)")
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        insert = "INSERT INTO shop.a SELECT generate_series(1, 100)"
        await check_lag(running, lambda: postgres.execute(insert))
        # What is of no concern is passed as well.
        postgres.execute("INSERT INTO public.b SELECT generate_series(1, 1000)")
        await running.wait_until_behind(lambda found: found.bytes == 0)


async def test_a_copy_tells_how_many_tables_are_left(postgres: PostgreSQL) -> None:
    for name in ("a", "b"):
        postgres.execute(
            f"CREATE TABLE shop.{name} (id int PRIMARY KEY)", f"INSERT INTO shop.{name} VALUES (1)"
        )
    target = MemoryTarget()
    target.open.clear()
    async with following(postgres, target) as running:
        await running.wait_until_behind(lambda found: found.copying == 2)
        target.open.set()
        await running.wait_until_behind(lambda found: found.copying == 0)


class _Weighing(MemoryTarget):
    """Notes how many bytes of texts were given at once."""

    most = 0

    async def write(self, rows: Sequence[SourceRow]) -> None:
        texts = [value for row in rows for value in (row.columns or {}).values()]
        self.most = max(self.most, sum(len(text) for text in texts if isinstance(text, str)))
        await super().write(rows)


async def test_wide_rows_are_copied_and_followed_a_few_at_a_time(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x text)",
        "INSERT INTO shop.a SELECT i, repeat('x', 1000000) FROM generate_series(1, 60) i",
    )
    target = _Weighing()
    async with following(postgres, target) as running:
        await running.settle()
        assert sorted(plain(target.rows["a"])) == list(range(1, 61))
        assert target.most < 10_000_000
        postgres.execute("UPDATE shop.a SET x = repeat('y', 1000000)")
        await running.settle()
        assert {row["x"][:2] for row in plain(target.rows["a"]).values()} == {"yy"}
        assert target.most < 20_000_000
