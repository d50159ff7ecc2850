"""Requests between workers: answered in any order, lost ones distinguished, only with the
secret.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, StoreError, Unavailable, invalid
from rowtide.stream.cluster import hop_client, hop_server
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.hop_frames import (
    NONCE_BYTES,
    Call,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
)
from rowtide.stream.cluster.hop_server import HopServer
from rowtide.stream.http.tally import UnknownWithin
from tests.support.waiting import SOON_S

SECRET = bytes(range(32))
ANN = Identity("key-of-ann", "shop", b"")
LENGTH = 4

names = st.text(max_size=40)


@given(
    st.builds(
        Call,
        st.integers(0, 2**64 - 1),
        st.builds(Identity, names, names, st.just(b"")),
        names,
        st.binary(),
    )
)
def test_a_call_comes_out_as_it_went_in(call: Call) -> None:
    frame = encode_call(call)
    assert int.from_bytes(frame[:LENGTH], "big") == len(frame) - LENGTH
    assert decode_call(frame[LENGTH:]) == call


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"a row",
        UnknownWithin(b"rows, one of which may have been applied"),
        invalid("The limit must be greater than 0."),
        LogTrimmed(),
        Unavailable("Server is busy.", "OTSServerBusy"),
        OutcomeUnknown(),
    ],
)
def test_an_answer_says_the_same_on_the_other_side(answer: bytes | StoreError) -> None:
    number, read = decode_answer(encode_answer(7, answer)[LENGTH:])
    assert number == 7
    if isinstance(answer, bytes) or isinstance(read, bytes):
        assert read == answer
        assert type(read) is type(answer)
    else:
        assert (read.code, read.message, read.status) == (
            answer.code,
            answer.message,
            answer.status,
        )
        for kind in (Unavailable, OutcomeUnknown):
            assert isinstance(read, kind) == isinstance(answer, kind)


class Other:
    """A worker as another one sees it: its address, and what it was asked."""

    def __init__(self, address: str, server: HopServer) -> None:
        self.address = address
        self.server = server


@asynccontextmanager
async def worker(
    answer: Callable[[Identity, str, bytes], bytes | Awaitable[bytes]],
    *,
    secret: bytes | None = SECRET,
) -> AsyncIterator[Other]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with asyncio.TaskGroup() as tasks:
        server = HopServer(lambda: secret, answer, tasks)
        await server.serve_on(listener)
        host, port = listener.getsockname()
        try:
            yield Other(f"{host}:{port}", server)
        finally:
            server.close()


@pytest.fixture
async def client() -> AsyncIterator[HopClient]:
    made = HopClient(lambda: SECRET)
    yield made
    made.close()


async def test_answers_come_in_any_order(client: HopClient) -> None:
    second = asyncio.Event()

    async def answer(identity: Identity, operation: str, body: bytes) -> bytes:
        if operation == "First":
            await second.wait()
        else:
            second.set()
        return b" ".join((operation.encode(), body, identity.instance.encode()))

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(client.call(other.address, ANN, "First", b"1"), name="first")
        assert await client.call(other.address, ANN, "Second", b"2") == b"Second 2 shop"
        assert await first == b"First 1 shop"
        assert len(other.server.connections) == 1


async def test_a_failure_is_raised_as_it_was(client: HopClient) -> None:
    def refuse(_identity: Identity, _operation: str, _body: bytes) -> bytes:
        raise invalid("The limit must be greater than 0.")

    async with worker(refuse) as other:
        with pytest.raises(StoreError) as refused:
            await client.call(other.address, ANN, "GetRange", b"")
        assert refused.value.code == "OTSParameterInvalid"


async def test_an_error_of_its_own_leaves_the_outcome_unknown(
    client: HopClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Both logs have its number: the log of the calling worker has the request's id beside it."""

    def fail(_identity: Identity, _operation: str, _body: bytes) -> bytes:
        raise ZeroDivisionError

    async with worker(fail) as other:
        with pytest.raises(OutcomeUnknown, match="fault") as failure:
            await client.call(other.address, ANN, "PutRow", b"")
    [number] = re.findall(r"fault ([0-9a-f]+)", str(failure.value))
    [logged] = [r for r in caplog.records if r.levelname == "ERROR"]
    assert number in logged.getMessage()
    assert logged.exc_info


async def test_what_was_asked_and_not_answered_is_unknown_what_was_not_is_not(
    client: HopClient,
) -> None:
    asked = asyncio.Event()

    async def never(_identity: Identity, _operation: str, _body: bytes) -> bytes:
        asked.set()
        other.server.close()
        return b"too late"

    async with worker(never) as other:
        with pytest.raises(OutcomeUnknown):
            await client.call(other.address, ANN, "PutRow", b"")
        assert asked.is_set()
        with pytest.raises(Unavailable):
            await client.call(other.address, ANN, "PutRow", b"")


