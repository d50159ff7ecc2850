"""Converts the table operations' messages to a table's schema, and checks the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    BINARY,
    INTEGER,
    STRING,
    KeyColumn,
    StreamSettings,
    Table,
    TableOptions,
    check_column_name,
    check_table_name,
)

__all__ = [
    "check_update",
    "key_columns",
    "key_schema",
    "options_message",
    "options_of",
    "split_points",
    "stream_details",
    "stream_of",
    "throughput_of",
]

STREAM_HOURS_DEFAULT = 24
TYPES = {pb.INTEGER: INTEGER, pb.STRING: STRING, pb.BINARY: BINARY}
WIRE_TYPES = {INTEGER: pb.INTEGER, STRING: pb.STRING, BINARY: pb.BINARY}
VARIANTS = {INTEGER: variant.INTEGER, STRING: variant.STRING, BINARY: variant.BLOB}


def key_columns(schema: Sequence[pb.PrimaryKeySchema], limits: Limits) -> tuple[KeyColumn, ...]:
    """Return a table's key columns. Raises OTSParameterInvalid."""
    if not 1 <= len(schema) <= limits.key_columns_max:
        raise invalid(
            f"The number of primary key columns must be in range: [1, {limits.key_columns_max}]."
        )
    columns: list[KeyColumn] = []
    for position, column in enumerate(schema):
        check_column_name(column.name, limits)
        if any(known.name == column.name for known in columns):
            raise invalid(f"Duplicated primary key name: '{column.name}'.")
        # The parser drops a type that it does not know, and reads a missing type as
        # INTEGER.
        kind = TYPES.get(column.type) if column.HasField("type") else None
        if kind is None:
            name = "VT_BOOLEAN" if column.type == pb.PK_BOOLEAN else "VT_UNKNOWN"
            raise invalid(f"{name} is an invalid type for the primary key.")
        auto = column.HasField("option") and column.option == pb.AUTO_INCREMENT
        if auto and (position == 0 or kind != INTEGER):
            raise invalid(
                f"AUTO_INCREMENT is only allowed on an INTEGER primary key column that is not "
                f"the first: '{column.name}'."
            )
        columns.append(KeyColumn(column.name, kind, auto))
    if sum(column.auto_increment for column in columns) > 1:
        raise invalid("Only one primary key column can be AUTO_INCREMENT.")
    return tuple(columns)


def key_schema(table: Table) -> list[pb.PrimaryKeySchema]:
    """Return a table's key columns as answers show them."""
    return [
        pb.PrimaryKeySchema(
            name=column.name,
            type=WIRE_TYPES[column.type],
            option=pb.AUTO_INCREMENT if column.auto_increment else None,
        )
        for column in table.key
    ]


def options_of(
    message: pb.TableOptions, limits: Limits, *, now: TableOptions | None = None
) -> TableOptions:
    """Return a table's options: the given ones, over those ``now`` in force or the defaults."""
    options = now or TableOptions()
    if message.HasField("time_to_live"):
        options = replace(options, time_to_live_s=message.time_to_live)
    if message.HasField("max_versions"):
        options = replace(options, max_versions=message.max_versions)
    if message.HasField("deviation_cell_version_in_sec"):
        options = replace(options, deviation_s=message.deviation_cell_version_in_sec)
    if message.HasField("allow_update"):
        options = replace(options, allow_update=message.allow_update)
    if now is not None and message.HasField("update_full_row"):
        raise invalid("The table options can not contain updateFullRow in UpdateTable.")
    options.check(limits)
    return options


def stream_of(
    spec: pb.StreamSpecification,
    table_name: str,
    stamp_us: int,
    limits: Limits,
    *,
    now: StreamSettings | None = None,
) -> StreamSettings | None:
    """Return the stream of a specification; an enabled stream keeps its identity."""
    if not spec.enable_stream:
        return None
    hours = spec.expiration_time if spec.HasField("expiration_time") else STREAM_HOURS_DEFAULT
    if not 1 <= hours <= limits.stream_expiration_hours_max:
        raise invalid(
            f"The stream expiration_time must be in range: "
            f"[1, {limits.stream_expiration_hours_max}], but is {hours}."
        )
    for name in spec.columns_to_get:
        check_column_name(name, limits)
    columns = tuple(spec.columns_to_get)
    if now is not None:
        return replace(now, expiration_hours=hours, columns=columns)
    return StreamSettings(f"{table_name}_{stamp_us}", stamp_us, hours, columns)


