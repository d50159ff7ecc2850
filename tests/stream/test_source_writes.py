"""A source's requests at one worker: what is written, what is answered, what a repetition
finds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.plainbuffer import HEADER, increment_cell, put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.source_position import positions_of
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import STRING, KeyColumn, ShardRange, Table, TableOptions
from rowtide.stream.api.bulk import BulkOperations
from rowtide.stream.api.directory import Directory
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.routing.fan_out import FanOut
from rowtide.stream.shard.owner import ShardOwner, ShardSettings
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.waiting import Reply
from tests.contract.memory_log import Fault, MemoryLog
from tests.core.shard_model import NOW_US

ANN = Identity("key-of-ann", "shop", b"")
LIMITS = Limits()
PAIRS = replace(LIMITS, source_slice_rows=2)
"""Two rows are decided, then others have their turn."""
MIDDLE = variant.encode("m")
LEFT, RIGHT = ShardRange("s1", 1, b"", b"\x04m"), ShardRange("s2", 2, b"\x04m", b"")
SHOP = Table(
    "shop", "t", 7, (KeyColumn("pk", STRING),), TableOptions(), None, 0, 0, 1, 1, (LEFT, RIGHT)
)


@dataclass(slots=True)
class OpenSlot:
    """A slot's open shards."""

    shards: dict[str, ShardOwner] = field(default_factory=dict)
    is_foreign: bool = False

    def owner(self, shard_id: str) -> ShardOwner:
        return self.shards[shard_id]


@dataclass(slots=True)
class Worker:
    """One worker with both shards of a table, each with a log in memory."""

    operations: BulkOperations
    directory: Directory
    logs: dict[str, MemoryLog]
    owners: dict[str, ShardOwner]

    async def write(self, *rows: tuple[str, int], only: tuple[str, ...] = ()) -> str:
        """Write a source's rows, each a name and its position; return a letter for each row.

        ``w`` is written, or was before; ``u`` not written, ``r`` refused, ``?`` unknown.
        """
        return await self.ask(request(*[part(name, at) for name, at in rows], only=only))

    async def ask(self, asked: pb.BulkImportRequest) -> str:
        answer = await self.operations.bulk_import(ANN, asked.SerializeToString())
        letters = {"": "w", "OTSTimeout": "?", "OTSParameterInvalid": "r", "OTSInvalidPK": "r"}
        results = pb.BulkImportResponse.FromString(answer).rows
        return "".join(letters.get(row.error.code, "u") for row in results)

    def read_log(self, shard_id: str) -> list[str]:
        """Return a shard's log: the positions of its rows, and behind ``=`` those reached."""
        found: list[str] = []
        for entry in self.logs[shard_id]._storage.entries:
            envelope, body = record.decode_record(entry.value)
            if envelope.at != entry.offset:
                continue
            if isinstance(body, record.SourcePosition):
                found.append(f"={int.from_bytes(body.position, 'big')}")
            elif isinstance(body, record.PutBody):
                found.append(str(variant.decode(body.cells[0].variant)))
        return found


def part(name: str, at: int, **more: object) -> pb.RowInBulkImportRequest:
    cells = [put_cell(b"v", variant.encode(at), None)]
    row = HEADER + plainbuffer.encode_row([(b"pk", variant.encode(name))], cells)
    made = pb.RowInBulkImportRequest(type=pb.PUT, row_change=row, position=at.to_bytes(2, "big"))
    made.time_ms = 1000
    for field_name, value in more.items():
        setattr(made, field_name, value)
    return made


FORM = HEADER + plainbuffer.encode_row(
    [(b"pk", variant.encode(""))], [put_cell(b"v", variant.encode(0), None)]
)


DOUBLE_FORM = HEADER + plainbuffer.encode_row(
    [(b"pk", variant.encode(""))], [put_cell(b"v", variant.encode(0.0), None)]
)
NAMED_AS_KEY_FORM = HEADER + plainbuffer.encode_row(
    [(b"pk", variant.encode(""))], [put_cell(b"pk", variant.encode(0), None)]
)


