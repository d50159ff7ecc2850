"""What a receiver gets, however it answers."""

from __future__ import annotations

import asyncio
import base64
import math
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.webhook.message import secret_bytes, signatures
from rowtide.connectors.sinks.webhook.sink import WebhookSink
from rowtide.core.records.change import ROW
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.schema import INTEGER, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.row_histories import Model, delete, histories, put, row_key, shape
from tests.connectors.webhook.receiver import SECRET, Answer, Receiver, receiving
from tests.support.searches import examples

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000
WHSEC = f"whsec_{base64.b64encode(SECRET).decode()}"


def batch(*rows: SinkRow) -> SinkBatch:
    return SinkBatch("things", "shard-1", rows)


def webhook(url: str, **more: object) -> WebhookSink:
    sink = make_sink(
        Fields({"kind": "webhook", "url": url, "secret": WHSEC, **more}, "test"),
        ConnectorContext("test", ""),
    )
    assert isinstance(sink, WebhookSink)
    return sink


@asynccontextmanager
async def open_sink(receiver: Receiver, **more: object) -> AsyncIterator[WebhookSink]:
    sink = webhook(receiver.url, **more)
    await sink.open(TABLE)
    try:
        yield sink
    finally:
        await sink.close()


def test_a_signature_is_the_one_of_the_standards_own_example() -> None:
    secret = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    header = signatures([secret, b"other"], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    first, second = header.split(" ")
    assert first == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert second.startswith("v1,")


async def test_rows_arrive_with_all_that_is_known_of_them() -> None:
    values: dict[str, Scalar] = {"i": 1, "n": math.nan, "t": "ä", "b": b"\xff", "f": False}
    async with receiving() as receiver, open_sink(receiver, headers={"X-Key": "k"}) as sink:
        rows = [
            put(STAMP, [1], values, before={"i": 0}, sequence=4),
            delete(STAMP + 1, [2], sequence=5),
        ]
        assert await sink.apply(batch(*rows)) == []
        [message] = receiver.taken
        assert receiver.headers["X-Key"] == "k"
        assert receiver.headers["Content-Type"] == "application/json"
    first, second = message["rows"]
    assert (message["type"], message["table"], message["shard"]) == (
        "rowtide.rows",
        "things",
        "shard-1",
    )
    assert first | {"id": "", "order": ""} == {
        "id": "",
        "kind": "put",
        "stamp": STAMP,
        "sequence": 4,
        "order": "",
        "key": {"id": 1},
        "columns": {"i": 1, "n": "NaN", "t": "ä", "b": "/w==", "f": False},
        "before": {"i": 0},
        "existed": None,
    }
    assert (second["kind"], second["columns"], second["key"]) == ("delete", None, {"id": 2})
    assert first["order"] == rows[0].key_bytes.hex()
    assert first["id"].endswith(f"-{STAMP}")


@pytest.mark.parametrize("answer", [Answer(500), Answer(503), Answer(429), Answer(408), None])
async def test_what_may_pass_is_tried_again_as_the_same_message(answer: Answer | None) -> None:
    async with receiving() as receiver, open_sink(receiver) as sink:
        answers = [answer, answer, Answer()]
        receiver.decide = lambda message: answers.pop(0)
        assert await sink.apply(batch(put(STAMP, [1], {}))) == []
        assert len(receiver.requests) == 3
        assert len(set(receiver.requests)) == 1
        assert len(receiver.taken) == 1


async def test_an_answer_that_breaks_off_behind_its_status_is_the_status() -> None:
    """Otherwise the message would be posted again and get the same answer, without end."""
    posted = 0

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal posted
        posted += 1
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")]
        await reader.readexactly(int(length.partition(b":")[2]))
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        sink = webhook(f"http://{host}:{port}/rows", attempts=2)
        await sink.open(TABLE)
        assert await sink.apply(batch(put(STAMP, [1], {}))) == []
        await sink.close()
    assert posted == 1


async def test_what_does_not_pass_is_unavailable() -> None:
    async with receiving() as receiver, open_sink(receiver, attempts=2) as sink:
        receiver.decide = lambda message: Answer(502, text="no backend")
        with pytest.raises(Unavailable, match="502 no backend"):
            await sink.apply(batch(put(STAMP, [1], {})))
        assert len(receiver.requests) == 2
    with pytest.raises(Unavailable):  # No process listens there any more.
        async with open_sink(receiver, attempts=1) as sink:
            await sink.apply(batch(put(STAMP, [1], {})))


async def test_a_receiver_that_asks_for_a_pause_is_left_alone() -> None:
    async with receiving() as receiver, open_sink(receiver) as sink:
        receiver.decide = lambda message: Answer(429, (("Retry-After", "100"),))
        with pytest.raises(Unavailable, match="s without requests"):
            await sink.apply(batch(put(STAMP, [1], {})))
        with pytest.raises(Unavailable, match="without requests"):
            await sink.apply(batch(put(STAMP, [1], {})))
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 410, 301, 303])
async def test_what_is_about_the_endpoint_parks_no_row(status: int) -> None:
    async with receiving() as receiver, open_sink(receiver) as sink:
        receiver.decide = lambda message: Answer(status)
        with pytest.raises(Rejected, match=str(status)):
            await sink.apply(batch(put(STAMP, [1], {})))
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_a_row_that_the_receiver_refuses_is_found_and_the_others_flow(status: int) -> None:
    def decide(message: dict[str, Any]) -> Answer:
        bad = any(row["columns"] == {"bad": True} for row in message["rows"])
        return Answer(status, text="bad row") if bad else Answer()

    rows = [put(STAMP + at, [at % 7], {"at": at}, sequence=at) for at in range(20)]
    rows[9] = put(STAMP + 9, [2], {"bad": True}, sequence=9)
    async with receiving() as receiver, open_sink(receiver) as sink:
        receiver.decide = decide
        refused = await sink.apply(batch(*rows))
        # What comes behind it in its key is refused with it, so that the key stays in order.
        assert [refusal.row.sequence for refusal in refused] == [9, 16]
        assert "bad row" in refused[0].reason
        assert "behind a refused row" in refused[1].reason
        got = [row["sequence"] for message in receiver.taken for row in message["rows"]]
        assert got == [at for at in range(20) if at not in (9, 16)]


