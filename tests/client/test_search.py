"""Searches of timelines on a real server: what was answered before is found."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rowtide.client import (
    AsyncClient,
    Equals,
    Everything,
    Exists,
    Match,
    Phrase,
    Range,
    Rejected,
    SearchPage,
    SearchQuery,
    Sort,
    TimelineHit,
    TimelineMeta,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
    Unavailable,
)
from rowtide.client.search.query import SearchRequest
from rowtide.client.search.search_feed import SearchFeed
from rowtide.testing.instance import InstanceAccess
from tests.client.search_model import expected

pytestmark = pytest.mark.system

Access = dict[str, Any]
KILLED = -signal.SIGKILL


def run(access: Access, folder: Path, test: Callable[[TimelineMetas], Awaitable[None]]) -> None:
    """Run a test on a new table of meta rows."""

    async def run_test() -> None:
        async with AsyncClient(**access) as client:
            metas = make_metas(client, folder)
            await metas.create()
            async with asyncio.timeout(120):
                await test(metas)

    asyncio.run(run_test())


def make_metas(client: AsyncClient, folder: Path) -> TimelineMetas:
    schema = TimelineMetaSchema("im_meta", lists=("tags",))
    return TimelineMetas(client, schema, search_folder=folder)


def names(found: SearchPage[TimelineMeta]) -> list[object]:
    return [one.identifier[0] for one in found.hits]


def test_messages_are_found_in_all_timelines(access: Access, tmp_path: Path) -> None:
    async def check() -> None:
        async with AsyncClient(**access) as client:
            schema = TimelineSchema("im_store", lists=("tags",))
            timelines = Timelines(client, schema, search_folder=tmp_path)
            await timelines.create()
            chat, other = timelines.of("group:7"), timelines.of("group:8")
            first = await chat.store({"text": "表格存储", "tags": ["red", "dark blue"]})
            second = await other.store({"text": "hello 表格", "n": 3})

            async def find(query: SearchQuery, **more: Any) -> list[object]:
                page = await timelines.search(query, **more)
                assert page.total == len(page.hits)
                return list(page.hits)

            hits = [TimelineHit(("group:7",), first), TimelineHit(("group:8",), second)]
            assert await find(Match("text", "表格")) == hits
            assert await find(Phrase("text", "存储")) == hits[:1]
            assert await find(Match("text", "格式")) == []
            assert await find(Equals("tags", "dark blue")) == hits[:1]
            assert await find(Equals("timeline_id", "group:8") & Exists("n")) == hits[1:]
            newest = [Sort("sequence_id", descending=True)]
            assert await find(Range("sequence_id", first.id), sort=newest) == hits[::-1]

            # An update is merged, a recall removes.
            await chat.update(first.id, {"text": "recalled", "n": 5}, delete=["tags"])
            await other.delete(second.id)
            assert await find(Match("text", "表格")) == []
            [hit] = (await timelines.search(Exists("n"))).hits
            assert hit.entry.fields == {"text": "recalled", "n": 5}
            assert await find(Exists("tags")) == []

    asyncio.run(check())


def test_each_write_is_found_at_once_beside_other_writers(access: Access, tmp_path: Path) -> None:
    async def check(metas: TimelineMetas) -> None:
        async def write_and_find(writer: int) -> None:
            for number in range(25):
                name, word = f"w{writer}:{number}", f"word{writer}x{number}"
                await metas.put([name], {"text": f"{word} all", "n": number})
                assert names(await metas.search(Match("text", word))) == [name]
                await metas.update([name], {"text": f"other{word}"})
                assert names(await metas.search(Match("text", f"other{word}"))) == [name]
                assert (await metas.search(Match("text", word))).total == 0
                if number % 3 == 0:
                    await metas.delete([name])
                    assert (await metas.search(Equals("timeline_id", name))).total == 0

        async with asyncio.TaskGroup() as tasks:
            for writer in range(4):
                tasks.create_task(write_and_find(writer), name=f"writer {writer}")
        assert (await metas.search(Everything())).total == 4 * 16

    run(access, tmp_path, check)


def test_a_search_goes_on_through_splits(
    access: Access, tmp_path: Path, rowtide_instance: InstanceAccess
) -> None:
    def split(at: str) -> None:
        with rowtide_instance.admin() as admin:
            shards = admin.call_json("RowtideListShards", {"table": "im_meta"})["shards"]
            last = [shard["shard"] for shard in shards if shard["state"] == "open"][-1]
            fields = {"table": "im_meta", "shard": last, "at": at}
            admin.call_json("RowtideSplitShard", fields)

    async def check(metas: TimelineMetas) -> None:
        for number in range(60):
            await metas.put([f"k{number:02}"], {"n": number})
            if number in (10, 20, 30):
                await asyncio.to_thread(split, f"k{number - 5:02}")
            assert (await metas.search(Range("n", 0))).total == number + 1
        status = await metas.index.status()
        assert (status.rows, len(status.shards)) == (60, 4)

    run(access, tmp_path, check)


def test_other_processes_read_what_one_feeds(access: Access, tmp_path: Path) -> None:
    async def check(metas: TimelineMetas) -> None:
        await metas.put(["a"], {"text": "first"})
        assert (await metas.search(Match("text", "first"))).total == 1
        async with AsyncClient(**access) as client:
            reader = make_metas(client, tmp_path)
            for number in range(20):
                await metas.put([f"k{number}"], {"text": f"word{number}"})
                assert names(await reader.search(Match("text", f"word{number}"))) == [f"k{number}"]
            # The one that feeds ends. The other one takes over at the stored position.
            await metas.index.stop()
            await metas.put(["z"], {"text": "last"})
            assert names(await reader.search(Match("text", "last"))) == ["z"]

    run(access, tmp_path, check)


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from rowtide.client import AsyncClient, Everything, TimelineMetas, TimelineMetaSchema

async def main(access, folder):
    async with AsyncClient(**access) as client:
        metas = TimelineMetas(client, TimelineMetaSchema("im_meta"), search_folder=Path(folder))
        await metas.search(Everything())
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2]))
"""


