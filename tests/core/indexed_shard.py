"""A shard whose table has indexes, the shard of a global index that follows its log, and an oracle.

The oracle makes an index's rows from the table's visible rows by a function of one row alone; it
knows nothing of what changed. A ``Witness`` replays the table's log entry by entry, so it knows
what an index must hold at every offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rowtide.core.records import record
from rowtide.core.records.record import IndexBuild, IndexFeed, IndexWrite
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.fold import read_cells
from rowtide.core.rows.mutation import ChangeRequest
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.read import read_range
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.index import (
    PROGRESS,
    decode_fed,
    feed_key,
    index_table,
    latest,
    progress_of,
)
from rowtide.core.shard.mark import decode_mark, encode_mark
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import options_body
from rowtide.core.values import key, variant
from rowtide.core.values.defined_columns import TYPES
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    GLOBAL,
    STRING,
    Index,
    KeyColumn,
    ShardRange,
    Table,
    TableOptions,
)
from tests.core.shard_model import ShardModel, Store

__all__ = ["LIMITS", "Follower", "IndexedShard", "Rows", "Witness", "oracle", "rows_of"]

Cells = dict[bytes, tuple[bytes, int | None]]
"""Value and version by column."""

Rows = dict[tuple[bytes, ...], Cells]
"""What is seen of a table or an index: the cells of each row by its key."""

LIMITS = Limits(key_value_bytes_max=8)
"""Keys are short, so that a value may be too long for one."""

INTEGER_COLUMN, STRING_COLUMN = 1, 4
TABLE = Table(
    "i",
    "t",
    1,
    (KeyColumn("pk", STRING), KeyColumn("name", STRING)),
    TableOptions(max_versions=2, deviation_s=10**9),
    None,
    0,
    0,
    1,
    1,
    (),
    defined_columns=(
        ("n", INTEGER_COLUMN),
        ("s", STRING_COLUMN),
        *((name, STRING_COLUMN) for name in ("k1", "k2", "k3")),
    ),
)


def rows_of(reader: RangeReader, table_id: int) -> Rows:
    """Return what is seen of a table or an index: of each column the newest version."""
    rows: Rows = {}
    low, high = table_prefix(table_id), table_prefix(table_id + 1)
    for stored in read_range(reader, low, high, backward=False):
        cells: Cells = {}
        for cell in read_cells(reader, stored.row_key) or ():
            cells.setdefault(cell.name, (cell.variant, cell.version_ms))
        rows[tuple(key.decode(stored.row_key[len(low) :]))] = cells
    return rows


def oracle(index: Index, rows: Mapping[tuple[bytes, ...], Cells]) -> Rows:
    """Return the rows that an index has of these rows of its table."""
    found: Rows = {}
    for row_key, cells in rows.items():
        own = dict(zip(("pk", "name"), row_key, strict=True))
        values = [own.get(name) or _find_index_value(name, cells) for name in index.key]
        if all(value is not None for value in values):
            kept = sorted(name.encode() for name in index.columns)
            found[tuple(v for v in values if v)] = {c: cells[c] for c in kept if c in cells}
    return found


def _find_index_value(name: str, cells: Cells) -> bytes | None:
    """Return the value of a column as part of an index's key, if it can be."""
    value, _ = cells.get(name.encode(), (b"", None))
    fits = value and value[0] == TYPES[dict(TABLE.defined_columns)[name]]
    return value if fits and variant.payload_size(value) <= LIMITS.key_value_bytes_max else None


class IndexedShard:
    """The shard of a table whose indexes come and go."""

    def __init__(self) -> None:
        self.model = ShardModel(TABLE, LIMITS)
        self.witness = Witness()
        self.marks: list[bytes] = []
        """The mark after each batch."""
        self.dropped: list[int] = []
        self._next_id = 2
        self.control(options_body(TABLE))

    @property
    def table(self) -> Table:
        return self.model.table

    @property
    def shard(self) -> Shard:
        return self.model.shard

    def tick(self) -> int:
        """Return the next moment, Unix microseconds."""
        self.model.now_us += 1000
        return self.model.now_us

    # Writing.

    def evaluate(self, change: ChangeRequest) -> Evaluated:
        """Decide a change. Raises ``Rejected``."""
        return self.shard.evaluate(change, self.tick())

    def stand(self, batch: Sequence[Evaluated]) -> None:
        """Let what was evaluated stand, so far as there is a record of it."""
        logged = [evaluated for evaluated in batch if evaluated.body is not None]
        if logged:
            self.model.stand(logged)
            self.witness.follow(self.model.log)
            self.marks.append(encode_mark(self.shard.state))

    def control(self, body: record.Body) -> None:
        """Log a hidden record."""
        self.stand([self.shard.control(body, self.tick())])

    # Indexes.

    def create(self, kind: int, key_columns: Sequence[str], *, whole: bool) -> Index:
        """Create an index that keeps every column beside which is not in its key."""
        if not self.table.indexes and self.shard.state.options.max_versions != 1:
            options = replace(self.table.options, max_versions=1)
            self._retable(replace(self.table, options=options))
            self.control(options_body(self.table))
        others = tuple(name for name in ("pk", "name") if name not in key_columns)
        kept = tuple(name for name, _ in TABLE.defined_columns if name not in key_columns)
        number, self._next_id = self._next_id, self._next_id + 1
        shards = (ShardRange(f"s{number}", 0),) if kind == GLOBAL else ()
        index = Index(
            f"x{number}", number, kind, (*key_columns, *others), kept, 1, whole, whole, shards
        )
        self._retable(replace(self.table, indexes=(*self.table.indexes, index)))
        return index

    def build(self, index: Index) -> bool:
        """Go through the next slice of rows; return whether that was the last."""
        self.control(IndexBuild(index.table_id, self.find_next_slice(index), ()))
        return self.is_built(index)

    def find_next_slice(self, index: Index) -> bytes | None:
        """Return where the next slice begins."""
        return (self.model.store.get(_build_key(index)) or b"\0")[1:] or None

    def is_built(self, index: Index) -> bool:
        """True if the index has all rows."""
        return not index.building or (self.model.store.get(_build_key(index)) or b"") >= b"\1"

    def drop(self, index: Index) -> None:
        """Drop an index and sweep its rows."""
        left = tuple(other for other in self.table.indexes if other != index)
        self._retable(replace(self.table, indexes=left))
        self.dropped.append(index.table_id)
        for store in (self.model.store, self.witness.model.store):
            store.write([(chunk_key, None) for chunk_key in _of_index(store, index.table_id)])

    def _retable(self, table: Table) -> None:
        for model in (self.model, self.witness.model):
            model.table = table
            model.shard.retable(table)

    # Looking.

    def check_replays(self, ahead_of: int) -> None:
        """A replay from nothing, and one from a mark over the rows as they are, change nothing."""
        store = self.model.store.chunks
        assert self.model.replay_log().store.chunks == store
        assert self.witness.model.store.chunks == store
        rows = Store(dict(store))
        state = decode_mark(self.marks[ahead_of % len(self.marks)])
        shard = Shard("s1", self.table, rows, state, limits=LIMITS)
        for offset in range(state.applied + 1, len(self.model.log)):
            writes = shard.replay(offset, self.model.log[offset]).writes
            rows.write(writes)
            shard.settle_writes(writes)
        numbers = [1, *(index.table_id for index in self.table.indexes)]
        assert all(rows_of(rows, n) == rows_of(self.model.store, n) for n in numbers)
        assert _progress(rows) == _progress(self.model.store)
        assert not any(
            list(_of_index(each, n)) for each in (rows, Store(store)) for n in self.dropped
        )


