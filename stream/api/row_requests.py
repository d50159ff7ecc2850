"""Converts the row operations' messages to changes and selections, and checks the limits.

The request and the table's schema alone decide here, so an error is raised before any
work is done. In a batch a wrong key is the row's own error. Wrong shapes and sizes reject
the whole request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import RowChange
from rowtide.core.protocol.row_form import ask_form
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.change_selection import ChangeSelection
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_ABSENT,
    IGNORE,
    PUT,
    RETURN_AFTER_MODIFY,
    RETURN_KEY,
    UPDATE,
    ChangeRequest,
)
from rowtide.core.rows.read import Selection
from rowtide.core.shard import plain_write
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT, Cell
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX, VERSION_END, Limits
from rowtide.core.values.schema import Table, check_column_name, check_key, check_table_name
from rowtide.core.values.variant import V_AUTO_INCREMENT
from rowtide.core.values.version import Window
from rowtide.stream.api.request_text import require_text

__all__ = [
    "ReadRequest",
    "change_of",
    "change_selection_of",
    "check_key_alone",
    "check_names",
    "check_row",
    "check_table_names",
    "kind_of",
    "message",
    "parse",
    "parse_write",
    "read_key",
    "row_change",
    "selection_of",
]

M = TypeVar("M", bound=Message)

WriteRequest = pb.PutRowRequest | pb.UpdateRowRequest | pb.DeleteRowRequest
"""A request that changes one row."""

_WRITES: dict[int, tuple[type[WriteRequest], str]] = {
    PUT: (pb.PutRowRequest, "row"),
    UPDATE: (pb.UpdateRowRequest, "row_change"),
    DELETE: (pb.DeleteRowRequest, "primary_key"),
}
"""The message of each kind of change, and its field with the row."""

_DOUBLE = bytes((variant.DOUBLE,))

KINDS = {pb.PUT: PUT, pb.UPDATE: UPDATE, pb.DELETE: DELETE}


class ReadRequest(Protocol):
    """The fields that GetRow, GetRange and a table of BatchGetRow share."""

    @property
    def columns_to_get(self) -> Sequence[str]: ...
    @property
    def time_range(self) -> pb.TimeRange: ...
    @property
    def max_versions(self) -> int: ...
    @property
    def filter(self) -> bytes: ...
    @property
    def start_column(self) -> str: ...
    @property
    def end_column(self) -> str: ...
    def HasField(self, name: str) -> bool: ...  # Protobuf's own name.


def parse(kind: type[M], body: bytes) -> M:
    """Return the message in ``body``. Raises OTSParameterInvalid."""
    found = message(kind, body)
    require_text(found)
    return found


def message(kind: type[M], body: bytes) -> M:
    """Return the message in ``body``, whose text may be other than UTF-8."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise invalid(f"Invalid request body: not a {kind.__name__} message.") from error


def parse_write(kind: int, body: bytes) -> tuple[WriteRequest, bytes]:
    """Return the request for a kind of change in ``body``, and its row. Raises as ``parse``."""
    message_type, field = _WRITES[kind]
    request = parse(message_type, body)
    return request, getattr(request, field)


def check_table_names(names: Iterable[str], limits: Limits) -> None:
    """Check the names of a batch's tables; each table may occur once."""
    known: set[str] = set()
    for name in names:
        check_table_name(name, limits)
        if name in known:
            raise invalid(f"Duplicated table name: {name}")
        known.add(name)


# Reads.


def selection_of(
    request: ReadRequest, limits: Limits, *, missing: str = "No version condition is specified."
) -> Selection:
    """Return the selection of a read request. ``missing`` is the error text without versions."""
    if not (
        request.columns_to_get
        or request.HasField("time_range")
        or request.HasField("filter")
        or request.HasField("start_column")
        or request.HasField("end_column")
    ) and request.HasField("max_versions"):
        return _newest(request.max_versions)
    columns = columns_of(request.columns_to_get, limits)
    compiled = None
    if request.HasField("filter"):
        from rowtide.core.rows.filter import compile_filter

        compiled = compile_filter(request.filter, limits)
    return Selection(
        window=_window(request, missing),
        columns=columns,
        start_column=_edge(request, "start_column", limits),
        end_column=_edge(request, "end_column", limits),
        filter=compiled,
    )


