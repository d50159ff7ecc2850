"""What a source does when something is lost, moved, held back or cut in the middle."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.copying import checkpoint_keeper
from rowtide.connectors.sources.postgres import follower
from rowtide.connectors.sources.postgres.chunks import Required
from rowtide.connectors.sources.postgres.position import parse_lsn
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.postgres.visibility import Visible
from rowtide.core.values.errors import Rejected
from tests.connectors.memory_target import Crash, MemoryTarget
from tests.connectors.postgres.conftest import MakeServer
from tests.connectors.postgres.following import (
    Running,
    following,
    plain,
    source_of,
    wait_until_unread,
)
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROWS = 50
SLOT = "rowtide_shop"


def numbers(server: PostgreSQL) -> dict[Any, dict[str, Any]]:
    """Return the rows of ``shop.a``."""
    return {key: {"n": n} for key, n in server.rows("SELECT id, n FROM shop.a")}


def make_numbers(server: PostgreSQL) -> None:
    server.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, n int)",
        f"INSERT INTO shop.a SELECT i, i FROM generate_series(1, {ROWS}) i",
    )


async def follow_once(server: PostgreSQL, target: MemoryTarget) -> Running:
    """Follow until everything is there, and the server knows that nobody follows any more."""
    async with following(server, target) as running:
        await running.settle()
    await wait_until_unread(server)
    assert plain(target.rows["a"]) == numbers(server)
    return running


def miss_something(server: PostgreSQL) -> None:
    """Change rows that the source will not get."""
    server.execute(
        "DELETE FROM shop.a WHERE id % 3 = 0",
        "UPDATE shop.a SET n = -n WHERE id % 3 = 1",
        "INSERT INTO shop.a VALUES (1000, 1), (1001, 2)",
    )


async def test_a_start_that_is_given_up_leaves_no_socket_open(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(server: PostgresServer) -> None:
        raise Crash

    make_numbers(postgres)
    with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patched.setattr(PostgresServer, "mark", give_up)
        with pytest.raises(Crash):
            await source_of(postgres).run(MemoryTarget())
        gc.collect()
    assert [str(each.message) for each in warned] == []


async def test_a_slot_that_was_dropped_ends_in_a_new_copy(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    make_numbers(postgres)
    target = MemoryTarget()
    await follow_once(postgres, target)
    postgres.drop_slots()
    miss_something(postgres)
    running = await follow_once(postgres, target)
    assert running.read_checkpoint()["epoch"] == 2
    assert f"the slot {SLOT} is gone" in caplog.text


async def test_a_slot_that_somebody_moved_ends_in_a_new_copy(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    make_numbers(postgres)
    target = MemoryTarget()
    await follow_once(postgres, target)
    miss_something(postgres)
    postgres.rows(f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")
    running = await follow_once(postgres, target)
    assert running.read_checkpoint()["epoch"] == 2
    assert "another program moved it" in caplog.text


async def test_a_slot_whose_log_was_thrown_away_ends_in_a_new_copy(
    make_postgres: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_postgres("max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB")
    make_numbers(server)
    target = MemoryTarget()
    await follow_once(server, target)
    miss_something(server)
    for _ in range(4):
        server.rows("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'x', 'x')")
    server.execute("CHECKPOINT")
    assert server.rows("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
    running = await follow_once(server, target)
    assert running.read_checkpoint()["epoch"] == 2
    assert "has removed log" in caplog.text


async def test_a_rewound_source_copies_everything_again(postgres: PostgreSQL) -> None:
    make_numbers(postgres)
    target = MemoryTarget()
    await follow_once(postgres, target)
    source = source_of(postgres)
    assert source.begin_again(b"") == b""
    target.kept = source.begin_again(target.kept)
    lost, changed, *_ = target.rows["a"]
    del target.rows["a"][lost]
    target.rows["a"][changed] = {"n": -1}
    target.rows["a"][(("id", 5000),)] = {"n": 0}
    running = await follow_once(postgres, target)
    assert running.read_checkpoint()["epoch"] == 1, "the slot is the same"


async def test_one_table_is_copied_again_and_the_others_stay(postgres: PostgreSQL) -> None:
    make_numbers(postgres)
    postgres.execute("CREATE TABLE shop.b (id int PRIMARY KEY, n int)")
    postgres.execute("INSERT INTO shop.b SELECT id, n FROM shop.a")
    target = MemoryTarget()
    await follow_once(postgres, target)
    source = source_of(postgres)
    with pytest.raises(Rejected, match=r"no table c; it follows shop\.a, shop\.b"):
        source.begin_again(target.kept, ["a", "c"])
    strays = {"a": [("a",), ("shop.a",)], "b": [("b",)]}
    for table, namings in strays.items():
        for naming in namings:
            for stray in ("a", "b"):
                target.rows[stray][(("id", 5000),)] = {"n": 0}
            target.kept = source.begin_again(target.kept, naming)
            async with following(postgres, target) as running:
                await running.settle()
            astray = [name for name in ("a", "b") if (("id", 5000),) in target.rows[name]]
            assert astray == [name for name in ("a", "b") if name != table]


async def test_another_server_is_copied_anew(
    postgres: PostgreSQL, make_postgres: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    make_numbers(postgres)
    target = MemoryTarget()
    await follow_once(postgres, target)
    other = make_postgres()
    make_numbers(other)
    miss_something(other)
    running = await follow_once(other, target)
    assert running.read_checkpoint()["epoch"] == 2
    assert "the server is" in caplog.text


async def crash_after(rows: int, server: PostgreSQL) -> MemoryTarget:
    """Return what a source has made that crashed within its copy."""
    target = MemoryTarget()

    def fate(step: SourceRow | str) -> None:
        if len(target.made) == rows:
            raise Crash

    target.fate = fate
    with pytest.raises(Crash):
        await source_of(server, chunk_rows=10).run(target)
    target.fate = lambda step: None
    return target


async def test_a_copy_goes_on_where_it_was(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_keeper, "KEEP_S", 0.0)
    make_numbers(postgres)
    target = await crash_after(25, postgres)
    async with following(postgres, target, chunk_rows=10) as running:
        await running.settle()
    assert plain(target.rows["a"]) == numbers(postgres)
    assert len(target.made) <= ROWS + 10, "no more than the chunk in hand was read again"


def waiting_commits(server: PostgreSQL) -> int:
    """Return how many commits wait for a standby."""
    return len(server.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))


def let_commits_wait(server: PostgreSQL) -> threading.Thread:
    """Let commits wait for a standby that is missing. Return one that does.

    A process of the server takes the setting some time after it was given. Until then commits do
    not wait.
    """
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
    server.rows("SELECT pg_reload_conf()")
    probes: list[threading.Thread] = []

    def waits() -> bool:
        if not probes or not probes[-1].is_alive():
            message = "SELECT pg_logical_emit_message(true, 'probe', '')"
            probes.append(threading.Thread(target=server.execute, args=(message,)))
            probes[-1].start()
        return waiting_commits(server) == 1

    until(waits)
    return probes[-1]


async def test_a_transaction_that_the_server_does_not_show_yet(
    make_postgres: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is in the log, and in the stream, while it waits for a standby."""
    answers = []
    met = Required.is_met

    def note(required: Required, visible: Visible) -> bool:
        answers.append(met(required, visible))
        return answers[-1]

    monkeypatch.setattr(Required, "is_met", note)
    server = make_postgres()
    make_numbers(server)
    target = await crash_after(12, server)
    probe = let_commits_wait(server)
    update = "UPDATE shop.a SET n = 4711 WHERE id = 40"
    waiting = threading.Thread(target=server.execute, args=(update,))
    waiting.start()
    try:
        until(lambda: waiting_commits(server) == 2)
        async with following(server, target, chunk_rows=10) as running:
            await running.until(
                lambda: plain(target.rows["a"]).get(40) == {"n": 4711}, "it is in the stream"
            )
            assert numbers(server)[40] == {"n": 40}
            await running.until(
                lambda: not all(answers) or running.is_copied(), "the copy waits for it"
            )
            server.execute("ALTER SYSTEM RESET synchronous_standby_names")
            server.rows("SELECT pg_reload_conf()")
            await running.settle()
            assert plain(target.rows["a"]) == numbers(server)
            assert numbers(server)[40] == {"n": 4711}
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.rows("SELECT pg_reload_conf()")
        waiting.join()
        probe.join()