def check_update(request: pb.UpdateTableRequest, limits: Limits) -> None:
    """Raise OTSParameterInvalid if an UpdateTable, or a part of it, is empty."""
    check_table_name(request.table_name, limits)
    if request.HasField("table_options") and not request.table_options.ListFields():
        raise invalid("No parameter is specified in table options.")
    if request.HasField("reserved_throughput"):
        if not request.reserved_throughput.capacity_unit.ListFields():
            raise invalid("Neither read nor write capacity unit is set.")
    elif not request.HasField("table_options") and not request.HasField("stream_spec"):
        raise invalid("No parameter is specified in UpdateTable.")


def throughput_of(
    message: pb.ReservedThroughput,
    kind: str,
    limits: Limits,
    *,
    now: tuple[int, int] = (0, 0),
) -> tuple[int, int]:
    """Return reserved (read, write) units: the given ones, over those ``now`` in force.

    A ``capacity`` instance allows none.
    """
    units = message.capacity_unit
    read = units.read if units.HasField("read") else now[0]
    write = units.write if units.HasField("write") else now[1]
    for name, value in (("read", read), ("write", write)):
        if not 0 <= value <= limits.reserved_units_max:
            raise invalid(
                f"The reserved {name} capacity unit must be in range: "
                f"[0, {limits.reserved_units_max}], but is {value}."
            )
        if value and kind == "capacity":
            raise invalid(
                f"Reserved throughput must be 0 in a capacity instance, but {name} is {value}."
            )
    return read, write


def split_points(
    ranges: Sequence[pb.PartitionRange], first: KeyColumn, limits: Limits
) -> tuple[bytes, ...]:
    """Return the partition-key variants at which a new table is cut, in order."""
    if len(ranges) > limits.partitions_max:
        raise invalid(f"The count of partitions cannot be greater than {limits.partitions_max}")
    if not ranges:
        return ()
    if ranges[0].begin != variant.V_INF_MIN or ranges[-1].end != variant.V_INF_MAX:
        raise invalid("The partition ranges must cover INF_MIN to INF_MAX.")
    points: list[bytes] = []
    for before, after in pairwise(ranges):
        if before.end != after.begin:
            raise invalid("The partition ranges must follow one another without gaps.")
        points.append(_point(after.begin, first, limits))
    encoded = [key.encode([point]) for point in points]
    if any(low >= high for low, high in pairwise(encoded)):
        raise invalid("The partition ranges must be in ascending order.")
    return tuple(points)


def _point(value: bytes, first: KeyColumn, limits: Limits) -> bytes:
    variant.check(value)
    if value[0] != VARIANTS[first.type]:
        raise invalid("The value type of partition does not match with primary key.")
    if variant.payload_size(value) == 0:
        kind = "string" if first.type == STRING else "binary"
        raise invalid(f"The value of partition range can not be empty {kind}.")
    if first.type != INTEGER and variant.payload_size(value) > limits.split_point_bytes_max:
        raise invalid(
            f"The value of partition range exceeds the MaxLength:{limits.split_point_bytes_max} "
            f"with CurrentLength:{variant.payload_size(value)}."
        )
    if first.type == INTEGER and variant.decode(value) in (-(2**63), 2**63 - 1):
        raise invalid("The value of partition range can not be INT64_MIN or INT64_MAX.")
    return value


def options_message(options: TableOptions) -> pb.TableOptions:
    """Return the options as answers show them: all set, as Go needs."""
    return pb.TableOptions(
        time_to_live=options.time_to_live_s,
        max_versions=options.max_versions,
        deviation_cell_version_in_sec=options.deviation_s,
        allow_update=options.allow_update,
    )


def stream_details(stream: StreamSettings | None) -> pb.StreamDetails:
    """Return a stream as answers show it; only enable_stream if there is none."""
    if stream is None:
        return pb.StreamDetails(enable_stream=False)
    return pb.StreamDetails(
        enable_stream=True,
        stream_id=stream.stream_id,
        expiration_time=stream.expiration_hours,
        last_enable_time=stream.enabled_at_us,
        column_to_get=stream.columns,
    )


def make_quota_error(limit: int) -> Rejected:
    """Return the error for one table too many."""
    return Rejected("OTSQuotaExhausted", f"Number of tables exceeds the quota:{limit}.")
