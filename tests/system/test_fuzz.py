"""Any body for any operation at a running server: a typed refusal or an answer, never a fault.

Messages are made from their descriptors, with names, keys and rows that fit, nearly fit, or don't;
then some of their bytes are damaged. The signature is right, so everything gets to the operation.
"""

from __future__ import annotations

import http.client
import json
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from rowtide.cli.client import Access, sign_headers
from rowtide.client.wire_row import Delete, Increment, Key, Put, Special, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import STATUS
from tests.support.searches import examples
from tests.support.servers import LOG_OPTIONS
from tests.system.load import TABLE, create_table
from tests.system.server import Server

# Its tests share a server: they stay in one process.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("fuzz")]

OPERATIONS = [
    *("CreateTable", "ListTable", "DescribeTable", "UpdateTable", "DeleteTable"),
    *("PutRow", "UpdateRow", "DeleteRow", "GetRow", "BatchGetRow", "BatchWriteRow", "GetRange"),
    *("StartLocalTransaction", "CommitTransaction", "AbortTransaction"),
    *("ListStream", "DescribeStream", "GetShardIterator", "GetStreamRecord"),
    *("BulkImport", "BulkExport", "ComputeSplitPointsBySize"),
    *("AddDefinedColumn", "DeleteDefinedColumn"),
]
JSON_OPERATIONS = [
    *("RowtideStatus", "RowtideListInstances", "RowtideCreateInstance"),
    *("RowtideListKeys", "RowtideCreateKey", "RowtideDescribeKey"),
    *("RowtideListTokens", "RowtideCreateToken", "RowtideCheckToken"),
    *("RowtideTableFigures", "RowtideListLoads"),
]
GROWTH_MIB_MAX = 150
"""Memory that a few thousand requests may cost: caches and pools, not what they sent."""

KEYS: list[Key] = [
    (("name", "a"), ("number", 1)),
    (("name", "a"), ("number", "one")),
    (("name", "a"),),
    (("name", Special.INF_MIN), ("number", Special.INF_MIN)),
    (("name", Special.INF_MAX), ("number", Special.INF_MAX)),
    (("name", "k" * 1025), ("number", 2**63 - 1)),
    (("number", 1), ("name", "a")),
]
CELLS: list[Put | Delete | Increment] = [
    Put("a", "text"),
    Put("a", 1, 2**63 - 1),
    Put("a", 1.5, -1),
    Put("#", True),
    Put("b" * 300, b"bytes"),
    Put("c", "x" * 5000),
    Delete("a"),
    Delete("a", 1),
    Increment("a", 2**63 - 1),
]
TEXTS = [*[TABLE] * 12, "absent", "", "#", "é" * 300, "name", "a"]
FILTERS = ("filter", "column_condition")
"""Fields that hold a serialised ``Filter``."""

LARGEST = {
    FieldDescriptor.CPPTYPE_INT32: 2**31 - 1,
    FieldDescriptor.CPPTYPE_INT64: 2**63 - 1,
    FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1,
    FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1,
}
DEPTH_MAX = 4
NEEDED = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
"""Types of fields without which nearly every request is refused early: names, keys, rows."""

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda nested: st.lists(nested, max_size=3) | st.dictionaries(st.text(max_size=5), nested),
    max_leaves=5,
).map(lambda value: json.dumps(value).encode())


class Answer(NamedTuple):
    status: int
    content: bytes


