"""The bodies of records that change a row: put, update and delete.

Each has two forms. The first is of every schema. The other, with what the stream's original columns
tell (``kept``), is of the newest schema only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.core.records.avro import (
    read_cells,
    read_count,
    read_key,
    read_long,
    read_optional_cells,
    write_cells,
    write_key,
    write_long,
    write_optional_cells,
)
from rowtide.core.records.body import (
    NO_INDEXES,
    DeleteBody,
    IndexWrite,
    Kept,
    PutBody,
    UpdateBody,
)
from rowtide.core.records.kept import read_kept, write_kept

__all__ = [
    "CHANGES",
    "KEPT_BEGIN",
    "READERS",
    "READERS_V1",
    "ChangeBody",
    "encode_change_body",
    "read_indexes",
    "write_indexes",
]

ChangeBody = PutBody | UpdateBody | DeleteBody

CHANGES: dict[int, type[ChangeBody]] = {
    2: PutBody,
    4: UpdateBody,
    6: DeleteBody,
    26: PutBody,
    28: UpdateBody,
    30: DeleteBody,
}
"""The changes by their branch of the schema's union, doubled by Avro's zigzag encoding."""

KEPT_BEGIN = 26
"""The first branch with original columns. Only the newest schema has it."""

_PLAIN = {PutBody: b"\x02", UpdateBody: b"\x04", DeleteBody: b"\x06"}
_KEPT = {PutBody: b"\x1a", UpdateBody: b"\x1c", DeleteBody: b"\x1e"}


def encode_change_body(body: ChangeBody) -> bytes:
    """Return the bytes of a change, including its branch."""
    if body.kept is not None:
        return _encode_kept(body, body.kept)
    return b"".join(
        (
            _PLAIN[type(body)],
            write_key(body.key),
            b"" if isinstance(body, DeleteBody) else write_cells(body.cells),
            write_optional_cells(body.before),
            write_indexes(body.indexes) if body.indexes else b"\x00",
        )
    )


def _encode_kept(body: ChangeBody, kept: Kept) -> bytes:
    return b"".join(
        (
            _KEPT[type(body)],
            write_key(body.key),
            b"" if isinstance(body, DeleteBody) else write_cells(body.cells),
            write_kept(body.before or (), kept),
            write_indexes(body.indexes),
        )
    )


def write_indexes(indexes: Sequence[IndexWrite]) -> bytes:
    """Return an array of changes of indexes."""
    if not indexes:
        return b"\x00"
    parts = [write_long(len(indexes))]
    for write in indexes:
        parts += (
            write_long(write.table),
            b"\x01" if write.local else b"\x00",
            write_key(write.key),
            write_optional_cells(write.cells),
        )
    parts.append(b"\x00")
    return b"".join(parts)


def _read_put_v1(value: bytes, position: int) -> tuple[PutBody, int]:
    key, position = read_key(value, position)
    cells, position = read_cells(value, position)
    before, position = read_optional_cells(value, position)
    return PutBody(key, cells, before), position


def _read_update_v1(value: bytes, position: int) -> tuple[UpdateBody, int]:
    key, position = read_key(value, position)
    cells, position = read_cells(value, position)
    before, position = read_optional_cells(value, position)
    return UpdateBody(key, cells, before), position


def _read_delete_v1(value: bytes, position: int) -> tuple[DeleteBody, int]:
    key, position = read_key(value, position)
    before, position = read_optional_cells(value, position)
    return DeleteBody(key, before), position


def _read_put(value: bytes, position: int) -> tuple[PutBody, int]:
    put, position = _read_put_v1(value, position)
    if value[position]:
        put.indexes, position = read_indexes(value, position)
        return put, position
    return put, position + 1


def _read_update(value: bytes, position: int) -> tuple[UpdateBody, int]:
    update, position = _read_update_v1(value, position)
    update.indexes, position = read_indexes(value, position)
    return update, position


def _read_delete(value: bytes, position: int) -> tuple[DeleteBody, int]:
    delete, position = _read_delete_v1(value, position)
    delete.indexes, position = read_indexes(value, position)
    return delete, position


def _read_kept_put(value: bytes, position: int) -> tuple[PutBody, int]:
    update, position = _read_kept_update(value, position)
    return PutBody(update.key, update.cells, update.before, update.indexes, update.kept), position


def _read_kept_update(value: bytes, position: int) -> tuple[UpdateBody, int]:
    key, position = read_key(value, position)
    cells, position = read_cells(value, position)
    before, kept, position = read_kept(value, position)
    indexes, position = read_indexes(value, position)
    return UpdateBody(key, cells, before, indexes, kept), position


def _read_kept_delete(value: bytes, position: int) -> tuple[DeleteBody, int]:
    key, position = read_key(value, position)
    before, kept, position = read_kept(value, position)
    indexes, position = read_indexes(value, position)
    return DeleteBody(key, before, indexes, kept), position


def read_indexes(value: bytes, position: int) -> tuple[Sequence[IndexWrite], int]:
    """Return an array of changes of indexes, and its end."""
    count, position = read_count(value, position)
    if not count:
        return NO_INDEXES, position
    writes: list[IndexWrite] = []
    while count:
        for _ in range(count):
            table, position = read_long(value, position)
            local = value[position]
            if local > 1:
                raise ValueError(f"byte {position}: a boolean of {local}")
            key, position = read_key(value, position + 1)
            cells, position = read_optional_cells(value, position)
            writes.append(IndexWrite(table, bool(local), key, cells))
        count, position = read_count(value, position)
    return writes, position


READERS: dict[int, Callable[[bytes, int], tuple[ChangeBody, int]]] = {
    2: _read_put,
    4: _read_update,
    6: _read_delete,
    26: _read_kept_put,
    28: _read_kept_update,
    30: _read_kept_delete,
}
"""Readers by the branch of ``CHANGES``."""

READERS_V1: dict[int, Callable[[bytes, int], tuple[ChangeBody, int]]] = {
    2: _read_put_v1,
    4: _read_update_v1,
    6: _read_delete_v1,
}
"""Readers of the first schema, which has no indexes."""
