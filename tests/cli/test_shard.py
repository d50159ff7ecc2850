"""What ``rowtide shard`` says where a change of shards was begun and can't be followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rowtide.cli.client import NotConnected, ProtocolClient, ServerError
from rowtide.cli.exits import CommandOutcomeUnknown, raise_failures
from rowtide.cli.shard import merge, move, split

Answer = dict[str, Any] | Exception

BUSY = ServerError("OTSPartitionUnavailable", "The partition is not available.", 503, "r1")


class ScriptedClient(ProtocolClient):
    """Answers each operation with what is next in its script."""

    def __init__(self, **script: list[Answer]) -> None:
        super().__init__(
            "http://127.0.0.1:1",
            instance="demo",
            access_key_id="id",
            access_key_secret="secret",
        )
        self._script = script

    def call_json(self, operation: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return, or raise, the next answer."""
        answer = self._script[operation].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def make_plan(kind: str, *children: str, done: bool) -> Answer:
    return {"kind": kind, "parents": ["s2"], "children": list(children), "done": done}


def shards(*told_of: tuple[str, int, str, list[str]]) -> Answer:
    names = ("shard", "slot", "state", "parents")
    return {"shards": [dict(zip(names, one, strict=True)) for one in told_of]}


def ask(command: Any, client: ProtocolClient, **arguments: Any) -> None:
    command.callback(client=client, table="parcels", output="table", **arguments)


def ask_failing(command: Any, client: ProtocolClient, **arguments: Any) -> CommandOutcomeUnknown:
    with pytest.raises(CommandOutcomeUnknown) as raised, raise_failures(writes=True):
        ask(command, client, **arguments)
    assert raised.value.hint == "`rowtide shard list` shows the result."
    return raised.value


def test_a_change_that_goes_on_and_cannot_be_followed_is_not_told_as_one_that_was_not_made() -> (
    None
):
    client = ScriptedClient(
        RowtideSplitShard=[make_plan("split", "s3", "s4", done=False)], RowtideListShards=[BUSY]
    )
    error = ask_failing(split, client, name="s2", at="m")
    assert error.message == (
        "The split of s2 continues: OTSPartitionUnavailable: The partition is not available."
    )


def test_a_server_that_went_away_amid_a_change_has_not_undone_it() -> None:
    client = ScriptedClient(
        RowtideMoveShard=[make_plan("move", "s3", done=False)],
        RowtideListShards=[
            shards(("s2", 0, "move", [])),
            NotConnected("no answer from http://127.0.0.1:1: refused"),
        ],
    )
    error = ask_failing(move, client, name="s2", slot=1)
    assert error.message.startswith("The move of s2 continues: no answer")


def test_a_change_that_goes_on_is_followed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    client = ScriptedClient(
        RowtideMoveShard=[make_plan("move", "s3", done=False)],
        RowtideListShards=[
            shards(("s2", 0, "move", [])),
            # The copy had begun again, into a shard of another id.
            shards(("s2", 0, "ended", []), ("s4", 1, "open", ["s2"])),
        ],
    )
    ask(move, client, name="s2", slot=1)
    assert capsys.readouterr().out == "s2 -> s4\n"


def test_a_merge_that_fails_behind_its_move_tells_of_the_move() -> None:
    client = ScriptedClient(
        RowtideListShards=[shards(("s1", 0, "open", []), ("s2", 1, "open", []))],
        RowtideMoveShard=[make_plan("move", "s3", done=True)],
        RowtideMergeShards=[BUSY],
    )
    error = ask_failing(merge, client, left="s1", right="s2")
    assert error.message.startswith("Shard s2 was moved to slot 0 as s3, not merged: OTSPart")