@pytest.mark.parametrize("as_future", [False, True])
async def test_what_was_begun_is_answered_before_a_worker_ends_and_nothing_else_is_begun(
    client: HopClient, monkeypatch: pytest.MonkeyPatch, *, as_future: bool
) -> None:
    """It was cut off: a CreateTable that another worker had passed on had an unknown outcome, in
    each rolling restart. The answer is larger than what the kernel takes at once."""
    monkeypatch.setattr(hop_server, "CLOSE_S", SOON_S)
    made: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    async def wait() -> bytes:
        return await made

    def answer(_identity: Identity, _operation: str, _body: bytes) -> Awaitable[bytes]:
        asked.set()
        return made if as_future else wait()

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        call = tasks.create_task(client.call(other.address, ANN, "CreateTable", b""), name="call")
        await asked.wait()
        drain = tasks.create_task(other.server.drain(SOON_S), name="drain")
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await client.call(other.address, ANN, "CreateTable", b"")
        assert not drain.done()
        made.set_result(b"made" * (4 << 20))
        assert await call == b"made" * (4 << 20)
        assert await drain == 0


async def test_what_is_never_answered_keeps_no_worker_from_ending(client: HopClient) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def answer(_identity: Identity, _operation: str, _body: bytes) -> bytes:
        asked.set()
        await never.wait()
        return b""

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        call = tasks.create_task(cut_off(client, other.address), name="call")
        await asked.wait()
        assert await other.server.drain(0.05) == 1
        await call
        never.set()


async def cut_off(client: HopClient, address: str) -> None:
    """Ask a worker that ends before it answers."""
    with pytest.raises(OutcomeUnknown):
        await client.call(address, ANN, "CreateTable", b"")


async def test_a_worker_that_came_back_is_asked_again(client: HopClient) -> None:
    def answer(_identity: Identity, _operation: str, body: bytes) -> bytes:
        return body

    async with worker(answer) as other:
        assert await client.call(other.address, ANN, "GetRow", b"1") == b"1"
        for transport in list(other.server.connections):
            transport.abort()
        with suppress(Unavailable, OutcomeUnknown):  # Sent before the end is seen, or after.
            await client.call(other.address, ANN, "GetRow", b"2")
        assert await client.call(other.address, ANN, "GetRow", b"3") == b"3"


@pytest.mark.parametrize(("theirs", "ours"), [(bytes(32), SECRET), (None, SECRET), (SECRET, None)])
async def test_who_does_not_know_the_secret_is_told_nothing(
    theirs: bytes | None, ours: bytes | None
) -> None:
    def answer(_identity: Identity, _operation: str, _body: bytes) -> bytes:
        raise AssertionError("asked by a stranger")

    stranger = HopClient(lambda: ours)
    async with worker(answer, secret=theirs) as other:
        with pytest.raises(Unavailable):
            await stranger.call(other.address, ANN, "GetRow", b"")
    stranger.close()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x05hello", b"\xff" * 64]
)
async def test_a_stranger_is_cut_off(said: bytes) -> None:
    async with worker(lambda *_: b"") as other:
        host, _, port = other.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        reply = await reader.read()
        assert len(reply) == LENGTH + NONCE_BYTES
        writer.close()


