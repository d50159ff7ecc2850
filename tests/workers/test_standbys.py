"""Copies of rows on workers that do not own them: reads within a bound, and a warm take-over."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.cli.main import main
from rowtide.client.wire_row import encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    delete,
    get,
    get_range,
    key,
    put,
    puts,
    read_row,
    refusal,
    rows,
    shown,
)
from tests.api.test_reshape import living, merge, shards, split
from tests.metric import metric
from tests.support.waiting import until
from tests.workers.conftest import SLOTS, Workers, repeat
from tests.workers.test_forwarding import CUTS, create

# Its tests share two workers: they stay in one process.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("standbys")]

COPYING = ("--standbys", "1", "--lease-ms", "1500")

LETTERS = "bfjosw"
"""One for each shard of a table cut at ``CUTS``."""

BOUND_MS = 2000


def number(client: ProtocolClient, name: str) -> float:
    return metric(client.endpoint, name)


def list_copies(client: ProtocolClient) -> dict[int, dict[str, Any]]:
    """Return the copies of a worker, by slot."""
    copies = client.call_json("RowtideStatus", {})["standbys"]
    return {copy["slot"]: copy for copy in copies}


def wait_until_warm(workers: Workers, what: str = "copies are warm") -> None:
    """Return once each slot has one copy, which has all that was acknowledged before the call."""
    began_s = time.monotonic()
    until(lambda: are_warm(workers, since_s=began_s), what)


def are_warm(workers: Workers, *, since_s: float) -> bool:
    """True if each slot has one copy, and all of it was there at ``since_s``, or later."""
    slots: list[int] = []
    for client in workers.clients:
        asked_s = time.monotonic()
        for slot, copy in list_copies(client).items():
            age_s, is_whole = copy["lag_s"], copy["warm"] and copy["lag_records"] == 0
            # A copy knows the end of a log as of its last read.
            if not is_whole or age_s is None or asked_s - age_s < since_s:
                return False
            slots.append(slot)
    return sorted(slots) == list(range(SLOTS))


@pytest.fixture(scope="module")
def two_workers(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Two workers that keep copies of each other's slots, for all tests but one."""
    with ExitStack() as closing:
        workers = Workers(tmp_path_factory.mktemp("pair"), broker, closing)
        for _ in range(2):
            workers.start(*COPYING)
        yield workers


@pytest.fixture
def pair(two_workers: Workers) -> Workers:
    """Both workers run, and there is only a new table of six shards."""
    two_workers.revive()
    for client in two_workers.clients:
        client.max_staleness_ms = None
    for name in two_workers.clients[0].list_table():
        repeat(partial(two_workers.clients[0].delete_table, name))
    create_copied_table(two_workers)
    return two_workers


def create_copied_table(workers: Workers) -> None:
    """Return once the slots are divided, and copies have the table."""
    workers.wait_until_divided()
    repeat(partial(ask, workers.clients[0], create("t", *CUTS)))
    wait_until_warm(workers)


def count_copied_reads(client: ProtocolClient) -> float:
    """Return how many reads the copies of a worker have answered."""
    return number(client, 'rowtide_bounded_reads_total{answered="copy"}')


def write(client: ProtocolClient, value: int, table: str = "t") -> None:
    """Write a row of each shard."""
    for letter in LETTERS:
        repeat(partial(ask, client, put(table, key(letter, 0), puts(n=value))))


def test_a_copy_answers_what_may_be_stale_and_misses_nothing_older(pair: Workers) -> None:
    """A writer notes when each value was acknowledged; no read within the bound misses one."""
    first, second = pair.clients
    acknowledged: list[float] = []
    stop = threading.Event()

    def write_on() -> None:
        while not stop.is_set():
            write(first, len(acknowledged))
            acknowledged.append(time.monotonic())

    writer = threading.Thread(target=write_on)
    writer.start()
    second.max_staleness_ms = BOUND_MS
    before, reads = count_copied_reads(second), 0
    try:
        while reads < 500 or len(acknowledged) < 100 or count_copied_reads(second) < before + 100:
            began_s = time.monotonic()
            times = list(acknowledged)
            least = sum(at < began_s - BOUND_MS / 1000 for at in times) - 1
            found = shown(read_row(second, "t", key(LETTERS[reads % 6], 0)))
            assert least < 0 or (found is not None and found["n"] >= least)
            reads += 1
            assert writer.is_alive(), "the writer failed"
    finally:
        stop.set()
        writer.join()