def note_named_key(selection: Selection, table: Table) -> Selection:
    """Return a selection that also records if its columns name a key column of the table."""
    columns = selection.columns
    if columns is None or not any(name in columns for name, _ in table.key_wire):
        return selection
    return Selection(
        selection.window,
        columns,
        True,
        selection.start_column,
        selection.end_column,
        selection.filter,
    )


def read_key(
    buffer: bytes, table: Table, limits: Limits, *, bound: bool = False
) -> list[tuple[bytes, bytes]]:
    """Return a request's primary key, checked against the schema.

    ``bound`` allows INF_MIN and INF_MAX.
    """
    # An index has more key columns: its own and the rest of the table's.
    key = _key_of(buffer, limits, counted=not table.main)
    check_key(table, key, limits, bound=bound)
    return key


def check_key_alone(buffer: bytes, limits: Limits) -> None:
    """Check a request's primary key if its table does not exist. Raises OTSParameterInvalid."""
    _key_of(buffer, limits, counted=True)


def _key_of(buffer: bytes, limits: Limits, *, counted: bool) -> list[tuple[bytes, bytes]]:
    row = plainbuffer.decode_key_row(buffer, cells_max=limits.attributes_read_max)
    if row.cells:
        raise invalid("Attribute columns are not allowed in a primary key.")
    if counted:
        _check_key_columns(row, limits)
    if V_AUTO_INCREMENT in [value for _, value in row.key]:
        raise invalid("PKAutoIncr can't be used for read operations.")
    return row.key


def _check_key_columns(row: RowChange, limits: Limits) -> None:
    if not 0 < len(row.key) <= limits.key_columns_max:
        raise invalid(
            f"The number of primary key columns must be in range: [1, {limits.key_columns_max}]."
        )


@lru_cache(256)
def _newest(max_versions: int) -> Selection:
    if max_versions <= 0:
        raise invalid(f"The max_versions must be greater than 0, but is {max_versions}.")
    return Selection(Window(max_versions=max_versions))


def columns_of(names: Sequence[str], limits: Limits) -> frozenset[bytes] | None:
    """Return the requested columns; None: all. Raises OTSParameterInvalid."""
    if not names:
        return None
    if len(names) > limits.columns_to_get_max:
        raise invalid(
            f"The number of columns from the request exceeds the limit, limit count: "
            f"{limits.columns_to_get_max}, column count: {len(names)}."
        )
    for name in names:
        check_column_name(name, limits)
    return frozenset(name.encode() for name in names)


def _edge(request: ReadRequest, name: str, limits: Limits) -> bytes | None:
    if not request.HasField(name):
        return None
    edge: str = getattr(request, name)
    check_column_name(edge, limits)
    return edge.encode()


def _window(request: ReadRequest, missing: str) -> Window:
    """Return the requested versions: the newest few, a time range, or one exact version."""
    newest = request.max_versions if request.HasField("max_versions") else None
    if newest is not None and newest <= 0:
        raise invalid(f"The max_versions must be greater than 0, but is {newest}.")
    if not request.HasField("time_range"):
        if newest is None:
            raise invalid(missing)
        return Window(max_versions=newest)
    times = request.time_range
    if times.HasField("specific_time"):
        if newest is not None:
            raise invalid("The max_versions cannot be set together with specific_time.")
        if times.HasField("start_time") or times.HasField("end_time"):
            raise invalid("The specific_time cannot be set together with start_time or end_time.")
        _check_time(times.specific_time)
        return Window(times.specific_time, times.specific_time + 1, 1)
    start, end = times.start_time, times.end_time
    if not (times.HasField("start_time") and times.HasField("end_time")):
        raise invalid("The time_range must have both start_time and end_time.")
    _check_time(start)
    if end < start:
        raise invalid(f"The end_time {end} of time_range must not be less than start_time {start}.")
    return Window(start, min(end, INT64_MAX), newest if newest is not None else INT64_MAX)