def pack(
    name: str, at: int, *, bits: int | None = None, **more: object
) -> pb.RowInBulkImportRequest:
    """Return what ``part`` does, packed by ``FORM``; ``bits`` are those of its number."""
    text = name.encode()
    row = len(text).to_bytes(2, "little") + (bits or at).to_bytes(8, "little") + text
    return part(name, at, **{"row_change": row, "row_form": 1, **more})


def of_forms(
    *parts: pb.RowInBulkImportRequest, forms: Sequence[bytes] = (FORM,)
) -> pb.BulkImportRequest:
    asked = request(*parts)
    asked.row_forms.extend(forms)
    return asked


def request(*parts: pb.RowInBulkImportRequest, only: tuple[str, ...] = ()) -> pb.BulkImportRequest:
    asked = pb.BulkImportRequest(table_name="t", source="mysql", only_shards=only)
    asked.rows.extend(parts)
    return asked


@asynccontextmanager
async def running(
    path: Path,
    logs: Mapping[str, MemoryLog] | None = None,
    *,
    limits: Limits = LIMITS,
    table: Table = SHOP,
) -> AsyncIterator[Worker]:
    """Open both shards on what their logs have, and serve them."""
    catalog = MemoryLog()
    known = CatalogOwner(catalog.twin(), catalog.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await known.open(1)
    await known.change(lambda _, __: [Document(TABLE, table_id(table), table_content(table))])
    found = dict(logs or {"s1": MemoryLog("s1"), "s2": MemoryLog("s2")})
    rows = RowStore(path)
    clock = iter(range(NOW_US, NOW_US + 10**9, 1000))
    owners: dict[str, ShardOwner] = {}
    for shard_id, log in found.items():
        shard = Shard(shard_id, table, rows, ShardState(table.options), limits=limits)
        shard.adopt_claim(1, b"ownerid8")
        owner = owners[shard_id] = ShardOwner(
            shard,
            log,
            rows,
            clock_us=lambda: next(clock),
            lease=ReadLease(lambda: True),
            settings=ShardSettings(),
        )
        _, end = await log.bounds()
        owner.fold.replay(await log.read(0, bytes_max=1 << 20) if end else [])
        owner.open()
    slots = {1: OpenSlot({"s1": owners["s1"]}), 2: OpenSlot({"s2": owners["s2"]})}
    directory = Directory(known.catalog, slots, limits, lambda: NOW_US)  # type: ignore[arg-type]
    try:
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(owner.run()) for owner in owners.values()]
            yield Worker(BulkOperations(directory), directory, found, owners)
            for run in runs:
                run.cancel()
    finally:
        rows.close()


async def divide(path: Path, rows: pb.BulkImportRequest) -> dict[str, pb.BulkImportRequest]:
    """Return what a third worker asks of those that have the shards, by their addresses."""
    asked: dict[str, pb.BulkImportRequest] = {}

    async def ask(address: str, _operation: str, _identity: Identity, body: bytes) -> bytes:
        asked[address] = pb.BulkImportRequest.FromString(body)
        answer = pb.BulkImportResponse(table_name="t")
        for _ in asked[address].rows:
            answer.rows.add(is_ok=True)
        return answer.SerializeToString()

    async def refresh() -> None:
        pass

    async with running(path) as worker:
        addresses = {1: "a:1", 2: "b:1"}
        fan_out = FanOut(worker.directory, lambda: addresses, ask, refresh, address="c:1")
        await fan_out.load(ANN, rows.SerializeToString(), rows)
    return asked


async def test_rows_and_their_position_are_one_group_of_each_shard(tmp_path: Path) -> None:
    async with running(tmp_path) as worker:
        assert await worker.write(("a", 1), ("z", 2), ("b", 3)) == "www"
        assert worker.read_log("s1") == ["1", "3", "=3"]
        assert worker.read_log("s2") == ["2", "=2"]
        groups = [
            record.decode_envelope(entry.value).group
            for entry in worker.logs["s1"]._storage.entries
        ]
        assert groups == [record.FIRST, 0, record.LAST]


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.REFUSED])
async def test_a_request_that_met_a_fault_is_made_again(tmp_path: Path, fault: Fault) -> None:
    async with running(tmp_path) as worker:
        worker.logs["s1"].fault = fault
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(worker.write(("a", 1), ("b", 2)))
            second = tasks.create_task(worker.write(("a", 1), ("b", 2)))
        assert (first.result(), second.result()) == ("ww", "ww")
        assert await worker.write(("a", 1), ("b", 2), ("c", 3)) == "www"
        assert worker.read_log("s1") == ["1", "2", "=2", "3", "=3"]


