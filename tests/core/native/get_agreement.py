"""GetRow by kernels against Python: the same answer, the same units, or left to Python.

As in ``agreement.py``, a function fails where the two ways differ, and returns whether the kernels
did answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import cast

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows import fold
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.fold import RowAddress
from rowtide.core.values import key
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, ShardRange, Table, TableOptions
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.plain_read import answer_plain
from rowtide.stream.api.row import RowOperations
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.slot.slot import Slot
from tests.core.chunk_dictionary import ChunkDictionary, put
from tests.core.native.inputs import VERSION_MS, Inputs
from tests.core.native.ways import outcome, python

__all__ = ["GET_AGREEMENTS"]

ANN = Identity("key-of-ann", "shop", b"")
KEY = (KeyColumn("id", STRING), KeyColumn("n", INTEGER))
TABLE = Table(ANN.instance, "t", 7, KEY, TableOptions(), None, 0, 0, 1, 1, (ShardRange("s1", 0),))


class Served:
    """A slot with one open shard over a dictionary."""

    is_foreign = False

    def __init__(self) -> None:
        self.rows = ChunkDictionary()
        self.shard = SimpleNamespace(state=SimpleNamespace(options=TABLE.options))

    def owner(self, _shard_id: str) -> Served:
        """Return the shard's owner."""
        return self

    def require_readable(self) -> None:
        """Do nothing: the lease holds."""


@cache
def _operations() -> tuple[RowOperations, Directory, Served]:
    """Return a worker's operations, and the rows that they read."""
    catalog, served = Catalog(), Served()
    index = replace(TABLE, name="i", table_id=8, main=TABLE.table_id)
    for table in (TABLE, index):
        catalog.tables[table.instance, table.name] = table
        catalog.tables_by_id[table.table_id] = table
    slots = cast(dict[int, Slot], {0: served})
    directory = Directory(catalog, slots, Limits(), lambda: VERSION_MS * 1000)

    async def make() -> RowOperations:
        return RowOperations(directory)

    return asyncio.run(make()), directory, served


def gets(inputs: Inputs) -> bool:
    """Compare reads of rows that are absent, deleted, wide, or have hidden versions."""
    chance = inputs.chance
    operations, directory, served = _operations()
    served.rows = ChunkDictionary()
    ttl_s = chance.choice((-1, -1, 86400))
    options = TableOptions(time_to_live_s=ttl_s, max_versions=chance.choice((1, 2)))
    served.shard.state.options = options
    wanted = inputs.key()
    if chance.randrange(8):
        _store_row(inputs, served.rows, wanted)
    body = inputs.maybe_damage(_request(inputs, wanted))

    def read() -> tuple[object, object]:
        directory.consumption = operations._consumption = Consumption(lambda: 1.0)
        answer = outcome(lambda: operations.get_row(ANN, body))
        return answer, directory.consumption.totals()

    assert read() == python(read)
    return outcome(lambda: answer_plain(directory, ANN, body)) is not None


def _store_row(inputs: Inputs, store: ChunkDictionary, wanted: list[tuple[bytes, bytes]]) -> None:
    """Store the wanted row, if its key can be one."""
    chance = inputs.chance
    values = [value for _, value in wanted]
    if [value[:1] for value in values] != [b"\x03", b"\x00"] or len(values[1]) != 9:
        return
    at = RowAddress(row_key(TABLE.table_id, key.encode(values)), *plainbuffer.key_piece(wanted))
    cells = inputs.row_cells()
    kind = chance.randrange(8)
    if kind == 0:
        cells = [put(name, VERSION_MS, name * 20_000) for name in "abcdef"]
    elif kind == 1:
        cells = [put("a", VERSION_MS, "x" * chance.choice((4000, 4096, 9000)))]
    elif kind > 3:
        cells = [cell._replace(version_ms=VERSION_MS) for cell in cells[:1]]
    store.write(python(lambda: fold.put_row(store, at, cells, 5, 9)))
    if kind == 2:
        store.write(python(lambda: fold.delete_row(store, at, 5)))


def _request(inputs: Inputs, wanted: list[tuple[bytes, bytes]]) -> bytes:
    chance = inputs.chance
    buffer = plainbuffer.HEADER + plainbuffer.encode_row(wanted, ())
    request = pb.GetRowRequest(table_name="t", primary_key=buffer, max_versions=1)
    if chance.randrange(3) == 0:
        request.cache_blocks = chance.choice((True, False))
    odd = chance.randrange(40)
    if odd == 0:
        request.max_versions = chance.choice((0, -1, 2, 2**31 - 1))
    elif odd == 1:
        request.columns_to_get.append("a")
    elif odd == 2:
        request.table_name = chance.choice(("i", "absent", "", "x" * 200, "\u00e9"))
    elif odd == 3:
        request.token = b"token"
    elif odd == 4:
        request.transaction_id = "none"
    elif odd == 5:
        request.ClearField("max_versions")
    elif odd == 6:
        request.time_range.specific_time = VERSION_MS
    return request.SerializeToString()


GET_AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {"read_get, whole_answer": gets}