def _check_time(time_ms: int) -> None:
    if not 0 <= time_ms < VERSION_END:
        raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")


# Writes.


def kind_of(item: pb.RowInBatchWriteRowRequest | pb.RowInBulkImportRequest) -> int:
    """Return the kind of change of a row of a batch or an import. Raises OTSParameterInvalid.

    The parser drops a type that it does not know, and reads a missing type as PUT.
    """
    if not item.HasField("type"):
        raise invalid("Invalid row: its operation type is missing or unknown.")
    return KINDS[item.type]


def row_change(buffer: bytes, kind: int, limits: Limits) -> RowChange:
    """Return the row of a write request, its cells checked against the limits."""
    row = plain_write.decode_plain(buffer, limits) if kind != DELETE else None
    if row is None:
        row = plainbuffer.decode_row(buffer, cells_max=limits.attributes_read_max)
    check_row(row, kind, limits)
    return row


def check_row(row: RowChange, kind: int, limits: Limits) -> None:
    """Check a row of a write request against the limits."""
    _check_key_columns(row, limits)
    placeholders = 0
    for _, value in row.key:
        if value[0] in (variant.INF_MIN, variant.INF_MAX):
            raise invalid(f"{variant.type_name(value)} is an invalid type for the primary key.")
        placeholders += value == V_AUTO_INCREMENT
    if placeholders and kind == DELETE:
        raise invalid("Invalid row to delete which with pk auto increment.")
    if placeholders > 1:
        raise invalid(f"{placeholders} pk auto increment exist in row.")
    _check_cells(row.cells, kind, limits)


def check_names(row: RowChange) -> None:
    """Raise OTSParameterInvalid if a key column and an attribute column have one name."""
    cells = row.cells
    names = ask_form(cells).names
    if names is None:
        names = [cell[0] for cell in cells]
    if not {name for name, _ in row.key}.isdisjoint(names):
        raise invalid("Duplicated attribute column name with primary key column")


def change_of(
    row: RowChange,
    kind: int,
    table: Table,
    request: WriteRequest | pb.RowInBatchWriteRowRequest,
    limits: Limits,
) -> ChangeRequest:
    """Return the change of ``table`` that a write request wants.

    Raises OTSInvalidPK and OTSParameterInvalid.
    """
    check_key(table, row.key, limits, auto=kind != DELETE)
    check_names(row)
    change = ChangeRequest(kind, row.key, row.cells)
    condition = request.condition
    if condition.row_existence:
        change.expectation = condition.row_existence
    elif request.HasField("condition") and not condition.HasField("row_existence"):
        raise invalid("Invalid condition: its row existence is missing or unknown.")
    if condition.HasField("column_condition"):
        from rowtide.core.rows.filter import compile_condition

        change.condition = compile_condition(condition.column_condition, limits)
    if table.auto_increment_index is not None:
        _check_generated(change, change.key[table.auto_increment_index][1])
    if request.HasField("return_content"):
        _set_return(change, request.return_content)
    return change


def _check_generated(change: ChangeRequest, value: bytes) -> None:
    """Raise OTSParameterInvalid if an AUTO_INCREMENT column's value forbids the condition."""
    expectation = change.expectation
    if value == V_AUTO_INCREMENT:
        if expectation != IGNORE:
            raise invalid(
                f"Invalid expect:{_expectation(expectation)} when modify row with pk auto increment"
            )
        if change.condition is not None:
            raise invalid("Can't set condition when modify row with pk auto increment")
    elif expectation == EXPECT_ABSENT:
        # The row must already exist: only the server creates new values.
        raise invalid(
            f"Invalid expect:{_expectation(expectation)} when modify a specific row for table "
            f"with pk auto increment"
        )


