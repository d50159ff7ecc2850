"""Speed of timeline searches: ``python -m tests.bench.search`` (see ``--help``).

A local server, and one client that feeds the index and searches. The rows are meta rows: a name of
some words, Chinese and English, a size, a kind, a time. A search includes the request that finds
the present end of the log.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click

from rowtide.client import (
    AsyncClient,
    Equals,
    Everything,
    Match,
    Phrase,
    Prefix,
    PutRow,
    Range,
    SearchQuery,
    Sort,
    TimelineMetas,
    TimelineMetaSchema,
)
from rowtide.testing.server import running_server
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.report import Result, as_markdown
from tests.support.access import access_of

WORDS = [f"word{number}" for number in range(3000)]
CHARACTERS = [chr(0x4E00 + number) for number in range(400)]
BATCH_ROWS = 200
SEED = 28

Question = tuple[SearchQuery, Sequence[Sort]]


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=100_000, help="Meta rows.")
@click.option("--searches", default=600, help="Searches, and writes that are then searched.")
def main(rows: int, searches: int) -> None:
    """Measure searches of meta rows and print a Markdown table with the bars."""
    click.echo(format_circumstances(circumstances("search")))
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where,
        running_server(Path(where)) as server,
        server.new_instance() as instance,
    ):
        click.echo(
            as_markdown(asyncio.run(measure(access_of(instance), Path(where), rows, searches)))
        )


async def measure(access: dict[str, Any], where: Path, rows: int, searches: int) -> list[Result]:
    """Return the time to build the index, of searches, and from a write until it is found."""
    chance = random.Random(SEED)
    async with AsyncClient(**access) as client:
        metas = TimelineMetas(client, TimelineMetaSchema("im_meta"), search_folder=where / "index")
        await metas.create()
        for first in range(0, rows, BATCH_ROWS):
            batch = [make_row(number, chance) for number in range(first, first + BATCH_ROWS)]
            await client.write([PutRow("im_meta", row) for row in batch])
        began_s = time.perf_counter()
        assert (await metas.search(Everything(), wait_s=3600)).total == rows
        built_s = time.perf_counter() - began_s
        results = [Result("search: rows indexed", rows / built_s, "rows/s")]

        async def search(number: int) -> None:
            query, sort = ask(number, chance)
            await metas.search(query, sort=sort)

        async def write_and_find(number: int) -> None:
            await metas.put([f"new:{number}"], {"name": f"found{number}"})
            assert (await metas.search(Match("name", f"found{number}"))).total == 1

        calls_s = await time_calls(search, searches)
        results.append(Result("search, p50", median_ms(calls_s), "ms", calls_s))
        for kind, name in enumerate(KINDS):
            kind_s = calls_s[kind :: len(KINDS)]
            results.append(Result(f"search: {name}", median_ms(kind_s), "ms", kind_s))
        calls_s = await time_calls(write_and_find, searches)
        results.append(Result("write -> found, p50", median_ms(calls_s), "ms", calls_s))
    return results


async def time_calls(call: Callable[[int], Awaitable[None]], count: int) -> list[float]:
    """Return the seconds of each of ``count`` calls."""
    found = []
    for number in range(count):
        began_s = time.perf_counter()
        await call(number)
        found.append(time.perf_counter() - began_s)
    return found


def median_ms(calls_s: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return sorted(calls_s)[len(calls_s) // 2] * 1000


def make_row(number: int, chance: random.Random) -> dict[str, int | str]:
    """Return a meta row. Half of the groups are open."""
    name = " ".join(chance.choices(WORDS, k=4)) + "".join(chance.choices(CHARACTERS, k=6))
    return {
        "timeline_id": f"group:{number}",
        "name": name,
        "owner": f"user{chance.randrange(5000)}",
        "kind": chance.choice(["open", "closed"]),
        "size": chance.randrange(500),
        "made_us": 1_764_000_000_000_000 + number,
    }


def _chinese(chance: random.Random) -> str:
    return "".join(chance.choices(CHARACTERS, k=2))


KINDS: dict[str, Callable[[random.Random], Question]] = {
    "a word": lambda chance: (Match("name", chance.choice(WORDS)), ()),
    "two Chinese characters": lambda chance: (Phrase("name", _chinese(chance)), ()),
    "a word in a range, sorted": lambda chance: (
        Match("name", chance.choice(WORDS)) & Range("size", 100, 300),
        [Sort("size", descending=True)],
    ),
    "equal to a rare value": lambda chance: (Equals("owner", f"user{chance.randrange(5000)}"), ()),
    "half of the rows, newest first": lambda chance: (
        Equals("kind", "open"),
        [Sort("made_us", descending=True)],
    ),
    "a prefix and not a word": lambda chance: (
        Prefix("owner", f"user{chance.randrange(100, 500)}") & ~Match("name", chance.choice(WORDS)),
        [Sort("made_us")],
    ),
}
"""Searches by kind, one after another."""


def ask(number: int, chance: random.Random) -> Question:
    """Return the question of a number."""
    return list(KINDS.values())[number % len(KINDS)](chance)


if __name__ == "__main__":
    main()