@pytest.mark.parametrize("fault", [None, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.REFUSED])
async def test_a_slice_of_a_request_follows_those_before_it(
    tmp_path: Path, fault: Fault | None
) -> None:
    async with running(tmp_path, limits=PAIRS) as worker:
        worker.logs["s1"].fault = fault
        rows = [("a", 1), ("z", 2), ("b", 3), ("c", 4), ("d", 5)]
        assert await worker.write(*rows) == "wwwww"
        assert worker.read_log("s1") == ["1", "=1", "3", "4", "=4", "5", "=5"]
        assert worker.read_log("s2") == ["2", "=2"]


async def test_no_slice_overtakes_one_that_met_a_closed_shard(tmp_path: Path) -> None:
    async with running(tmp_path, limits=PAIRS) as worker:
        worker.owners["s1"]._life.is_open = False
        rows = [("a", 1), ("z", 2), ("b", 3), ("y", 4), ("x", 5)]
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(worker.write(*rows))
            await asyncio.sleep(0)  # The first slice was refused.
            worker.owners["s1"].open()
        assert asking.result() == "uwuww"
        assert worker.read_log("s1") == []
        assert await worker.write(*rows) == "wwwww"
        assert worker.read_log("s1") == ["1", "=1", "3", "=3"]


async def test_a_fault_in_a_later_slice_leaves_those_before_it(tmp_path: Path) -> None:
    async with running(tmp_path, limits=PAIRS) as worker:
        wrong = part("b", 3, row_change=HEADER + plainbuffer.encode_row([(b"x", MIDDLE)], []))
        assert await worker.ask(request(part("a", 1), part("z", 2), wrong, part("c", 4))) == "wwru"
        assert worker.read_log("s1") == ["1", "=1"]


async def test_positions_are_found_in_the_rows_and_in_the_log(tmp_path: Path) -> None:
    async with running(tmp_path / "a") as worker:
        await worker.write(("a", 5), ("z", 6))
        logs = {name: log.twin() for name, log in worker.logs.items()}
    for folder in ("a", "b"):  # With the rows there were, and with none.
        async with running(tmp_path / folder, logs) as worker:
            assert await worker.write(("a", 5), ("z", 6)) == "ww"
            assert worker.read_log("s1") == ["5", "=5"]
            assert worker.read_log("s2") == ["6", "=6"]


async def test_a_row_with_a_fault_of_its_own_holds_up_those_behind_it(tmp_path: Path) -> None:
    async with running(tmp_path) as worker:
        wrong = part("b", 2, row_change=HEADER + plainbuffer.encode_row([(b"x", MIDDLE)], []))
        rows = part("a", 1), wrong, part("z", 3), part("c", 4)
        assert await worker.ask(request(*rows)) == "wruu"
        assert await worker.ask(request(*rows)) == "wruu"
        assert await worker.ask(request(rows[0], *rows[2:])) == "www"
        assert worker.read_log("s1") == ["1", "=1", "4", "=4"]


async def test_an_open_transaction_holds_up_all_rows_of_its_shard(tmp_path: Path) -> None:
    async with running(tmp_path) as worker:
        owner = worker.owners["s1"]
        begun = Reply(asyncio.get_running_loop())
        transaction = TransactionId("s1", NOW_US, 1)
        owner.begin(transaction, variant.encode("b"), begun)
        await begun.future
        rows = ("a", 1), ("b", 2), ("z", 3)
        assert await worker.write(*rows) == "uuw"
        owner.abort(transaction)
        assert await worker.write(*rows) == "www"
        assert worker.read_log("s1") == ["1", "2", "=2"]
        assert worker.read_log("s2") == ["3", "=3"]