async def test_a_stranger_that_says_nothing_is_cut_off_and_a_worker_is_not(
    client: HopClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else any client that reaches the port could take all connections of this process."""
    monkeypatch.setattr(hop_server, "TRUST_S", 0.05)
    async with worker(lambda *_: b"answer") as other, asyncio.timeout(SOON_S):
        # A busy machine may cut off a worker, too, before it has proven what it knows.
        while await call(client, other.address, b"") != b"answer":
            pass
        trusted = set(other.server.connections)
        host, _, port = other.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            await reader.read()  # To the end, which the worker's would have met before.
        writer.close()
        assert await call(client, other.address, b"") == b"answer"
        assert other.server.connections == trusted, "the worker's"
        assert len(trusted) == 1


async def test_who_gives_up_while_it_connects_leaves_no_connection_behind(
    client: HopClient,
) -> None:
    """Workers that were stopped kept one of each change of the catalog; and their ends, once they
    went on, took the connection along that others had made meanwhile."""
    connected, ended = asyncio.Event(), asyncio.Event()

    async def stop_answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()  # To the connection's end.
        ended.set()
        writer.close()

    server = await asyncio.start_server(stop_answering, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as tasks, asyncio.timeout(SOON_S):
        host, port = server.sockets[0].getsockname()
        address = f"{host}:{port}"
        asked = tasks.create_task(client.call(address, ANN, "RowtideSettle", b""), name="asked")
        await connected.wait()
        link = client._links[address]
        asked.cancel()
        await ended.wait()
        assert not link.is_lost, "who asks next makes another connection of it"


async def test_who_gives_up_as_the_other_proves_itself_takes_no_connection_of_others_along(
    client: HopClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = hop_client._Caller._take_proof
    asked: list[asyncio.Task[bytes]] = []

    def give_up(self: hop_client._Caller, theirs: bytes, frame: bytes) -> None:
        taken(self, theirs, frame)
        if asked and self.trusted.done():
            asked.pop().cancel()

    monkeypatch.setattr(hop_client._Caller, "_take_proof", give_up)
    async with worker(lambda _identity, _name, body: body) as other, asyncio.TaskGroup() as tasks:
        call = partial(client.call, other.address, ANN, "GetRow")
        asked.append(tasks.create_task(call(b"first"), name="first"))
        second = tasks.create_task(call(b"second"), name="second")
        assert await second == b"second"
        assert await call(b"third") == b"third"
        assert len(other.server.connections) == 1


async def test_more_than_may_wait_is_refused_at_once(
    client: HopClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop_client, "CALLS_MAX", 2)
    arrived: list[bytes] = []
    full, go = asyncio.Event(), asyncio.Event()

    async def answer(_identity: Identity, _operation: str, body: bytes) -> bytes:
        arrived.append(body)
        if len(arrived) == 2:
            full.set()
        await go.wait()
        return body

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        for number in range(2):
            call = client.call(other.address, ANN, "PutRow", b"%d" % number)
            tasks.create_task(call, name=f"call {number}")
        await full.wait()
        with pytest.raises(Unavailable) as busy:
            await client.call(other.address, ANN, "PutRow", b"2")
        assert busy.value.code == "OTSServerBusy"
        go.set()


async def test_what_is_not_answered_in_time_is_unknown_and_the_next_call_waits_on(
    client: HopClient,
) -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    go = asyncio.Event()

    async def answer(_identity: Identity, _operation: str, body: bytes) -> bytes:
        if body != b"0":
            arrived.put_nowait(body)
            await go.wait()
        return body

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(client, other.address, b"1"), name="first")
        assert await arrived.get() == b"1"
        caller = caller_of(client, other)
        for _ in range(hop_client.ANSWER_S):  # One more is needed; a timer's own may come between.
            caller.expire()
            assert await call(client, other.address, b"0") == b"0"
        second = tasks.create_task(call(client, other.address, b"2"), name="second")
        assert await arrived.get() == b"2"
        caller.expire()
        assert isinstance(await first, OutcomeUnknown)
        go.set()
        assert await second == b"2"


async def test_a_wire_that_is_cut_keeps_one_call_waiting_and_not_the_next(
    client: HopClient,
) -> None:
    """Nothing reports the cut: bytes on the connection are lost."""
    arrived, go = asyncio.Event(), asyncio.Event()

    async def answer(_identity: Identity, _operation: str, body: bytes) -> bytes:
        if body == b"1":
            arrived.set()
            await go.wait()
        return body

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(client, other.address, b"1"), name="first")
        await arrived.wait()
        caller = caller_of(client, other)
        for transport in other.server.connections:
            transport.pause_reading()
        for _ in range(hop_client.SILENT_S + 1):
            caller.expire()
            await asyncio.sleep(0.01)
        assert isinstance(await first, OutcomeUnknown)
        assert await call(client, other.address, b"2") == b"2"
        assert caller_of(client, other) is not caller
        go.set()


async def test_a_worker_that_lives_is_waited_for(client: HopClient) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def answer(_identity: Identity, _operation: str, body: bytes) -> bytes:
        arrived.set()
        await go.wait()
        return body

    async with worker(answer) as other, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(client, other.address, b"1"), name="first")
        await arrived.wait()
        caller = caller_of(client, other)
        for _ in range(hop_client.SILENT_S):
            for _ in range(2):  # The second sweep sends a ping.
                caller.expire()
            async with asyncio.timeout(SOON_S):
                while caller.silent_s:  # noqa: ASYNC110 - Without an event.
                    await asyncio.sleep(0)
        go.set()
        assert await first == b"1"
        assert caller_of(client, other) is caller


async def test_silence_is_of_no_account_while_nobody_waits(client: HopClient) -> None:
    async with worker(lambda _identity, _operation, body: body) as other:
        assert await call(client, other.address, b"1") == b"1"
        caller = caller_of(client, other)
        for _ in range(10 * hop_client.SILENT_S):
            caller.expire()
        assert await call(client, other.address, b"2") == b"2"
        assert caller_of(client, other) is caller


async def test_a_worker_that_reads_no_answers_is_cut_off(
    client: HopClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hop_server, "UNREAD_BYTES_MAX", 1 << 20)
    async with worker(lambda *_: bytes(1 << 20)) as other, asyncio.TaskGroup() as tasks:
        assert await call(client, other.address, b"0")
        transport = caller_of(client, other).transport
        assert transport is not None
        transport.pause_reading()
        calls = [tasks.create_task(call(client, other.address, b"%d" % n)) for n in range(40)]
        async with asyncio.timeout(SOON_S):
            while other.server.connections:  # noqa: ASYNC110 - Without an event.
                await asyncio.sleep(0.01)
        transport.resume_reading()
        assert [True for call in calls if isinstance(await call, OutcomeUnknown)]


def caller_of(client: HopClient, other: Other) -> hop_client._Caller:
    """Return the asking end of the connection to a worker."""
    caller = client._links[other.address].caller
    assert caller is not None
    return caller


async def call(client: HopClient, address: str, body: bytes) -> bytes | StoreError:
    """Return the answer to a call, or the failure."""
    try:
        return await client.call(address, ANN, "PutRow", body)
    except StoreError as error:
        return error