def test_ranges_and_batches_are_answered_where_every_shard_is(pair: Workers) -> None:
    client = pair.clients[1]
    write(client, 7)
    client.max_staleness_ms = BOUND_MS
    before = count_copied_reads(client)

    def read() -> bool:
        batch = ask(client, batch_get([("t", [key(letter, 0) for letter in LETTERS])]))
        shown_rows = [
            shown(row) for part in batch.tables for item in part.rows for row in rows(item.row)
        ]
        whole = ask(client, get_range("t", key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)))
        return shown_rows == [{"n": 7}] * 6 == [shown(row) for row in rows(whole.rows)]

    until(read, "the copies have what was written")
    until(lambda: read() and count_copied_reads(client) >= before + 2, "copies answer")


def test_a_bound_that_no_copy_keeps_is_answered_by_the_owner(pair: Workers) -> None:
    client = pair.clients[1]
    client.max_staleness_ms = 0
    before = count_copied_reads(client)
    for value in range(20):
        write(pair.clients[0], value)
        for letter in LETTERS:
            assert shown(read_row(client, "t", key(letter, 0))) == {"n": value}
    assert count_copied_reads(client) == before


def test_a_killed_workers_slots_open_on_the_copies_and_read_the_tail_alone(pair: Workers) -> None:
    first, second = pair.clients
    for value in range(200):
        write(first, value)
    wait_until_warm(pair, "copies have what was written")
    before = number(second, "rowtide_recovered_records_total")
    opened = number(second, "rowtide_recovery_seconds_count")
    pair.kill(0)
    write(second, 200)
    for letter in LETTERS:
        assert shown(read_row(second, "t", key(letter, 0))) == {"n": 200}
    until(
        lambda: all(slot["open"] for slot in second.call_json("RowtideStatus", {})["slots"]),
        "every slot is open",
    )
    shards = number(second, "rowtide_recovery_seconds_count") - opened
    assert shards == 3
    # The no-op of each opening, and no record that the copies had.
    assert number(second, "rowtide_recovered_records_total") - before == shards


def test_tables_made_changed_and_dropped_are_followed(pair: Workers) -> None:
    first, second = pair.clients
    second.max_staleness_ms = BOUND_MS
    for name in ("t", "u"):
        write(first, 1, name)
        repeat(partial(ask, first, pb.DeleteTableRequest(table_name=name)))
        assert refusal(second, get(name, key("b", 0))).split()[1] == "OTSObjectNotExist"
        repeat(partial(ask, first, create(name, *CUTS[:2])))
        # Made again: what the former one had is never shown, whatever the bound.
        for letter in LETTERS:
            assert shown(read_row(second, name, key(letter, 0))) is None
        repeat(partial(ask, first, put(name, key("b", 0), puts(n=2))))
        until(
            lambda name=name: shown(read_row(second, name, key("b", 0))) == {"n": 2},  # type: ignore[misc]
            "the row is seen",
        )
        if name == "t":
            repeat(partial(ask, first, create("u")))
    wait_until_warm(pair)


def test_a_copy_never_shows_half_a_transaction(pair: Workers) -> None:
    """Pairs of rows are written together, in a transaction each, and read by ranges of a copy."""
    first, second = pair.clients
    stop = threading.Event()
    written = [0]

    def write_on() -> None:
        while not stop.is_set():
            value = written[0]
            letter = LETTERS[value % 6]
            start = pb.StartLocalTransactionRequest(
                table_name="t", key=encode_row(key(letter, 0)[:1])
            )
            within = ask(first, start).transaction_id
            try:
                for row in range(4):
                    ask(first, put("t", key(letter, row), puts(n=value), transaction_id=within))
                ask(first, pb.CommitTransactionRequest(transaction_id=within))
            except ServerError as error:
                if error.code != "OTSSessionNotExist":
                    raise
                continue  # It ended as its slot went to the other worker, whose lease lasted.
            written[0] += 1

    second.max_staleness_ms = BOUND_MS
    writer = threading.Thread(target=write_on)
    writer.start()
    before, reads = count_copied_reads(second), 0
    try:
        while reads < 600 or written[0] < 120 or count_copied_reads(second) < before + 100:
            letter = LETTERS[reads % 6]
            page = get_range("t", key(letter, INF_MIN), key(letter, INF_MAX))
            values = [shown(row) for row in rows(ask(second, page).rows)]
            assert not values or values == [values[0]] * 4
            reads += 1
            assert writer.is_alive(), "the writer failed"
    finally:
        stop.set()
        writer.join()


def test_lost_rows_of_a_copy_are_made_again_and_are_those_of_the_owner(pair: Workers) -> None:
    """The directories of a worker are deleted; then its copies serve as owners, and agree."""
    first = pair.clients[0]
    wide = puts(**{f"c{number:03d}": "x" * 200 for number in range(400)})
    for letter in LETTERS:
        repeat(partial(ask, first, put("t", key(letter, 1), wide)))
        repeat(partial(ask, first, delete("t", key(letter, 0))))
    write(first, 5)
    before = everything(first)
    stopped = pair.running[1]
    stopped.stop()
    shutil.rmtree(pair.folder / "worker1" / "rows")
    pair.again(1)
    pair.wait_until_divided()
    wait_until_warm(pair)
    pair.kill(0)
    assert everything(pair.clients[1]) == before


