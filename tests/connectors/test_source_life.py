"""What becomes of those who ask a source while its life begins, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.errands import Errands
from rowtide.connectors.sources.life import ServerSource
from rowtide.connectors.sources.source import Behind
from rowtide.core.values.errors import Unavailable
from tests.support.waiting import SOON_S

HERE = Behind(0.0, 0, 0)


class Quiet:
    """A life in which nothing happens."""

    def __init__(self) -> None:
        self.errands = Errands(lambda: None)
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    async def behind(self, server: str) -> Behind:
        assert server == "session"
        return HERE


class Followed(ServerSource[str]):
    def map_errors(self) -> AbstractContextManager[None]:
        return refusing()


@contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(str(error)) from error


async def ignore(row: SourceRow) -> None:
    """Take a row."""


async def test_a_source_answers_while_it_follows_its_server() -> None:
    source = Followed()
    assert await source.behind() is None
    source.begin_life(Quiet(), "session")
    assert await source.behind() == HERE
    source.end_life()
    assert await source.behind() is None
    with pytest.raises(Unavailable, match="does not follow its server now"):
        await source.copy_again("a", [1], ignore)


async def test_a_stop_reaches_the_life_that_is_and_the_one_that_comes() -> None:
    source, first, second = Followed(), Quiet(), Quiet()
    source.begin_life(first, "session")
    assert not first.stopped
    source.stop()
    assert first.stopped
    source.begin_life(second, "session")
    assert second.stopped


async def test_whoever_asks_a_life_that_fails_before_it_looks_is_told() -> None:
    source = Followed()
    source.begin_life(Quiet(), "session")
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(_expect_refusal(source), name="asking")
        await asyncio.sleep(0)  # One turn: it has asked.
        assert not asking.done()
        source.end_life()


async def _expect_refusal(source: Followed) -> None:
    async with asyncio.timeout(SOON_S):
        with pytest.raises(Unavailable, match="does not follow its server now"):
            await source.copy_again("a", [1], ignore)