def _expectation(number: int) -> str:
    return pb.RowExistenceExpectation.Name(pb.RowExistenceExpectation.ValueType(number))


def _set_return(change: ChangeRequest, content: pb.ReturnContent) -> None:
    names = list(content.return_column_names)
    if content.return_type == RETURN_KEY and names:
        raise invalid("The return_column_names must be empty when the return_type is RT_PK.")
    change.return_type = content.return_type
    if content.return_type == RETURN_AFTER_MODIFY:
        wanted = frozenset(name.encode() for name in names)
        changed = {cell.name for cell in change.cells if cell.op == INCREMENT}
        for name in sorted(wanted - changed):
            raise invalid(
                f"The return column '{name.decode()}' is not an increment of the request."
            )
        change.return_columns = wanted


def change_selection_of(
    request: pb.GetStreamRecordRequest, limits: Limits
) -> ChangeSelection | None:
    """Return the selection of changes that a stream's reader wants; None: all, whole."""
    if not request.columns_to_get and not request.HasField("filter"):
        return None
    from rowtide.core.rows.filter import compile_filter

    wanted = compile_filter(request.filter, limits) if request.HasField("filter") else None
    if wanted is not None and wanted.page is not None:
        raise invalid("Invalid filter: changes have no pages of columns.")
    return ChangeSelection(columns_of(request.columns_to_get, limits), wanted)


def _check_cells(cells: Sequence[Cell], kind: int, limits: Limits) -> None:
    if len(cells) > limits.attributes_per_write_max:
        raise invalid(
            f"The number of attribute columns exceeds the limit, limit count: "
            f"{limits.attributes_per_write_max}, column count: {len(cells)}."
        )
    if kind == DELETE:
        if cells:
            raise invalid("Attribute columns are not allowed in DeleteRow.")
        return
    if ask_form(cells).is_checked:
        return  # Puts of distinct columns: names are valid, sizes are small, doubles are finite.
    if kind == UPDATE and not cells:
        raise invalid("Attribute column is missing.")
    for name, op, value, version, _ in cells:
        if not _is_plain_name(name):
            check_column_name(name.decode("utf-8", "replace"), limits)
        if len(value) > 1024:
            _check_size(name, value, limits)
        elif value[:1] == _DOUBLE:
            variant.check_finite(value)
        if op:
            _check_op(kind, op)
        if version is not None and not 0 <= version < VERSION_END:
            raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")
    if kind == UPDATE:
        _check_increments(cells)


def _check_op(kind: int, op: int) -> None:
    if kind == PUT:
        raise invalid("Only put cells are allowed in PutRow.")
    if op not in (DELETE_ALL, DELETE_ONE, INCREMENT):
        raise invalid(f"Unknown cell operation: {op}.")


def _check_increments(cells: Iterable[Cell]) -> None:
    """Raise OTSParameterInvalid if a column is both incremented and changed in one request."""
    incremented = {cell.name for cell in cells if cell.op == INCREMENT}
    if not incremented:
        return
    seen: set[bytes] = set()
    for cell in cells:
        if cell.name in incremented:
            if cell.name in seen:
                raise invalid(
                    f"The column '{cell.name.decode()}' is incremented and changed in one request."
                )
            seen.add(cell.name)


@lru_cache(4096)
def _is_plain_name(name: bytes) -> bool:
    """True if a name is valid. Cached, because the same few names are frequent."""
    return 0 < len(name) <= 255 and name[:1] != b"#"


def _check_size(name: bytes, value: bytes, limits: Limits) -> None:
    size = variant.payload_size(value)
    if size > limits.attribute_bytes_max:
        raise invalid(
            f"The length of attribute column: '{name.decode()}' exceeds the "
            f"MaxLength:{limits.attribute_bytes_max} with CurrentLength:{size}."
        )
