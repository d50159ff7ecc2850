"""The stream as its readers see it: read live while things break, and whole in the end.

A live reader goes on from the position it holds, of any worker, whatever answer it missed: what it
collects is to be the beginning of what stands in the end, each record once and at one place.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message

from rowtide.client.wire_row import Put, change_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.histories.client import NoAnswer, NotSent, WorkerClient
from tests.histories.load import UNAVAILABLE
from tests.histories.requests import TABLE, key_text

__all__ = ["Record", "StreamFailed", "Tail", "follow", "read_shard", "shards_of"]

Answered = TypeVar("Answered", bound=Message)

RETRIED = UNAVAILABLE | {"OTSTimeout"}
TRY_S_MAX = 150.0
"""As long as the longest strike, and as a slot then has until it is served again."""
PAUSE_S = 0.02
LOOK_S = 2.0
"""Between two looks for shards that are new."""


class StreamFailed(Exception):
    """A reader got a wrong answer, or none for too long."""


class Record(NamedTuple):
    """One change of a row; ``place`` is (epoch, timestamp in us, row index)."""

    key: str
    kind: str
    mark: str | None
    number: int | None
    place: tuple[int, int, int]


class Empty(NamedTuple):
    """A page without records: when it was asked for, and how many had been read before."""

    invoked_s: float
    read: int


@dataclass(slots=True)
class Tail:
    """What a live reader of one shard collected."""

    shard_id: str
    records: list[Record] = field(default_factory=list)
    empty: list[Empty] = field(default_factory=list)
    failure: str = ""


async def _ask(
    worker: WorkerClient, operation: str, request: Message, answer: type[Answered]
) -> Answered:
    code, body = await worker.call(operation, request.SerializeToString(), timeout_s=3.0)
    if not code:
        return answer.FromString(body)
    if code in RETRIED or code in worker.passing:
        raise NoAnswer(code)
    raise StreamFailed(f"{operation}: {code}")


async def _ask_any(
    workers: Sequence[WorkerClient], operation: str, request: Message, answer: type[Answered]
) -> Answered:
    """Ask one worker after the other until one answers."""
    until_s = time.monotonic() + TRY_S_MAX
    number = 0
    while True:
        try:
            return await _ask(workers[number % len(workers)], operation, request, answer)
        except (NoAnswer, NotSent) as error:
            if time.monotonic() > until_s:
                raise StreamFailed(f"{operation}: nothing for {TRY_S_MAX} s, {error}") from error
        number += 1
        await asyncio.sleep(PAUSE_S)


async def shards_of(workers: Sequence[WorkerClient]) -> tuple[str, list[pb.StreamShard]]:
    """Return the table's stream and its shards, parents before their children."""
    wanted = pb.ListStreamRequest(table_name=TABLE)
    found = await _ask_any(workers, "ListStream", wanted, pb.ListStreamResponse)
    [stream] = found.streams
    request = pb.DescribeStreamRequest(stream_id=stream.stream_id)
    answer = await _ask_any(workers, "DescribeStream", request, pb.DescribeStreamResponse)
    assert not answer.next_shard_id, "more shards than one answer holds"
    return stream.stream_id, _parents_first(answer.shards)


def _parents_first(shards: Iterable[pb.StreamShard]) -> list[pb.StreamShard]:
    left = {shard.shard_id: shard for shard in shards}
    found: list[pb.StreamShard] = []
    while left:
        free = [s for s in left.values() if not {s.parent_id, s.parent_sibling_id} & left.keys()]
        assert free, "a shard can't be its own ancestor"
        found += [left.pop(shard.shard_id) for shard in free]
    return found


async def _first(workers: Sequence[WorkerClient], stream_id: str, shard_id: str) -> str:
    request = pb.GetShardIteratorRequest(stream_id=stream_id, shard_id=shard_id)
    answer = await _ask_any(workers, "GetShardIterator", request, pb.GetShardIteratorResponse)
    return answer.shard_iterator


async def read_shard(
    workers: Sequence[WorkerClient], stream_id: str, shard_id: str, *, limit: int | None = None
) -> list[Record]:
    """Return every record of a shard."""
    records: list[Record] = []
    iterator = await _first(workers, stream_id, shard_id)
    while iterator:
        request = pb.GetStreamRecordRequest(shard_iterator=iterator, limit=limit)
        page = await _ask_any(workers, "GetStreamRecord", request, pb.GetStreamRecordResponse)
        if not page.stream_records:
            break
        records += [_record(record) for record in page.stream_records]
        iterator = page.next_shard_iterator
    return records


async def follow(workers: Sequence[WorkerClient], stop: asyncio.Event, seed: str) -> list[Tail]:
    """Follow every shard until ``stop``, also those that come later."""
    tails: dict[str, asyncio.Task[Tail]] = {}
    async with asyncio.TaskGroup() as tasks:
        while not stop.is_set():
            stream_id, shards = await shards_of(workers)
            for shard in shards:
                name = shard.shard_id
                if name not in tails:
                    following = tail(workers, stream_id, name, stop, f"{seed} {name}")
                    tails[name] = tasks.create_task(following, name=f"tail[{name}]")
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
    return [task.result() for task in tails.values()]


async def tail(
    workers: Sequence[WorkerClient], stream_id: str, shard_id: str, stop: asyncio.Event, seed: str
) -> Tail:
    """Follow a shard until ``stop``, each page of a worker chosen at random."""
    chance, found = random.Random(seed), Tail(shard_id)
    iterator = await _first(workers, stream_id, shard_id)
    while iterator and not stop.is_set():
        worker = workers[chance.randrange(len(workers))]
        request = pb.GetStreamRecordRequest(shard_iterator=iterator)
        invoked_s = time.monotonic()
        try:
            page = await _ask(worker, "GetStreamRecord", request, pb.GetStreamRecordResponse)
        except StreamFailed as error:
            found.failure = str(error)
            break
        except (NoAnswer, NotSent):
            await asyncio.sleep(PAUSE_S)
            continue
        if not page.stream_records:
            found.empty.append(Empty(invoked_s, len(found.records)))
        found.records += [_record(record) for record in page.stream_records]
        iterator = page.next_shard_iterator
        await asyncio.sleep(0.1)  # A reader that never rests takes the writers' time.
    return found


def _record(record: pb.GetStreamRecordResponse.StreamRecord) -> Record:
    change = change_of(plainbuffer.decode_row(record.record))
    puts = {put.name: put.value for put in change.changes if isinstance(put, Put)}
    assert change.sequence is not None, "a record says where it stands"
    mark, number = puts.get("m"), puts.get("n")
    return Record(
        key_text(change.key),
        pb.ActionType.Name(record.action_type).removesuffix("_ROW"),
        mark if isinstance(mark, str) else None,
        number if isinstance(number, int) else None,
        (change.sequence.epoch, change.sequence.timestamp_us, change.sequence.row_index),
    )