class Witness:
    """Replays a table's log entry by entry, and remembers the rows at each offset."""

    def __init__(self) -> None:
        self.model = ShardModel(TABLE, LIMITS)
        self.rows: list[Rows] = [{}]
        """The table's rows before the entry at each offset, and after the last."""
        self.written: list[tuple[bytes, ...] | None] = []
        """The key of the row that each entry changed."""

    def follow(self, log: Sequence[bytes]) -> None:
        """Replay what was added to the log."""
        model = self.model
        for offset in range(len(self.written), len(log)):
            found = model.shard.replay(offset, log[offset])
            # Of a transaction's first records the view alone has something yet.
            self.rows.append(rows_of(model.shard.view, TABLE.table_id))
            model.store.write(found.writes)
            model.shard.settle_writes(found.writes)
            _, body = record.decode_record(log[offset])
            self.written.append(_find_key(body))

    def expect_rows(self, index: Index, since: int, end: int) -> Rows:
        """Return an index's rows at an offset; it was created at offset ``since``."""
        rows = self.rows[end]
        if not index.whole:
            touched = set(self.written[since:end])
            rows = {row_key: cells for row_key, cells in rows.items() if row_key in touched}
        return oracle(index, rows)


class Follower:
    """The shard of a global index."""

    def __init__(self, source: IndexedShard, index: Index) -> None:
        self.index = index
        self.model = ShardModel(index_table(source.table, index), LIMITS)
        self._log = source.model.log
        self._since = len(self._log)

    @property
    def end(self) -> int:
        """The offset of the table's log up to which it was followed."""
        found = self.model.store.get(feed_key(self.index.table_id, "s1"))
        return self._since if found is None else decode_fed(found).following

    def feed(self, start: int, end: int, *, stands: bool) -> None:
        """Take a slice of the table's log; where it does not stand, nothing has happened."""
        writes: list[IndexWrite] = []
        stamp = 0
        for value in self._log[start:end]:
            envelope, body = record.decode_record(value)
            stamp = envelope.stamp
            writes += [w for w in _list_index_writes(body) if w.table == self.index.table_id]
        self.model.now_us += 1000
        body = IndexFeed("s1", end, stamp, latest(writes))
        evaluated = self.model.shard.control(body, self.model.now_us)
        if stands:
            self.model.stand([evaluated])
        else:
            self.model.shard.discard()

    def rows(self) -> Rows:
        """Return the index's rows; a replay of its own log makes the same."""
        assert self.model.replay_log().store.chunks == self.model.store.chunks
        return rows_of(self.model.store, self.index.table_id)


def _find_key(body: record.Body) -> tuple[bytes, ...] | None:
    if isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
        return tuple(body.key)
    return None


def _list_index_writes(body: record.Body) -> Sequence[IndexWrite]:
    if isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody | IndexBuild):
        return body.indexes
    return ()


def _build_key(index: Index) -> bytes:
    return PROGRESS + b"b" + index.table_id.to_bytes(8, "big") + b"s1"


def _progress(store: Store) -> dict[bytes, bytes]:
    return {k: value for k, value in store.chunks.items() if k[:1] == PROGRESS}


def _of_index(store: Store, number: int) -> Iterator[bytes]:
    """Yield all keys that a store has of an index."""
    prefix = table_prefix(number)
    for chunk_key in sorted(store.chunks):
        progress = chunk_key[:1] == PROGRESS and progress_of(chunk_key) == number
        if progress or chunk_key.startswith(prefix):
            yield chunk_key
