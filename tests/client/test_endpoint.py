"""What one who asks a server may assume of its answers, and which requests are asked again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from rowtide.client.endpoint import Endpoint
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable

HEAD = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nx-ots-date: 2026-11-21T10:00:00.000000Z\r\n\r\n%s"
BUSY = (503, "OTSPartitionUnavailable")
WRONG = (400, "OTSParameterInvalid")
SILENT = (503, "OTSTimeout")
DONE = (200, "")


class Answering:
    """A server that gives a list of answers, the last one for ever."""

    def __init__(self, answers: Sequence[tuple[int, str]]) -> None:
        self.asked = 0
        self.ended: list[asyncio.Event] = []
        self._answers = answers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.Event()
        self.ended.append(ended)
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                status, code = self._answers[min(self.asked, len(self._answers) - 1)]
                self.asked += 1
                error = pb.Error(code=code, message=f"answer {self.asked}")
                body = error.SerializeToString() if code else b""
                writer.write(HEAD % (b"%d -" % status, len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
            ended.set()


@asynccontextmanager
async def endpoint(answering: Answering, patience_s: float) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(answering.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        async with Endpoint(
            f"http://{host}:{port}",
            instance="demo",
            access_key_id="id",
            access_key_secret="secret",
            patience_s=patience_s,
        ) as asked:
            yield asked
    finally:
        server.close()
        for ended in answering.ended:
            await ended.wait()


@pytest.mark.parametrize(
    ("answers", "patience_s", "asked", "raised"),
    [
        ([BUSY, BUSY, DONE], 60.0, 3, None),
        ([BUSY, DONE], 0.0, 1, Unavailable),
        ([WRONG, DONE], 60.0, 1, Rejected),
        ([SILENT, DONE], 60.0, 1, OutcomeUnknown),
        ([BUSY, WRONG], 60.0, 2, Rejected),
    ],
)
async def test_what_was_not_done_alone_is_asked_again(
    answers: Sequence[tuple[int, str]],
    patience_s: float,
    asked: int,
    raised: type[StoreError] | None,
) -> None:
    answering = Answering(answers)
    async with endpoint(answering, patience_s) as target:
        if raised is None:
            assert await target.ask("ListTable", b"") == b""
        else:
            with pytest.raises(raised):
                await target.ask("ListTable", b"")
    assert answering.asked == asked


async def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = Answering([BUSY])
    clock = SimpleNamespace(monotonic=lambda: answering.asked * 0.4)
    monkeypatch.setattr("rowtide.client.endpoint.time", clock)
    async with endpoint(answering, 1.0) as target:
        with pytest.raises(Unavailable):
            await target.ask("ListTable", b"")
    assert answering.asked == 3


async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    answering = Answering([DONE])
    async with endpoint(answering, 60.0) as target:
        await target.ask("ListTable", b"")
    with pytest.raises(Unavailable, match="no answer from"):
        await target.ask("ListTable", b"")