def test_kill_9_of_the_process_that_feeds_loses_and_doubles_nothing(
    access: Access, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it after a failure.
    chance = random.Random(seed)

    async def check(metas: TimelineMetas) -> None:
        rows: dict[bytes, dict[str, Any]] = {}
        for life in range(4):
            with subprocess.Popen(  # noqa: ASYNC220 - it starts at once.
                [sys.executable, "-c", PROGRAM, json.dumps(access), str(tmp_path)],
                stdout=subprocess.PIPE,
                text=True,
            ) as feeder:
                try:
                    assert feeder.stdout is not None
                    assert await asyncio.to_thread(feeder.stdout.readline) == "ready\n"
                    for _ in range(chance.randrange(20, 60)):
                        await write(metas, rows, chance, life)
                finally:
                    feeder.kill()
            assert feeder.returncode == KILLED
            await write(metas, rows, chance, life)
            for query in (Everything(), Match("text", "even"), Range("n", 20), Equals("life", 1)):
                request = SearchRequest(query, [Sort("n")], 0, 1000)
                found = await metas.search(query, sort=request.sort, limit=1000)
                total, wanted = expected(rows, request)
                assert found.total == total
                shown = [{"timeline_id": one.identifier[0], **one.fields} for one in found.hits]
                assert shown == wanted
            await metas.index.stop()

    run(access, tmp_path, check)


async def write(
    metas: TimelineMetas, rows: dict[bytes, dict[str, Any]], chance: random.Random, life: int
) -> None:
    """Put, update or delete a row, in the table and in the dictionary."""
    name = f"k{chance.randrange(40):02}"
    number = chance.randrange(100)
    key = name.encode()
    if number < 15:
        await metas.delete([name])
        rows.pop(key, None)
        return
    fields: dict[str, int | str] = {"n": number, "life": life}
    if number < 60:
        fields |= {"text": "even" if number % 2 == 0 else "odd"}
        await metas.put([name], fields)
        rows[key] = {"timeline_id": name, **fields}
    else:
        await metas.update([name], fields)
        rows[key] = {"timeline_id": name, **rows.get(key, {}), **fields}


def test_an_index_that_lags_is_an_error_after_a_bounded_wait(
    access: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(metas: TimelineMetas) -> None:
        await metas.put(["a"], {"text": "first"})
        assert (await metas.search(Everything())).total == 1
        gate = asyncio.Event()
        rows_of = SearchFeed._rows_of

        async def wait(feed: SearchFeed, changes: Any) -> Any:
            await gate.wait()
            return await rows_of(feed, changes)

        monkeypatch.setattr(SearchFeed, "_rows_of", wait)
        await metas.put(["b"], {"text": "second"})
        with pytest.raises(Unavailable, match=r"did not have every write after 0\.3 s") as caught:
            await metas.search(Everything(), wait_s=0.3)
        assert "'im_meta'" in caught.value.message
        gate.set()
        assert (await metas.search(Everything())).total == 2

    run(access, tmp_path, check)


def test_a_dropped_table_is_reported_and_a_new_one_is_searched(
    access: Access, tmp_path: Path
) -> None:
    async def check(metas: TimelineMetas) -> None:
        await metas.put(["a"], {"text": "first"})
        assert (await metas.search(Everything())).total == 1
        former = (await metas.index.status()).folder
        await metas.drop()
        with pytest.raises(Rejected) as caught:
            await metas.search(Everything())
        assert caught.value.code == "OTSObjectNotExist"
        assert not former.exists()
        await metas.create()
        assert (await metas.search(Everything())).total == 0
        await metas.put(["b"], {"text": "second"})
        assert names(await metas.search(Everything())) == ["b"]
        # Dropped and made anew between two searches.
        former = (await metas.index.status()).folder
        await metas.drop()
        await metas.create()
        await metas.put(["c"], {"text": "third"})
        assert names(await metas.search(Everything())) == ["c"]
        assert not former.exists()

    run(access, tmp_path, check)


def test_a_table_without_a_stream_is_rejected(access: Access, tmp_path: Path) -> None:
    async def check() -> None:
        async with AsyncClient(**access) as client:
            schema = TimelineMetaSchema("im_meta", stream_hours=0)
            metas = TimelineMetas(client, schema, search_folder=tmp_path)
            await metas.create()
            with pytest.raises(Rejected, match="rowtide table update im_meta --stream 24"):
                await metas.search(Everything())

    asyncio.run(check())


def test_a_search_needs_the_clients_block(access: Access, tmp_path: Path) -> None:
    async def check() -> None:
        client = AsyncClient(**access)
        with pytest.raises(RuntimeError, match="async with client"):
            await make_metas(client, tmp_path).search(Everything())

    asyncio.run(check())


def test_a_rebuilt_index_is_the_same(access: Access, tmp_path: Path) -> None:
    async def check(metas: TimelineMetas) -> None:
        for number in range(30):
            await metas.put([f"k{number:02}"], {"text": f"word{number % 3}", "n": number})
        await metas.update(["k03"], {"n": 100})
        await metas.delete(["k04"])
        query, sort = Match("text", "word0 word1"), [Sort("n", descending=True)]
        before = await metas.search(query, sort=sort, limit=100)
        await metas.index.rebuild()
        assert await metas.search(query, sort=sort, limit=100) == before
        assert before.total == 19
        async with AsyncClient(**access) as client:
            # A process that does not feed the index.
            await make_metas(client, tmp_path).index.rebuild()
            assert await metas.search(query, sort=sort, limit=100) == before
            await metas.put(["x"], {"text": "word0", "n": 1000})
            assert names(await metas.search(query, sort=sort, limit=1)) == ["x"]

    run(access, tmp_path, check)


def test_a_value_of_100_kilobytes_is_found(access: Access, tmp_path: Path) -> None:
    async def check(metas: TimelineMetas) -> None:
        text = "表格存储 words " * 5_000
        await metas.put(["a"], {"text": f"{text}end"})
        await metas.put(["b"], {"text": text})
        await metas.put(["c"], {"text": "end"})
        assert names(await metas.search(Match("text", "end"))) == ["a", "c"]
        assert names(await metas.search(Equals("text", f"{text}end"))) == ["a"]
        assert names(await metas.search(Phrase("text", "储 words 表格"))) == ["a", "b"]

    run(access, tmp_path, check)