class Caller:
    """Sends signed bodies over one connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        ready = server.ready()
        self._access = Access(ready.instance, ready.access_key_id, ready.access_key_secret)
        address = urlsplit(ready.endpoint)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)

    def call(self, operation: str, body: bytes) -> Answer:
        headers = sign_headers(self._access, operation, body, datetime.now(UTC))
        self._connection.request("POST", f"/{operation}", body, headers)
        response = self._connection.getresponse()
        return Answer(response.status, response.read())

    def close(self) -> None:
        self._connection.close()

    @property
    def memory_mib(self) -> float:
        """Resident memory of the worker."""
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1])
        return pages * 4096 / 2**20


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Caller]:
    """One server for all examples."""
    server = Server(tmp_path_factory.mktemp("fuzz") / "data", cache_dir, options=LOG_OPTIONS)
    try:
        server.start()
        with server.client() as client:
            create_table(client)
        with closing(Caller(server)) as caller:
            yield caller
        assert "Traceback" not in server.log.read_text(errors="replace")
    finally:
        server.stop_all()


def random_message(chance: random.Random, kind: type[Message], depth: int = 0) -> Message:
    """Return a message with some of its fields set, names and rows nearly always."""
    message = kind()
    described: Any
    for described in kind.DESCRIPTOR.fields:
        if described.label == FieldDescriptor.LABEL_REPEATED:
            for _ in range(chance.choice((0, 1, 1, 2))):
                set_field(chance, message, described, depth, repeated=True)
        elif chance.random() < (0.98 if described.type in NEEDED else 0.4):
            set_field(chance, message, described, depth, repeated=False)
    return message


def set_field(
    chance: random.Random, message: Message, described: Any, depth: int, *, repeated: bool
) -> None:
    """Give one field a value, or one more."""
    if described.message_type is not None:
        if depth < DEPTH_MAX:
            nested = random_message(chance, GetMessageClass(described.message_type), depth + 1)
            target = getattr(message, described.name)
            (target.add() if repeated else target).MergeFrom(nested)
        return
    value = random_value(chance, described, depth)
    if repeated:
        getattr(message, described.name).append(value)
    else:
        setattr(message, described.name, value)


def random_value(chance: random.Random, described: Any, depth: int) -> Any:
    """Return a value of a field's type."""
    if described.enum_type is not None:
        return chance.choice([value.number for value in described.enum_type.values])
    if described.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(TEXTS)
    if described.name in FILTERS and depth < DEPTH_MAX and chance.random() < 0.5:
        return random_message(chance, pb.Filter, depth + 1).SerializePartialToString()
    if described.type == FieldDescriptor.TYPE_BYTES:
        return random_row(chance)
    if described.cpp_type in LARGEST:
        return chance.choice((0, 1, 1, 1, 2, 100, LARGEST[described.cpp_type]))
    return chance.choice((False, True))


def random_row(chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(60))
    cells = chance.choices(CELLS, k=chance.choice((0, 1, 3)))
    key = KEYS[0] if chance.random() < 0.6 else chance.choice(KEYS)
    return encode_row(key, cells, deleted=chance.random() < 0.1)


def damage(chance: random.Random, body: bytes) -> bytes:
    """Return a body with bytes altered, cut off, or put in; often as it is."""
    spoiled = bytearray(body)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 3))):
        at = chance.randrange(len(spoiled) + 1)
        how = chance.choice(("alter", "alter", "cut", "insert"))
        if how == "cut":
            del spoiled[at:]
        elif how == "insert":
            spoiled[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif at < len(spoiled):
            spoiled[at] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def random_request(chance: random.Random) -> tuple[str, bytes]:
    """Return an operation and a body for it."""
    operation = chance.choice(OPERATIONS)
    message: Any = random_message(chance, getattr(pb, f"{operation}Request"))
    if operation == "DeleteTable" and message.table_name == TABLE:
        message.table_name = "absent"
    return operation, damage(chance, message.SerializePartialToString())


def check(caller: Caller, operation: str, body: bytes) -> str:
    """A refusal is typed, and is the caller's fault; return its text."""
    status, content = caller.call(operation, body)
    if status == 200:
        return "answered"
    error = pb.Error.FromString(content)
    shown = f"{operation}: {status} {error.code}: {error.message}"
    assert STATUS[error.code] == status, shown
    assert 400 <= status < 500, shown
    return shown


@settings(max_examples=examples(250, 1000))
@given(st.randoms(use_true_random=True, note_method_calls=False).map(random_request))
def test_whatever_is_asked_is_answered_or_refused(
    caller: Caller, request: tuple[str, bytes]
) -> None:
    operation, body = request
    note(f"{operation} {body!r}")
    event(check(caller, operation, body)[:60])


@settings(max_examples=examples(30, 60))
@given(st.sampled_from(JSON_OPERATIONS), st.binary(max_size=40) | ANY_JSON)
def test_whatever_is_no_object_of_json_is_refused(
    caller: Caller, operation: str, body: bytes
) -> None:
    note(f"{operation} {body!r}")
    check(caller, operation, body)


def test_large_bodies_of_nothing_cost_no_memory(caller: Caller) -> None:
    before = caller.memory_mib
    for number in range(200):
        body = bytes([number]) * 300_000
        for operation in ("PutRow", "BatchWriteRow", "GetRange"):
            check(caller, operation, body)
    assert caller.memory_mib - before < GROWTH_MIB_MAX


def test_the_server_still_serves(caller: Caller) -> None:
    with caller.server.client() as client:
        key = (("name", "after"), ("number", 1))
        client.put_row(TABLE, key, [Put("a", "after")])
        row = client.get_row(TABLE, key)
    assert row is not None
    assert caller.memory_mib < 500