async def test_a_large_transaction_that_is_cut_in_the_middle(postgres: PostgreSQL) -> None:
    make_numbers(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        left = [3000]

        def fate(step: SourceRow | str) -> None:
            left[0] -= 1
            if left[0] in (0, -2000):
                raise Crash

        target.fate = fate
        made = len(target.made)
        postgres.execute(
            "INSERT INTO shop.a SELECT i, i FROM generate_series(1001, 5000) i;"
            "UPDATE shop.a SET n = n + 1 WHERE id > 1000;"
            "DELETE FROM shop.a WHERE id % 2 = 0 AND id > 1000"
        )
        await running.settle()
        assert running.lives == 3
    assert plain(target.rows["a"]) == numbers(postgres)
    assert len(target.made) == made + 10_000, "each change was made once"


async def test_a_truncate_that_is_cut_in_the_middle(postgres: PostgreSQL) -> None:
    make_numbers(postgres)
    postgres.execute("INSERT INTO shop.a SELECT i, i FROM generate_series(1001, 3500) i")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        left = [1700]

        def fate(step: SourceRow | str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Crash

        target.fate = fate
        postgres.execute("TRUNCATE shop.a; INSERT INTO shop.a VALUES (1, 2)")
        await running.settle()
        assert running.lives == 2
    assert plain(target.rows["a"]) == {1: {"n": 2}}


async def test_an_idle_source_is_not_said_to_have_more_than_it_has(postgres: PostgreSQL) -> None:
    make_numbers(postgres)
    postgres.execute("CREATE TABLE public.other (x text)")
    target = MemoryTarget()
    replies = set()
    async with following(postgres, target) as running:
        await running.settle()

        def has_replied() -> bool:
            postgres.execute("INSERT INTO public.other VALUES ('x')")
            replies.update(postgres.rows("SELECT reply_time FROM pg_stat_replication"))
            return len(replies) > 4

        await running.until(has_replied, "the source replies to the server")
        [(confirmed,)] = postgres.rows("SELECT confirmed_flush_lsn FROM pg_replication_slots")
        assert parse_lsn(confirmed) <= running.lsn()


async def test_the_server_is_told_of_no_more_than_is_kept(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "BEHIND_BYTES", 1000)
    make_numbers(postgres)
    postgres.execute("CREATE TABLE public.other (x text)")
    target = MemoryTarget()
    query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{SLOT}'"

    def read_confirmed() -> int:
        [(lsn,)] = postgres.rows(query)
        return parse_lsn(lsn)

    async with following(postgres, target) as running:
        await running.settle()

        def fate(step: SourceRow | str) -> None:
            assert read_confirmed() <= running.lsn()

        target.fate = fate
        begin = read_confirmed()
        for _ in range(2):
            # The tables that are followed do not change: marks let the slot go on.
            before = read_confirmed()
            postgres.execute(
                "INSERT INTO public.other SELECT i::text FROM generate_series(1, 100) i"
            )
            await running.until(lambda before=before: read_confirmed() > before, "the slot goes on")  # type: ignore[misc]
        postgres.execute("UPDATE shop.a SET n = n + 1")
        await running.settle()
    assert begin < read_confirmed() <= running.lsn()
    skipped = target.skipped
    await follow_once(postgres, target)
    assert target.skipped == skipped, "who stops repeats nothing"
