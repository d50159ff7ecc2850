"""Transactions of several clients are serialisable, in the order of the stream, across kill -9."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest

from rowtide.cli.client import ProtocolClient, StreamRecord
from rowtide.client.wire_row import Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import OK, ask, put, puts, read_row, refusal, shown
from tests.system.conftest import MakeServer
from tests.system.server import Server, wait_until
from tests.system.transfers import TABLE, TOTAL, Move, Mover, account, create_accounts

pytestmark = [pytest.mark.kafka, pytest.mark.system]


def move_amounts(
    server: Server, seed: int, *, kills: int, between: int
) -> tuple[dict[str, Move], list[str]]:
    """Let clients move amounts while the worker is killed; return their moves and their faults."""
    stop = threading.Event()
    movers = [Mover(server, stop, number, seed) for number in range(4)]
    for mover in movers:
        mover.start()
    try:
        for step in range(kills + 1):
            before = sum(mover.standing for mover in movers)
            wait_until(
                lambda before=before: sum(m.standing for m in movers) >= before + between,  # type: ignore[misc]
                what=f"{between} moves",
            )
            if step < kills:
                server.kill()
                server.start()
    finally:
        stop.set()
        for mover in movers:
            mover.join(60)
    moves = {mark: move for mover in movers for mark, move in mover.moves.items()}
    return moves, [fault for mover in movers for fault in mover.faults]


def check_serialisable(records: Sequence[StreamRecord], moves: dict[str, Move]) -> list[str]:
    """Hold every move to what stood before it; return the marks in the order of the stream."""
    state: dict[str, dict[int, int]] = {}
    marks: list[str] = []
    stamps = [r.row.sequence.timestamp_us for r in records if r.row.sequence is not None]
    assert all(a < b for a, b in pairwise(stamps)), "stamps must increase"
    for (mark, partition), group in groupby(records, key=read_mark):
        whole = list(group)
        rows = state.setdefault(partition, {})
        if mark != "start":
            marks.append(mark)
            move = moves[mark]
            assert move.stands is not False, f"{mark} was refused, and is in the stream"
            assert partition == move.partition
            if move.reads:
                assert move.reads == rows, f"{mark} read what did not stand before it"
        rows |= {int(str(r.row.key[1][1])): columns_of(r)[1] for r in whole}
        assert mark == "start" or sum(rows.values()) == TOTAL, f"{mark} is not whole"
    assert len(marks) == len(set(marks)), "a move stands in one piece, once"
    return marks


def read_mark(record: StreamRecord) -> tuple[str, str]:
    """Return the mark of a record's move, and its partition."""
    return columns_of(record)[0], str(record.row.key[0][1])


def columns_of(record: StreamRecord) -> tuple[str, int]:
    """Return a record's mark and balance."""
    values = {put.name: put.value for put in record.row.changes if isinstance(put, Put)}
    return str(values["by"]), int(values["v"])


def prove(server: Server, seed: int, *, kills: int, between: int) -> None:
    """Move, kill, and check."""
    server.start()
    with server.client() as client:
        create_accounts(client)
    moves, faults = move_amounts(server, seed, kills=kills, between=between)
    assert faults == []
    with server.client() as client:
        wait_until(lambda: readable(client), what="reads served")
        records = stream_of(client)
        marks = check_serialisable(records, moves)
    assert {mark for mark, move in moves.items() if move.stands} <= set(marks)


def test_transactions_of_many_clients_are_serialisable(make_worker: MakeServer, seed: int) -> None:
    prove(make_worker("--flush-s", "1"), seed, kills=1, between=150)


@pytest.mark.slow
def test_transactions_are_serialisable_across_many_kills(
    make_server: MakeServer, seed: int
) -> None:
    prove(make_server("--flush-s", "1"), seed, kills=8, between=600)


def stream_of(client: ProtocolClient) -> list[StreamRecord]:
    """Return every record of the table's one shard."""
    (stream,) = client.list_stream(TABLE)
    (shard,) = client.describe_stream(stream.stream_id).shards
    iterator: str | None = client.get_shard_iterator(stream.stream_id, shard.shard_id)
    records: list[StreamRecord] = []
    while iterator is not None:
        page = client.get_stream_record(iterator)
        if not page.records:
            break
        records += page.records
        iterator = page.next_iterator
    return records


def readable(client: ProtocolClient) -> bool:
    """True if reads are served."""
    return read_row(client, TABLE, account("p0", 0)) is not None


def is_flushed(client: ProtocolClient) -> bool:
    """True if the changelog has every row."""
    return all(
        shard["unflushed"] == 0
        for slot in client.call_json("RowtideStatus", {})["slots"]
        for shard in slot["shards"]
    )


def start_transaction(client: ProtocolClient, value: str) -> str:
    """Open a transaction on the accounts of ``value``."""
    key = encode_row(account(value, 0)[:1])
    answer = ask(client, pb.StartLocalTransactionRequest(table_name=TABLE, key=key))
    return str(answer.transaction_id)


@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_a_commit_is_repeated_after_a_kill(make_worker: MakeServer, disk: str) -> None:
    server = make_worker("--flush-s", "0.2", "--trim-s", "0.3")
    server.start()
    row = account("x", 1)
    with server.client() as client:
        create_accounts(client)
        finished, opened = start_transaction(client, "x"), start_transaction(client, "y")
        ask(client, put(TABLE, row, puts(v=1), transaction_id=finished))
        ask(client, put(TABLE, account("y", 1), puts(v=1), transaction_id=opened))
        assert refusal(client, pb.CommitTransactionRequest(transaction_id=finished)) == OK
        if disk == "lost":
            wait_until(lambda: is_flushed(client), what="the changelog complete")
    server.kill()
    if disk == "lost":
        shutil.rmtree(server.data_dir / "rows")
    server.start()
    with server.client() as client:
        wait_until(lambda: readable(client), what="reads served")
        assert refusal(client, pb.CommitTransactionRequest(transaction_id=finished)) == OK
        error = refusal(client, pb.CommitTransactionRequest(transaction_id=opened))
        assert error == "404 OTSSessionNotExist Session not exist or may be timeout."
        assert shown(read_row(client, TABLE, row)) == {"v": 1}
        assert read_row(client, TABLE, account("y", 1)) is None
        assert refusal(client, put(TABLE, account("y", 1), puts(v=2))) == OK, "nothing is held"