async def test_messages_are_bounded_in_rows_and_bytes() -> None:
    rows = [put(STAMP + at, [at], {"t": "x" * 1000}, sequence=at) for at in range(40)]
    rows.append(put(STAMP + 99, [99], {"t": "x" * 20_000}, sequence=99))
    async with receiving() as receiver, open_sink(receiver, rows=7, bytes=16_000) as sink:
        [refused] = await sink.apply(batch(*rows))
        assert refused.row is rows[-1]
        assert "the limit is 16000" in refused.reason
        assert [len(message["rows"]) for message in receiver.taken] == [7, 7, 7, 7, 7, 5]


async def test_a_page_is_divided_with_what_it_covers() -> None:
    keys = [row_key(TABLE.key, [at]) for at in range(5)]
    rows = [SinkRow(key, key_bytes, STAMP, {}, ROW) for key, key_bytes in keys]
    page = SinkBatch("things", "s", rows, (keys[0][1], b""), STAMP)
    async with receiving() as receiver, open_sink(receiver, rows=2) as sink:
        await sink.apply(page)
        bounds = [key_bytes.hex() for _, key_bytes in keys]
        covers = [message["covers"] for message in receiver.taken]
        assert covers == [
            {"begin": bounds[0], "end": bounds[2], "stamp": STAMP},
            {"begin": bounds[2], "end": bounds[4], "stamp": STAMP},
            {"begin": bounds[4], "end": "", "stamp": STAMP},
        ]
        await sink.apply(SinkBatch("things", "s", [], (b"", keys[0][1]), STAMP))
        assert receiver.taken[-1]["covers"]["end"] == bounds[0]


async def test_a_redirection_is_followed_to_the_receiver_itself_alone() -> None:
    async with receiving() as receiver, receiving() as other, open_sink(receiver) as sink:
        answers = [Answer(307, (("Location", "/moved"),)), Answer()]
        receiver.decide = lambda message: answers.pop(0)
        await sink.apply(batch(put(STAMP, [1], {})))
        assert [path for path, _ in receiver.requests] == ["/rows", "/moved"]
        receiver.decide = lambda message: Answer(308, (("Location", other.url),))
        with pytest.raises(Rejected, match="redirects to http://"):
            await sink.apply(batch(put(STAMP, [1], {})))
        receiver.decide = lambda message: Answer(307, (("Location", "/again"),))
        with pytest.raises(Rejected, match="too often"):
            await sink.apply(batch(put(STAMP, [1], {})))
        assert other.requests == []