async def test_nothing_is_written_to_a_shard_that_another_catalog_did_not_see(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as worker:
        # The worker that divided this saw "a" and "b" in two shards: the other one may
        # have "a".
        assert await worker.write(("b", 2), ("z", 3), only=("s9", "s2")) == "uw"
        assert await worker.write(("a", 1), ("b", 2), only=("s1",)) == "ww"
        assert worker.read_log("s1") == ["1", "2", "=2"]


async def test_a_divided_request_names_the_shards_of_each_part(tmp_path: Path) -> None:
    asked = await divide(tmp_path, request(part("a", 1), part("z", 2), part("b", 3)))
    parts = {at: (one.source, list(one.only_shards)) for at, one in asked.items()}
    assert parts == {"a:1": ("mysql", ["s1"]), "b:1": ("mysql", ["s2"])}
    assert [row.position for row in asked["a:1"].rows] == [b"\0\1", b"\0\3"]


INCREMENT = HEADER + plainbuffer.encode_row(
    [(b"pk", MIDDLE)], [increment_cell(b"v", variant.encode(1))]
)
NAN = HEADER + plainbuffer.encode_row(
    [(b"pk", MIDDLE)], [put_cell(b"v", variant.encode(math.nan), None)]
)
NAMED_AS_KEY = HEADER + plainbuffer.encode_row(
    [(b"pk", MIDDLE)], [put_cell(b"pk", variant.encode(1), None)]
)
VERSIONED = HEADER + plainbuffer.encode_row(
    [(b"pk", MIDDLE)], [put_cell(b"v", variant.encode(1), 5)]
)


@pytest.mark.parametrize(
    "wrong",
    [
        part("a", 1, time_ms=-1),
        part("a", 1, type=pb.UPDATE, row_change=INCREMENT),
        part("a", 1, row_change=VERSIONED),
        part("a", 1, row_change=b"x"),
        part("a", 1, row_change=NAN),
        part("a", 1, row_change=NAMED_AS_KEY),
    ],
    ids=[
        "a time below 0",
        "an increment",
        "a version of its own",
        "no row at all",
        "a double that is no number",
        "a column named as the key's",
    ],
)
async def test_a_row_that_no_source_writes_is_refused(
    tmp_path: Path, wrong: pb.RowInBulkImportRequest
) -> None:
    async with running(tmp_path) as worker:
        assert await worker.ask(request(wrong)) == "r"
        assert worker.read_log("s1") == worker.read_log("s2") == []


async def test_packed_rows_are_written_as_others_are(tmp_path: Path) -> None:
    logs: list[list[bytes]] = []
    for make in (part, pack):
        async with running(tmp_path / make.__name__) as worker:
            rows = [make(name, at) for at, name in enumerate(("a", "z", "é", "a"), start=1)]
            rows.append(make("a", 5, type=pb.UPDATE))
            assert await worker.ask(of_forms(*rows, part("b", 9))) == "wwwwww"
            assert await worker.ask(of_forms(*rows)) == "wwwww"
            logs.append([e.value for log in worker.logs.values() for e in log._storage.entries])
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("wrong", "forms"),
    [
        pytest.param(pack("a", 1, time_ms=-1), [FORM], id="a time below 0"),
        pytest.param(pack("a", 1, type=pb.DELETE), [FORM], id="cells in a delete"),
        pytest.param(pack("a", 1, row_change=b"x"), [FORM], id="no row at all"),
        pytest.param(
            pack("a", 1, bits=0x7FF0 << 48), [DOUBLE_FORM], id="a double that is infinite"
        ),
        pytest.param(
            pack("a", 1, bits=0x7FF8 << 48), [DOUBLE_FORM], id="a double that is no number"
        ),
        pytest.param(pack("a", 1), [NAMED_AS_KEY_FORM], id="a column named as the key's"),
        pytest.param(pack("a", 1), [], id="no form"),
        pytest.param(pack("a", 1, row_form=2), [FORM], id="a form that is not there"),
        pytest.param(pack("a", 1), [b"x"], id="a form that is no row"),
        pytest.param(pack("k" * 1025, 1), [FORM], id="a key too long"),
        pytest.param(pack("a", 1), [FORM.replace(b"pk", b"kp")], id="a form with a wrong checksum"),
        pytest.param(
            pack("a", 1),
            [HEADER + plainbuffer.encode_row([(b"kp", MIDDLE)], [put_cell(b"v", b"\0" * 9, None)])],
            id="another table's key",
        ),
    ],
)
async def test_a_packed_row_that_no_source_writes_is_refused(
    tmp_path: Path, wrong: pb.RowInBulkImportRequest, forms: Sequence[bytes]
) -> None:
    async with running(tmp_path) as worker:
        rows = [part("a", 0), wrong, part("a", 9)]
        assert await worker.ask(of_forms(*rows, forms=forms)) == "wru"
        assert worker.read_log("s1") == ["0", "=0"]


