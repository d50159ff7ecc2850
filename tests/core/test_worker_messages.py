"""Calls between workers: the bytes of each message, which workers of other versions read."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.core.protocol import worker_messages as calls
from rowtide.core.protocol.operations import OPERATIONS, Right
from rowtide.core.shard.reshape import Sealed

MESSAGES: list[tuple[Any, bytes]] = [
    (calls.NoFields(), b"{}"),
    (calls.HandOverRequest(3), b'{"slot": 3}'),
    (calls.LeavingRequest("a:1", True), b'{"from": "a:1", "leaving": true}'),
    (calls.LeavingAnswer(False), b'{"leaving": false}'),
    (calls.SettleRequest(7, [1, 2]), b'{"applied": 7, "tables": [1, 2]}'),
    (
        calls.WelcomeRequest("w", "a:1", "id", "secret", "i"),
        b'{"name": "w", "address": "a:1", "access_key_id": "id", '
        b'"access_key_secret": "secret", "instance": "i"}',
    ),
    (calls.FarewellRequest("w", "a:1"), b'{"name": "w", "address": "a:1"}'),
    (calls.StatusRequest(), b"{}"),
    (calls.TableFiguresRequest({"a:1": 5}), b'{"since": {"a:1": 5}}'),
    (calls.ConsumptionRequest("i", None, 0, None), b'["i", null, 0, null]'),
    (
        calls.ConsumptionAnswer([[3600, "i", "t", 1, 2]], {"3600": 0.5}),
        b'{"uses": [[3600, "i", "t", 1, 2]], "seconds": {"3600": 0.5}}',
    ),
    (calls.IndexStateRequest(4), b'{"table": 4}'),
    (
        calls.IndexStateAnswer({"s1": [5, 6]}, {"s1": [9]}, {"s2": {"s1": [1, 2, ""]}}),
        b'[{"s1": [5, 6]}, {"s1": [9]}, {"s2": {"s1": [1, 2, ""]}}]',
    ),
    (calls.FinishIndexRequest(4), b'{"table": 4}'),
    (calls.ReceivedRequest(1, "s1"), b'[1, "s1"]'),
    (calls.OffsetAnswer(-1), b"-1"),
    (calls.WrittenMiddleRequest(1, "s1"), b'[1, "s1"]'),
    (calls.KeyAnswer(b"\x00\xff"), b"\x00\xff"),
    (calls.BeginCopyRequest("s1", 8), b'{"id": "s1", "claim": 8}'),
    (
        calls.FinishReshapeRequest("s1", ["s2", "s3"], {"s1": [10, 11]}),
        b'{"id": "s1", "children": ["s2", "s3"], "seals": {"s1": [10, 11]}}',
    ),
    (calls.ForgetShardRequest("s1"), b'{"shard": "s1"}'),
    (calls.LoadsRequest(), b"{}"),
    (calls.ReclaimRequest(["s1"]), b'{"shards": ["s1"]}'),
    (calls.PiecesRequest("t", "s1", 1, 2), b'["t", "s1", 1, 2]'),
    (calls.PiecesAnswer([["ff", 5]], 6), b'{"pieces": [["ff", 5]], "read": 6}'),
    (calls.ObjectAnswer({"s1": [1, 2]}), b'{"s1": [1, 2]}'),
    (calls.RangePartRequest(["s1", "s2"], b"body"), b"\x00\x05s1,s2body"),
    (calls.ExportPartRequest(["s1"], b""), b"\x00\x02s1"),
]


@pytest.mark.parametrize(("message", "body"), MESSAGES, ids=[type(m).__name__ for m, _ in MESSAGES])
def test_a_message_has_these_bytes(message: Any, body: bytes) -> None:
    assert message.encode() == body
    assert type(message).decode(body) == message


def test_every_request_and_answer_is_here() -> None:
    specs = [spec for spec in OPERATIONS.values() if spec.right is Right.WORKER]
    kinds = {kind for spec in specs for kind in (spec.request, spec.response)}
    own = {kind for kind in kinds if kind.__module__ == calls.__name__}
    assert own == {type(message) for message, _ in MESSAGES}


def test_a_seal_is_written_as_its_two_numbers() -> None:
    request = calls.FinishReshapeRequest("s1", [], {"s1": Sealed(10, 11)})
    assert request.encode() == b'{"id": "s1", "children": [], "seals": {"s1": [10, 11]}}'


def test_a_field_of_a_later_version_is_passed_over() -> None:
    assert calls.HandOverRequest.decode(b'{"slot": 3, "later": 1}') == calls.HandOverRequest(3)
