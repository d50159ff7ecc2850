"""A put of a new row, unless a local index has a row like it already.

The server assigns the row's AUTO_INCREMENT value, so the client cannot name the row and cannot make
the put conditional. But a local index can hold all that identifies the row, with the assigned value
as the last column of its key. The shard reads the index and puts the row in one evaluation, over
the rows as evaluated so far. So of several equal puts only the first one adds a row, whichever
clients send them, and all of them get its key.
"""

from __future__ import annotations

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows.chunk import row_end, row_key, table_prefix
from rowtide.core.rows.mutation import PUT, ChangeRequest, Outcome
from rowtide.core.rows.read import read_range
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.values import key, key_ranges
from rowtide.core.values.errors import Rejected, Unavailable, invalid
from rowtide.core.values.schema import LOCAL, Index, Table

__all__ = ["UniquePut", "find_unique_index"]

READ_UNITS = 1
"""What the read of the index costs."""


def find_unique_index(table: Table, name: str) -> Index:
    """Return the index that can identify a table's new rows.

    Raises OTSObjectNotExist, and OTSParameterInvalid if it cannot.
    """
    index = table.index(name)
    if index is None:
        raise Rejected("OTSObjectNotExist", f"Table '{table.name}' has no index '{name}'.")
    auto = table.auto_increment_index
    if index.kind != LOCAL or auto is None or index.key[-1] != table.key[auto].name:
        raise invalid(
            f"Index '{name}' cannot identify new rows: it must be local, and its key must end with "
            f"the AUTO_INCREMENT column of table '{table.name}'."
        )
    return index


class UniquePut:
    """A put whose key the shard completes, and the local index that identifies its row.

    Raises OTSParameterInvalid if the row lacks a column of the index's key. After ``evaluate`` the
    ``outcome`` has the key of the stored row; ``is_new`` says that this put has added it.
    """

    def __init__(self, change: ChangeRequest, index: Index) -> None:
        assert change.kind == PUT, "only a put can be of a new row"
        self.changes = (change,)
        self.outcome = Outcome(b"", 0, 0)
        self.is_new = False
        self._index = index
        given = dict(change.key) | {cell.name: cell.variant for cell in change.cells}
        names = [name.encode() for name in index.key[:-1]]
        for name in names:
            if name not in given:
                raise invalid(f"Column '{name.decode()}' of index '{index.name}' is missing.")
        self._values = [given[name] for name in names]

    @property
    def partition_key(self) -> bytes:
        """The variant of the first key column."""
        return self.changes[0].key[0][1]

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return the record of the row, or none if the shard has a row like it.

        Raises ``Rejected``, and ``Unavailable`` if the shard has not the key or not the index.
        """
        stored = self._find(shard)
        self.is_new = stored is None
        if stored is not None:
            # Shards of a slot share the rows, so another shard's row can be found, too.
            key_ranges.require(shard.keys, key.encode([value for _, value in stored]))
            piece, state = plainbuffer.key_piece(stored)
            ends = bytes((0x09, plainbuffer.row_checksum(state, b"")))
            self.outcome = Outcome(piece + ends, READ_UNITS, 0)
            return []
        evaluated = shard.evaluate(self.changes[0], now_us)
        self.outcome = evaluated.outcome._replace(read_units=READ_UNITS)
        return [evaluated]

    def _find(self, shard: Shard) -> list[tuple[bytes, bytes]] | None:
        """Return the key of the oldest row that the index has with the same values."""
        table = shard.indexes.find_table(self._index.table_id)
        if table is None:
            raise Unavailable(f"The shard does not have index '{self._index.name}' at present.")
        first = row_key(table.table_id, key.encode(self._values))
        found = next(read_range(shard.view, first, row_end(first), backward=False), None)
        if found is None:
            return None
        values = key.decode(found.row_key[len(table_prefix(0)) :])
        by_name = dict(zip((name for name, _ in table.key_wire), values, strict=True))
        return [(name, by_name[name]) for name in shard.names]
