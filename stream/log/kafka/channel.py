"""One connection to one broker, one request at a time.

The client library opens and authenticates the connection. Then this protocol takes its
socket over. So an answer costs one turn of the event loop and no task, and a lost
connection fails the request in the same turn. Invariant: bytes leave only in ``send`` and
its siblings, so a caller that has called none has sent nothing.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import IncompatibleBrokerVersion

from rowtide.stream.log.kafka import fetch_bytes, metadata, offsets, produce
from rowtide.stream.log.kafka.fetch_bytes import FetchRequest, PartitionAnswer
from rowtide.stream.log.kafka.metadata import Metadata
from rowtide.stream.log.kafka.produce import ProduceResult

__all__ = ["Channel"]

CLIENT_ID = "rowtide"
CLIENT_ID_BYTES = CLIENT_ID.encode()
SIZE_BYTES = 4

Found = TypeVar("Found")


class Channel(asyncio.Protocol):
    """Request and answer over a connection that is taken over from the client library."""

    def __init__(self, connection: AIOKafkaConnection) -> None:
        self._loop = asyncio.get_running_loop()
        # Kept alive on purpose: a writer that is freed closes the socket.
        self._writer = connection._writer
        self._transport = connection._writer.transport
        self._versions = connection._versions
        self._produce_version = _newest(connection._versions, produce)
        self._fetch_version = _newest(connection._versions, fetch_bytes)
        self._offsets_version = _newest(connection._versions, offsets)
        self._metadata_version = _newest(connection._versions, metadata)
        self._correlation_id = 0
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._lost = False
        self.used_at = self._loop.time()
        """When the last request was sent, on the event loop's clock."""
        connection._read_task.cancel()
        connection._reader = connection._writer = None
        self._transport.set_protocol(self)

    @property
    def connected(self) -> bool:
        return not self._lost and not self._transport.is_closing()

    def send(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Send now; return the coroutine that waits for the answer. Raises only before
        the first byte.
        """
        number = self._next()
        request = request.prepare(self._versions)
        header = request.build_request_header(number, CLIENT_ID)
        answer = self._write(header.encode() + request.encode())
        return self._read(answer, partial(_decode_response, request, number))

    def produce(
        self,
        batches: Mapping[tuple[str, int], bytes],
        *,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> Coroutine[Any, Any, Iterable[ProduceResult]]:
        """Append a batch to each topic's partition, see ``send``."""
        number, version = self._next(), _require_version(self._produce_version, produce)
        message = produce.request(
            version,
            number,
            CLIENT_ID_BYTES,
            batches,
            timeout_ms=timeout_ms,
            transactional_id=transactional_id,
        )
        return self._read(self._write(message), partial(produce.answer, version, number))

    def fetch(
        self, wanted: FetchRequest
    ) -> Coroutine[Any, Any, dict[tuple[str, int], PartitionAnswer]]:
        """Fetch from many partitions, see ``send``."""
        number, version = self._next(), _require_version(self._fetch_version, fetch_bytes)
        message = fetch_bytes.request(version, number, CLIENT_ID_BYTES, wanted)
        return self._read(self._write(message), partial(fetch_bytes.answer, number))

    def offset(
        self, place: tuple[str, int], *, epoch: int, timestamp: int, isolation: int
    ) -> Coroutine[Any, Any, tuple[int, int]]:
        """Request a bound of a topic's partition, see ``send``."""
        number, version = self._next(), _require_version(self._offsets_version, offsets)
        question = {"epoch": epoch, "timestamp": timestamp, "isolation": isolation}
        message = offsets.request(version, number, CLIENT_ID_BYTES, place, **question)
        return self._read(self._write(message), partial(offsets.answer, number))

    def metadata(self, topics: Sequence[str] | None) -> Coroutine[Any, Any, Metadata]:
        """Request topics' metadata (None: of all topics), see ``send``."""
        number = self._next()
        _require_version(self._metadata_version, metadata)
        message = metadata.request(number, CLIENT_ID_BYTES, topics)
        return self._read(self._write(message), partial(metadata.answer, number))

    def _next(self) -> int:
        """Return the number of the next request. Raises if none can be sent."""
        assert self._answer is None, "one request at a time"
        if not self.connected:
            raise ConnectionError("the connection is lost")
        self._correlation_id = (self._correlation_id + 1) % 2**31
        return self._correlation_id

    def _write(self, message: bytes) -> asyncio.Future[bytes]:
        self._answer = self._loop.create_future()
        self.used_at = self._loop.time()
        self._transport.write(len(message).to_bytes(SIZE_BYTES) + message)
        return self._answer

    def drop(self) -> None:
        """Close at once. Buffered bytes are dropped, and a waiting request fails."""
        self._transport.abort()
        self._fail(ConnectionError("the connection was dropped"))

    def data_received(self, data: bytes) -> None:
        """Collect an answer, and pass it on once it is whole."""
        self._received += data
        size = SIZE_BYTES + int.from_bytes(self._received[:SIZE_BYTES])
        if len(self._received) < max(size, SIZE_BYTES + 1):
            return
        answer, self._answer = self._answer, None
        frame, self._received = self._received, bytearray()
        if answer is None or len(frame) > size:
            self.drop()  # No request is waiting for this.
        elif not answer.done():
            answer.set_result(bytes(memoryview(frame)[SIZE_BYTES:]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the running request."""
        self._fail(exc or ConnectionResetError("the broker closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._lost = True
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)

    async def _read(self, answer: asyncio.Future[bytes], decode: Callable[[bytes], Found]) -> Found:
        frame = await answer
        try:
            return decode(frame)
        except ValueError as error:
            raise ConnectionError(f"the answer cannot be read: {error}") from error


class Packed(Protocol):
    """A kind of request that this package encodes: the oldest and newest version known."""

    API_KEY: int
    VERSIONS: tuple[int, int]


def _newest(versions: Mapping[int, tuple[int, int]], packed: Packed) -> int | None:
    """Return the newest version of a kind of request that we and the broker know."""
    oldest, newest = versions.get(packed.API_KEY, (0, 0))
    version = min(newest, packed.VERSIONS[1])
    return version if version >= max(oldest, packed.VERSIONS[0]) else None


def _require_version(version: int | None, packed: Packed) -> int:
    if version is None:
        raise IncompatibleBrokerVersion(
            f"requests of API key {packed.API_KEY} and versions {packed.VERSIONS} are refused"
        )
    return version


def _decode_response(request: Any, correlation_id: int, frame: bytes) -> Any:
    """Return an answer as the client library decodes it."""
    stream = io.BytesIO(frame)
    header = request.parse_response_header(stream)
    response = request.RESPONSE_TYPE.decode(stream)
    if header.correlation_id != correlation_id:
        raise ConnectionError("the answer belongs to another request")
    return response
