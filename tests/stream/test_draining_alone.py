"""A worker drains only if another one reports that it stays; a silent one may stay or not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.peers import Answers, Peers


class AnsweringPeers:
    """The other workers; ``answers`` is what they answer."""

    address = "asked:1"

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def ask(self, _operation: str, _body: bytes, *, answer_s: float) -> Answers:
        return self._answers


def handover(answers: Answers) -> Handover:
    nobody = cast(Any, None)
    return Handover(nobody, nobody, nobody, cast(Peers, AnsweringPeers(answers)), lambda: nobody)


@pytest.mark.parametrize("answers", [{}, {"other:1": b'{"leaving": true}'}])
async def test_the_last_worker_that_takes_slots_is_not_drained(answers: Answers) -> None:
    asked = handover(answers)
    with pytest.raises(Rejected, match="No other worker is there"):
        await asked.drain()
    assert not asked.left


async def test_a_worker_whose_others_are_silent_is_not_drained_now() -> None:
    asked = handover({"other:1": Unavailable("no answer"), "third:1": b'{"leaving": true}'})
    with pytest.raises(Unavailable, match="other:1 did not answer"):
        await asked.drain()
    assert not asked.left
