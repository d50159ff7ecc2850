"""Share tokens in the console: what leaves it, and how soon a revoked one is known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowtide.console.workers.tokens import FRESH_S, SharedTable, ShareTokens
from rowtide.core.cluster.share_token import token_digest, token_text
from rowtide.core.values.errors import Rejected, Unavailable
from tests.console.workers.scripted_calls import KEY, ScriptedCalls
from tests.support.waiting import until_async

TEXT = token_text("0a", bytes(range(32)))
SHARED = SharedTable("0a", "demo", "orders", None)
LISTED = {"token_id": "0a", "table_exists": True}


class Listing:
    """The tokens of a worker, and the time."""

    def __init__(self) -> None:
        self.tokens: list[dict[str, Any]] = [LISTED]
        self.now_s = 100.0
        self.calls = ScriptedCalls(
            RowtideListTokens=lambda _: {"tokens": self.tokens}, RowtideCheckToken=self.check
        )
        self.share_tokens = ShareTokens(self.calls, KEY, "demo", now_s=lambda: self.now_s)

    def check(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked == {"token_id": "0a", "digest": token_digest(TEXT), "purpose": "feed"}
        return {"instance": "demo", "table": "orders", "key": None}

    async def is_valid(self) -> bool:
        try:
            await self.share_tokens.confirm(SHARED)
        except Rejected:
            return False
        return True


async def test_a_worker_gets_the_digest_and_not_the_token() -> None:
    listing = Listing()
    assert await listing.share_tokens.check(TEXT) == SHARED
    assert TEXT not in repr(listing.calls.asked)


async def test_what_is_no_token_is_refused_without_a_call() -> None:
    listing = Listing()
    with pytest.raises(Rejected, match="no share token"):
        await listing.share_tokens.check("Bearer")
    assert listing.calls.asked == []


@pytest.mark.parametrize("left", [[], [{"token_id": "0b", "table_exists": True}]])
async def test_a_revoked_token_is_known_within_the_time(left: list[dict[str, Any]]) -> None:
    listing = Listing()
    assert await listing.is_valid()
    listing.tokens = left
    listing.now_s += FRESH_S / 2
    assert await listing.is_valid()
    listing.now_s += FRESH_S / 2 + 0.1
    assert not await listing.is_valid()


async def test_a_token_ends_with_its_table() -> None:
    listing = Listing()
    listing.tokens = [{**LISTED, "table_exists": False}]
    assert not await listing.is_valid()


async def test_many_feeds_share_one_list() -> None:
    listing = Listing()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(listing.is_valid()) for _ in range(500)]
    assert all(task.result() for task in asked)
    assert [operation for operation, _ in listing.calls.asked] == ["RowtideListTokens"]


async def test_while_no_worker_answers_nothing_is_said_of_a_token() -> None:
    listing = Listing()
    assert await listing.is_valid()

    def fail(_: object) -> None:
        raise Unavailable("no worker")

    listing.calls.answers["RowtideListTokens"] = fail
    listing.now_s += FRESH_S + 1
    with pytest.raises(Unavailable):
        await listing.share_tokens.confirm(SHARED)


async def test_viewers_who_come_at_once_share_checks_that_are_newer_than_they_are() -> None:
    listing = Listing()
    answering = asyncio.Event()
    answers = iter([None, Rejected("OTSAuthFailed", "revoked")])

    async def answer(asked: dict[str, str]) -> dict[str, Any]:
        await answering.wait()
        failure = next(answers)
        if failure is not None:
            raise failure
        return listing.check(asked)

    listing.calls.answers["RowtideCheckToken"] = answer
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(listing.share_tokens.check(TEXT))
        await until_async(lambda: listing.calls.asked, "the first check is under way")
        others = [tasks.create_task(refusal_of(listing.share_tokens, TEXT)) for _ in range(499)]
        await asyncio.sleep(0)
        answering.set()
    assert first.result() == SHARED
    # It was revoked before the others came: none of them may have the first one's answer.
    assert {task.result() for task in others} == {"revoked"}
    assert len(listing.calls.asked) == 2


async def refusal_of(tokens: ShareTokens, text: str) -> str:
    """Return why a token is refused."""
    with pytest.raises(Rejected) as refused:
        await tokens.check(text)
    return refused.value.message
