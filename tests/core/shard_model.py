"""A shard with its log and its store in memory, driven step by step: what owners do, without I/O.

Rows have a partition key and a name; their one column is ``v``, an integer. A change is written
as ``P a=1`` (put), ``U a=1`` (update), ``U a+1`` (increment), ``D a`` (delete), with ``!`` behind
the letter where the row must not be there, ``?`` where it must.
"""

import re
from collections.abc import Iterator, Sequence

from rowtide.core.protocol import plainbuffer
from rowtide.core.records import record
from rowtide.core.rows import chunk
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.fold import read_cells
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_ABSENT,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    RETURN_KEY,
    UPDATE,
    ChangeRequest,
    Outcome,
)
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import Group, Transaction
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.transaction_id import TransactionId
from rowtide.core.values import key, variant
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, Table, TableOptions
from tests.core.chunk_dictionary import ChunkDictionary

NOW_US = 1_700_000_000_000_000
KINDS = {"P": PUT, "U": UPDATE, "D": DELETE}
EXPECTATIONS = {"": IGNORE, "!": EXPECT_ABSENT, "?": EXPECT_PRESENT}


class Store(ChunkDictionary):
    """The rows and commits of a slot, readable in both directions."""

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield chunks in descending order, as of now."""
        found = sorted((k for k in self.chunks if low <= k <= high), reverse=True)
        yield from [(k, self.chunks[k]) for k in found]


def table(*, auto: bool = False, max_versions: int = 1) -> Table:
    """Return a table of two key columns, the second one AUTO_INCREMENT where wanted."""
    second = KeyColumn("n", INTEGER, True) if auto else KeyColumn("name", STRING)
    columns = (KeyColumn("pk", STRING), second)
    options = TableOptions(max_versions=max_versions)
    return Table("i", "t", 1, columns, options, None, 0, 0, 1, 1, ())


def change(text: str, partition: str = "p") -> ChangeRequest:
    """Return the change of a text."""
    found = re.fullmatch(r"([PUD])([!?]?) (\w*)(?:([=+])(-?\d+))?", text)
    assert found, text
    letter, mark, name, op, number = found.groups()
    cells = []
    if op == "=":
        cells = [plainbuffer.put_cell(b"v", variant.encode(int(number)), None)]
    elif op == "+":
        cells = [plainbuffer.increment_cell(b"v", variant.encode(int(number)))]
    row = address(name, partition) if name else [*address("", partition)[:1], AUTO]
    return ChangeRequest(KINDS[letter], row, cells, EXPECTATIONS[mark], return_type=RETURN_KEY)


AUTO = (b"n", variant.V_AUTO_INCREMENT)


def address(name: str, partition: str = "p") -> list[tuple[bytes, bytes]]:
    """Return a row's key."""
    return [(b"pk", variant.encode(partition)), (b"name", variant.encode(name))]


class ShardModel:
    """One shard, whose log takes everything at once."""

    def __init__(self, of: Table | None = None, limits: Limits | None = None) -> None:
        self.table = of or table()
        self.limits = limits or Limits()
        self.log: list[bytes] = []
        self.store = Store()
        self.now_us = NOW_US
        self.shard = self._open_shard(self.store)
        self._transactions = 0

    def _open_shard(self, store: Store) -> Shard:
        state = ShardState(self.table.options)
        shard = Shard("s1", self.table, store, state, limits=self.limits)
        shard.adopt_claim(1, b"ownerid8")
        return shard

    # Writing.

    def write(self, text: str, partition: str = "p") -> Outcome:
        """Write one change and let it stand."""
        evaluated = self.shard.evaluate(change(text, partition), self._tick())
        if evaluated.body is not None:
            self.stand([evaluated])
        return evaluated.outcome

    def begin(self, partition: str = "p") -> Transaction:
        """Open a transaction."""
        self._transactions += 1
        transaction_id = TransactionId("s1", self.now_us, self._transactions)
        return Transaction(transaction_id, variant.encode(partition), self.shard, expires_s=60.0)

    def apply(self, transaction: Transaction, text: str, partition: str = "p") -> Outcome:
        """Decide one change within a transaction."""
        return transaction.apply(self.shard, change(text, partition), self._tick())

    def group(self, group: Group) -> list[Evaluated]:
        """Write a group and let it stand."""
        evaluated = group.evaluate(self.shard, self._tick())
        if evaluated:
            self.stand(evaluated)
        return evaluated

    def stand(self, batch: Sequence[Evaluated]) -> None:
        """Append records and apply them."""
        base = len(self.log)
        self.log += [self.shard.encode_record(part, base + at) for at, part in enumerate(batch)]
        writes = self.shard.confirm(batch, base)
        self.store.write(writes)
        self.shard.settle_writes(writes)

    def _tick(self) -> int:
        self.now_us += 1000
        return self.now_us

    # Looking.

    def rows(self, view: RangeReader | None = None) -> str:
        """Return the rows of partition ``p`` in order, as ``a=1 b=2``."""
        return shown_rows(view or self.store)

    def groups(self) -> list[str]:
        """Return the log's records as kinds and stamps' order, one text per group."""
        found: list[str] = []
        for value in self.log:
            envelope, body = record.decode_record(value)
            if envelope.group & record.FIRST:
                found.append("")
            found[-1] = f"{found[-1]} {type(body).__name__.removesuffix('Body')}".strip()
        return found

    def stamps(self) -> list[int]:
        """Return the log's commit stamps."""
        return [record.decode_envelope(value).stamp for value in self.log]

    def replay_log(self, entries: Sequence[tuple[int, bytes]] | None = None) -> "ShardModel":
        """Return another model whose shard has replayed this one's log, or other entries."""
        other = ShardModel(self.table, self.limits)
        for offset, value in entries if entries is not None else enumerate(self.log):
            found = other.shard.replay(offset, value)
            other.store.write(found.writes)
            other.shard.settle_writes(found.writes)
        return other


def shown_rows(rows: RangeReader) -> str:
    """Return the rows of partition ``p`` as a reader sees them; ``-`` for none."""
    start = row_key(1, key.encode([variant.encode("p")]))
    shown = []
    for chunk_key, value in rows.scan(start, start + b"\xff"):
        cells = read_cells(rows, chunk_key)
        if cells is None:
            continue
        name = str(variant.decode(key.decode(chunk_key[5:])[1]))
        values = ",".join(str(variant.decode(cell.variant)) for cell in cells)
        shown.append(f"{name}={values}")
        assert chunk.header(value)[2] == 0, "rows here are narrow"
    return " ".join(shown) or "-"
