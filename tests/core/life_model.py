"""A shard in memory with a clock that tests move: what versions live, before and after reclaiming.

Rows have a one-column key; cells are written as in ``chunk_dictionary``.
"""

from collections.abc import Sequence

from rowtide.core.protocol import plainbuffer
from rowtide.core.records import record
from rowtide.core.rows import chunk, fold
from rowtide.core.rows.mutation import UPDATE, ChangeRequest
from rowtide.core.rows.read import Selection, answer, read_range, read_row
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.mark import decode_mark, encode_mark
from rowtide.core.shard.reclaim_scan import scan_slice
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import STRING, KeyColumn, Table, TableOptions
from rowtide.core.values.version import Window
from tests.core.chunk_dictionary import ChunkDictionary

EVERY = Selection(Window(max_versions=INT64_MAX))
PREFIX = chunk.table_prefix(1)
ANY_AGE_S = 2**40


def wire_key(row: str) -> list[tuple[bytes, bytes]]:
    """Return a row's key."""
    return [(b"pk", variant.encode(row))]


def row_key(row: str) -> bytes:
    """Return a row's key among the chunks."""
    return chunk.row_key(1, key.encode([variant.encode(row)]))


class Life:
    """One table in one shard. ``now_ms`` is the clock."""

    def __init__(self, max_versions: int = 1, ttl_s: int = -1, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.log: list[bytes] = []
        self.store = ChunkDictionary()
        self._first = TableOptions(ttl_s, max_versions, ANY_AGE_S)
        columns = (KeyColumn("pk", STRING),)
        self._table = Table("i", "t", 1, columns, self._first, None, 0, 0, 1, 1, ())
        self.shard = self._open_shard(self.store)

    def _open_shard(self, store: ChunkDictionary) -> Shard:
        shard = Shard("s1", self._table, store, ShardState(self._first), limits=Limits())
        shard.adopt_claim(1, b"ownerid8")
        return shard

    # Changes.

    def write(self, row: str, cells: Sequence[Cell], kind: int = UPDATE) -> None:
        """Write one row."""
        self._stand(self.shard.evaluate(ChangeRequest(kind, wire_key(row), cells), self._now_us))

    def options(self, *, ttl_s: int, max_versions: int) -> None:
        """Change the table's options."""
        body = record.Options(ttl_s, max_versions, None)
        self._stand(self.shard.control(body, self._now_us))

    def reclaim(self, chunks_max: int = 1000, work_bytes_max: int = 2**20) -> int:
        """Let the reclaimer pass once; return the number of records it wrote."""
        before = len(self.log)
        low: bytes | None = PREFIX
        while low is not None:
            found = scan_slice(
                self.store,
                low,
                chunk.table_prefix(2),
                self.shard.reclaim_body(b"", b"", self._now_us),
                chunks_max=chunks_max,
                work_bytes_max=work_bytes_max,
            )
            if found.last:
                self.remove(found.first, found.last)
            low = found.following
        return len(self.log) - before

    def remove(self, first: bytes, last: bytes) -> None:
        """Let what is hidden between two places be removed."""
        body = record.Reclaim(first, last, 0, 0)
        self._stand(self.shard.control(body, self._now_us))

    def _stand(self, evaluated: Evaluated) -> None:
        if evaluated.body is None:
            return
        base = len(self.log)
        self.log.append(self.shard.encode_record(evaluated, base))
        writes = self.shard.confirm([evaluated], base)
        self.store.write(writes)
        self.shard.settle_writes(writes)

    def replay_log(self, store: ChunkDictionary | None = None) -> ChunkDictionary:
        """Return the rows that a replay of the whole log makes of ``store``, or of nothing."""
        rows = store or ChunkDictionary()
        shard = self._open_shard(rows)
        for offset, value in enumerate(self.log):
            writes = shard.replay(offset, value).writes
            rows.write(writes)
            shard.settle_writes(writes)
        return rows

    def reopen(self) -> Shard:
        """Return the shard as a restart on ``store`` finds it: what its mark says, and no more."""
        state = decode_mark(encode_mark(self.shard.state))
        shard = Shard("s1", self._table, self.store, state, limits=Limits())
        shard.adopt_claim(2, b"ownerid9")
        return shard

    @property
    def _now_us(self) -> int:
        return self.now_ms * 1000

    # Looking.

    def read(self, row: str = "a", wanted: Selection = EVERY) -> list[Cell] | None:
        """Return what a reader sees of a row."""
        found = read_row(self.store, row_key(row), wanted, self.shard.state.options, self.now_ms)
        return None if found is None else _cells(found.wire)

    def range(self) -> list[list[Cell]]:
        """Return what a reader of the whole table sees."""
        stored = read_range(self.store, PREFIX, chunk.table_prefix(2), backward=False)
        options = self.shard.state.options
        found = [answer(self.store, row, EVERY, options, self.now_ms) for row in stored]
        return [_cells(one.wire) for one in found if one is not None]


def _cells(wire: bytes) -> list[Cell]:
    return list(plainbuffer.decode_row(plainbuffer.HEADER + wire).cells)


def canonical(store: ChunkDictionary) -> dict[bytes, list[Cell]]:
    """Return every row with all of its stored cells, wherever chunks are cut."""
    found = {}
    for row in read_range(store, PREFIX, chunk.table_prefix(2), backward=False):
        found[row.row_key] = fold.read_cells(store, row.row_key) or []
    return found