async def test_each_part_of_a_divided_request_has_its_forms(tmp_path: Path) -> None:
    asked = await divide(tmp_path, of_forms(pack("a", 1), pack("z", 2), part("b", 3)))
    parts = {at: [row.position for row in one.rows] for at, one in asked.items()}
    assert parts == {"a:1": [b"\0\1", b"\0\3"], "b:1": [b"\0\2"]}
    assert [list(one.row_forms) for one in asked.values()] == [[FORM], [FORM]]


@pytest.mark.parametrize(
    ("positions", "source", "why"),
    [
        pytest.param("2 1", "mysql", "must rise from row to row", id="falling positions"),
        pytest.param("1 1", "mysql", "must rise from row to row", id="a position twice"),
        pytest.param("1", "", "name must have 1 to 255 bytes, not 0", id="no name"),
        pytest.param("1", "x" * 256, "name must have 1 to 255 bytes, not 256", id="a long name"),
    ],
)
async def test_a_request_that_no_source_makes_is_refused_whole(
    tmp_path: Path, positions: str, source: str, why: str
) -> None:
    async with running(tmp_path) as worker:
        asked = request(*[part("a", int(at)) for at in positions.split()])
        asked.source = source
        with pytest.raises(Rejected, match=why):
            await worker.ask(asked)


@pytest.mark.parametrize("length", [0, 1025])
async def test_a_position_has_a_length(tmp_path: Path, length: int) -> None:
    async with running(tmp_path) as worker:
        asked = request(part("a", 1, position=b"\x01" * length))
        with pytest.raises(Rejected, match=f"must have 1 to 1024 bytes, not {length}"):
            await worker.ask(asked)


async def test_more_rows_than_fit_are_refused(tmp_path: Path) -> None:
    limits = replace(Limits(), source_write_rows_max=2)
    async with running(tmp_path) as worker:
        worker.operations._limits = limits
        with pytest.raises(Rejected, match="Rows count exceeds the upper limit: 2"):
            await worker.write(("a", 1), ("a", 2), ("a", 3))


async def test_more_bytes_than_fit_are_refused_unless_they_are_of_one_row(tmp_path: Path) -> None:
    limits = replace(Limits(), source_write_bytes_max=10)
    async with running(tmp_path) as worker:
        worker.operations._limits = limits
        assert await worker.write(("a", 1)) == "w"
        with pytest.raises(Rejected, match="total data size of BulkImport request exceeds"):
            await worker.write(("a", 2), ("a", 3))


def test_the_changelog_never_lowers_a_position_and_those_of_dropped_tables_go(
    tmp_path: Path,
) -> None:
    rows = RowStore(tmp_path)
    [low, _] = positions_of(7)
    position_key = low + b"\0\1m" + b"\0\0"
    rows.apply_changelog([(1, position_key, b"5"), (2, position_key, b"4")])
    assert rows.get(position_key) == b"5"
    assert rows.find_left_over(lambda number: number == 7) == []
    assert rows.find_left_over(lambda number: number == 8) == [position_key]
    rows.apply_changelog([(3, position_key, None)])
    assert rows.get(position_key) is None
    rows.close()