def everything(client: ProtocolClient) -> list[Any]:
    """Return every row of the table as the wire has it."""
    page = get_range("t", key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX), max_versions=9)
    found: list[Any] = []
    while True:
        answer: Any = None

        def read() -> None:
            nonlocal answer
            answer = ask(client, page)

        repeat(read)
        found += rows(answer.rows)
        if not answer.next_start_primary_key:
            return found
        page.inclusive_start_primary_key = answer.next_start_primary_key


def test_a_third_worker_takes_copies_and_slots_over(workers: Workers) -> None:
    for _ in range(2):
        workers.start(*COPYING)
    create_copied_table(workers)
    write(workers.clients[0], 1)
    workers.start(*COPYING)
    workers.wait_until_divided()
    wait_until_warm(workers)
    assert all(list_copies(client) for client in workers.clients)
    workers.running[1].stop()
    workers.clients.pop(1)
    workers.wait_until_divided()
    wait_until_warm(workers)
    for client in workers.clients:
        assert {str(shown(read_row(client, "t", key(letter, 0)))) for letter in LETTERS} == {
            "{'n': 1}"
        }


def test_shards_that_are_split_and_merged_are_followed(pair: Workers) -> None:
    """While rows are written; in the end a kill shows that the copies are the owner's rows."""
    first, second = pair.clients
    values = iter(range(10**6))
    for client in pair.clients:
        client.max_staleness_ms = BOUND_MS
    for place, letter in ((0, "b"), (2, "f"), (3, "j")):  # The first one becomes two.
        write(first, next(values))
        living = [shard["shard"] for shard in shards(first, "t") if shard["state"] == "open"]
        for row in range(20):
            repeat(partial(ask, first, put("t", key(f"{letter}x", row), puts(n=row))))
        children = split(first, "t", living[place], f"{letter}w")
        write(second, next(values))
        if place:
            merge(first, "t", *children)
            write(second, next(values))
    last = next(values)
    write(first, last)

    def current() -> bool:
        return all(
            shown(read_row(client, "t", key(letter, 0))) == {"n": last}
            for client in pair.clients
            for letter in LETTERS
        )

    until(current, "the copies have what was written")
    wait_until_warm(pair)
    first.max_staleness_ms = second.max_staleness_ms = None
    before = everything(first)
    assert len(before) == 6 + 3 * 20
    pair.kill(0)
    assert everything(second) == before


def test_a_shard_that_moves_and_comes_back_is_followed(pair: Workers) -> None:
    """Rows that were deleted elsewhere stay so, and those that were not are there."""
    first, second = pair.clients
    write(first, 0)
    [shard, *_] = living(first, "t")
    home = next(int(s["slot"]) for s in shards(first, "t") if s["shard"] == shard)
    for row in range(30):
        repeat(partial(ask, first, put("t", key("a", row), puts(n=row))))
    wait_until_warm(pair)
    for slot in ((home + 1) % SLOTS, home, (home + 3) % SLOTS, home):
        done = first.call_json("RowtideMoveShard", {"table": "t", "shard": shard, "slot": slot})
        [shard] = done["children"]
        repeat(partial(ask, second, delete("t", key("a", slot))))
    write(second, 9)
    wait_until_warm(pair)
    before = everything(first)
    gone = {home, (home + 1) % SLOTS, (home + 3) % SLOTS}
    assert len(before) == 6 + 30 - len(gone)
    second.max_staleness_ms = BOUND_MS
    until(lambda: everything(second) == before, "the copies have what was written")
    second.max_staleness_ms = None
    pair.kill(0)
    assert everything(second) == before


def test_the_command_line_may_ask_a_copy(pair: Workers) -> None:
    first, second = pair.clients
    write(first, 4)
    wait_until_warm(pair)
    asked = ["--data-dir", str(pair.folder / "worker0"), "--endpoint", second.endpoint]
    options = [*asked, "--output", "json", "--max-staleness-ms", str(BOUND_MS)]

    def shows_a_copy(*command: str) -> bool:
        before = count_copied_reads(second)
        result = CliRunner().invoke(main, ["row", *command, *options])
        assert result.exit_code == 0, result.output
        assert set(re.findall(r'"n": (\d+)', result.output)) == {"4"}
        return count_copied_reads(second) > before

    until(
        lambda: any(shows_a_copy("get", "t", f"PK1={letter}", "PK2=0") for letter in LETTERS),
        "a copy answers a get",
    )
    until(partial(shows_a_copy, "scan", "t"), "a copy answers a scan")
    result = CliRunner().invoke(main, ["cluster", "status", *asked])
    assert result.output.count("  warm  ") == SLOTS