async def test_no_failure_tells_the_secret() -> None:
    async with receiving() as receiver:
        receiver.decide = lambda message: Answer(401)
        secret_url = receiver.url.replace("://", "://user:hidden@") + "?token=hidden"
        sink = webhook(secret_url, attempts=1, headers={"X-Token": "hidden"})
        await sink.open(TABLE)
        with pytest.raises(Rejected) as failure:
            await sink.apply(batch(put(STAMP, [1], {})))
        assert "hidden" not in f"{failure.value!r}{sink._settings!r}"
        assert "whsec" not in f"{sink._settings!r}"
        await sink.close()
    sink = webhook(secret_url, attempts=1)
    await sink.open(TABLE)
    with pytest.raises(Unavailable) as gone:
        await sink.apply(batch(put(STAMP, [1], {})))
    assert "hidden" not in str(gone.value)
    await sink.close()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": "ftp://x"}, "http"),
        ({"url": "http://x", "secret": "whsec_*"}, "must be base64"),
        ({"url": "http://x", "secret": "${NOBODY_SET_IT}"}, "no such variable"),
        ({"url": "http://x", "headers": {"Authorization": "one\nanother"}}, "than one line"),
    ],
)
def test_settings_that_mean_nothing_are_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsRefused, match=why):
        make_sink(Fields({"kind": "webhook", **fields}, "test"), ConnectorContext("test", ""))


@settings(max_examples=examples(12, 25))
@given(history=histories(pages=True), seed=st.integers(0, 2**32), rows=st.integers(1, 4))
def test_whatever_a_receiver_does_it_ends_with_the_table_and_each_key_in_order(
    history: tuple[tuple[KeyColumn, ...], list[SinkBatch]], seed: int, rows: int
) -> None:
    asyncio.run(_through_faults(history[1], random.Random(seed), rows))


async def _through_faults(batches: list[SinkBatch], chance: random.Random, rows: int) -> None:
    def decide(message: dict[str, Any]) -> Answer | None:
        # Some rows are taken although the sender gets an error or no answer.
        return chance.choice(
            [Answer(), Answer(), Answer(500), Answer(429, (("Retry-After", "0"),)), None]
        )

    model = Model()
    async with receiving() as receiver, open_sink(receiver, rows=rows, attempts=1) as sink:
        receiver.decide = decide
        for sink_batch in batches:
            for _ in range(500):
                try:
                    assert await sink.apply(sink_batch) == []
                    break
                except Unavailable:
                    continue
            model.apply(sink_batch)
    seen = Model()
    for message in receiver.taken:
        seen.apply(_as_batch(message))
    kept = [(key, stamp, set(columns)) for key, stamp, columns in model.living()]
    assert [(key, stamp, set(columns)) for key, stamp, columns in seen.living()] == kept
    if all(sink_batch.covers is None for sink_batch in batches) and len(
        set(map(id, batches))
    ) == len(batches):
        _assert_in_order(receiver)


def _assert_in_order(receiver: Receiver) -> None:
    """Repetitions left out, the rows of each key rise."""
    stamps: dict[str, list[int]] = defaultdict(list)
    for message in receiver.taken:
        for row in message["rows"]:
            stamps[row["order"]].append(row["stamp"])
    for key, found in stamps.items():
        firsts = list(dict.fromkeys(found))
        assert firsts == sorted(firsts), key


def _as_batch(message: dict[str, Any]) -> SinkBatch:
    rows = [
        SinkRow((), bytes.fromhex(row["order"]), row["stamp"], row["columns"], row["kind"])
        for row in message["rows"]
    ]
    covers = message["covers"]
    if covers is None:
        return SinkBatch("things", "s", rows)
    bounds = (bytes.fromhex(covers["begin"]), bytes.fromhex(covers["end"]))
    return SinkBatch("things", "s", rows, bounds, covers["stamp"])
