"""Timelines of the official Java library and ours: what one writes the other reads, byte for byte.

The program is ``TimelineProgram`` in ../java/, run where ``mvn`` is on the PATH.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from rowtide.client import (
    AsyncClient,
    FirstVersionMessage,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
)
from rowtide.client.timeline.message import FieldInput
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.client.timelines import collect
from tests.conformance.program import JAVA, environment_of, run

pytestmark = pytest.mark.system

Result = TypeVar("Result")
OURS, THEIRS = "timeline_ours", "timeline_theirs"
GROUP = "group:7"
TAGS = ["a", "", '"\\\t\n', "<b>&='", "\u2028", "你", "\x7f"]
MESSAGE: dict[str, FieldInput] = {
    "text": "你好 😀",
    "n": -(2**63),
    "x": 1.5,
    "ok": True,
    "raw": b"\x00\x01\xff",
    "tags": TAGS,
}
FIRST = FirstVersionMessage("m1", "é" * 600_000, {"sender": "ada"})
EMPTY = FirstVersionMessage("m2", "")


class Written(NamedTuple):
    """The server with both sides' tables, and what Java printed of ours."""

    server: Ready
    of_ours: list[str]
    of_theirs: list[str]


async def write_ours(client: AsyncClient) -> None:
    """Write what the Java program writes."""
    timelines = Timelines(client, schema_of(OURS))
    metas = TimelineMetas(client, TimelineMetaSchema(f"{OURS}_meta", stream_hours=0))
    await timelines.create()
    await metas.create()
    group = timelines.of(GROUP)
    stored = await group.store(MESSAGE)
    await group.update(stored.id, {"edited": 1})
    await group.store_many([{"text": ""}])
    await group.delete((await group.store({"text": "gone"})).id)
    await group.store(FIRST.fields())
    await group.store(EMPTY.fields())
    await metas.put([GROUP], {"name": "seven", "size": 2})
    await metas.update([GROUP], {"members": ["ada", "bob"]})


def schema_of(table: str) -> TimelineSchema:
    """Return the schema of a table as the Java library makes it."""
    return TimelineSchema(table, lists=("tags",), stream_hours=0, has_send_index=False)


def do(server: Ready, test: Callable[[AsyncClient], Awaitable[Result]]) -> Result:
    """Return what ``test`` returns for a client of the server."""

    async def connect() -> Result:
        access: dict[str, Any] = server._asdict()
        async with AsyncClient(**access) as client:
            return await test(client)

    return asyncio.run(connect())


@pytest.fixture(scope="module")
def written(server: Ready, java_program: tuple[Path, str]) -> Written:
    """Have both sides write the same messages to tables of their own, and Java read both."""
    folder, classes = java_program
    do(server, write_ours)
    command: list[str | Path] = [*JAVA, "-cp", classes, "rowtide.TimelineProgram", THEIRS, OURS]
    theirs, ours = run(command, folder, environment_of(server)).split("end\n")[:2]
    return Written(server, ours.splitlines(), theirs.splitlines())


def test_python_reads_what_java_wrote(written: Written) -> None:
    async def check(client: AsyncClient) -> None:
        entries = await collect(Timelines(client, schema_of(THEIRS)).of(GROUP).forward())
        assert [entry.fields for entry in entries[:2]] == [{**MESSAGE, "edited": 1}, {"text": ""}]
        assert [FirstVersionMessage.read(entry.fields) for entry in entries[2:]] == [FIRST, EMPTY]
        schema = TimelineMetaSchema(f"{THEIRS}_meta", lists=("members",))
        meta = await TimelineMetas(client, schema).get([GROUP])
        assert meta is not None
        assert meta.fields == {"name": "seven", "size": 2, "members": ["ada", "bob"]}

    do(written.server, check)


def test_java_reads_what_python_wrote(written: Written) -> None:
    tags = " ".join(base64.b64encode(tag.encode()).decode() for tag in TAGS)
    for lines in (written.of_ours, written.of_theirs):
        assert f"tags {tags}".split(" ") in [line.split(" ") for line in lines]
        assert [line for line in lines if line.startswith("content")] == [
            "content 600000",
            "content 0",
        ]
        assert lines[-1].endswith("[ada, bob]")
        # The lines begin with the id: the latest one is that of the last message.
        assert lines[-2] == f"latest {lines[-4].split(' ')[0]}"
    assert without_ids(written.of_ours) == without_ids(written.of_theirs)


def without_ids(lines: list[str]) -> list[list[str]]:
    """Return the lines without their first words."""
    return [line.split(" ")[1:] for line in lines if not line.startswith("latest")]


@pytest.mark.parametrize("suffix", ["", "_meta"])
def test_tables_and_rows_are_equal(written: Written, suffix: str) -> None:
    async def read(client: AsyncClient, table: str) -> tuple[bytes, list[list[Any]]]:
        described = await client.endpoint.call(
            "DescribeTable",
            pb.DescribeTableRequest(table_name=table),
            pb.DescribeTableResponse,
        )
        described.table_meta.table_name = ""
        shape = described.table_meta.SerializeToString()
        shape += described.table_options.SerializeToString()
        assert not described.stream_details.enable_stream
        found = await client.endpoint.call("GetRange", range_of(table), pb.GetRangeResponse)
        rows = plainbuffer.decode_rows(found.rows)
        names = [column.name for column in described.table_meta.primary_key]
        keep = [names.index(name) for name in names if name != "sequence_id"]
        return shape, [
            [[row.key[n] for n in keep], [(cell.name, cell.variant) for cell in row.cells]]
            for row in rows
        ]

    async def check(client: AsyncClient) -> None:
        ours, theirs = await read(client, OURS + suffix), await read(client, THEIRS + suffix)
        assert ours == theirs
        assert len(ours[1]) == (1 if suffix else 4)

    do(written.server, check)


def range_of(table: str) -> pb.GetRangeRequest:
    """Return the request for all rows of a timeline or meta table."""
    low: list[tuple[bytes, bytes]] = [(b"timeline_id", b"\x09")]
    high: list[tuple[bytes, bytes]] = [(b"timeline_id", b"\x0a")]
    if not table.endswith("_meta"):
        low.append((b"sequence_id", b"\x09"))
        high.append((b"sequence_id", b"\x0a"))
    return pb.GetRangeRequest(
        table_name=table,
        direction=pb.FORWARD,
        max_versions=1,
        inclusive_start_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(low, []),
        exclusive_end_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(high, []),
    )
