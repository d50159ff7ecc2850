"""Every limit of a request, in one place.

The defaults are those of the service, as its SDKs' tests expect them. If the service lets a user
raise a limit, rowtide has a setting of the same name. Sizes are bytes, counts are counts, and times
have their unit in the name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INT32_MAX", "INT64_MAX", "VERSION_END", "Limits"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
VERSION_END = INT64_MAX // 1000
"""First version that is rejected: a version in microseconds must fit an int64."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server. A higher bound costs memory per request in flight, and no disk."""

    name_bytes_max: int = 255
    key_columns_max: int = 4
    key_value_bytes_max: int = 1024
    attribute_bytes_max: int = 2 * 1024 * 1024
    attributes_per_write_max: int = 1024
    attributes_read_max: int = 16 * 1024
    """Cells of a row that are read to count its attributes; more are not counted."""
    columns_to_get_max: int = 1024
    batch_get_rows_max: int = 100
    batch_write_rows_max: int = 200
    batch_write_bytes_max: int = 4 * 1024 * 1024
    source_write_rows_max: int = 4000
    """Rows of one request of a source. SDKs do not send such requests."""
    source_write_bytes_max: int = 8 * 1024 * 1024
    """Encoded rows of such a request, if it has more than one row."""
    source_slice_rows: int = 200
    """Rows of such a request that are evaluated at once. Then other requests have their turn, and
    the log receives this slice while the next one is evaluated.
    """
    source_position_bytes_max: int = 1024
    range_rows_max: int = 5000
    range_bytes_max: int = 4 * 1024 * 1024
    row_bytes_max: int = 8 * 1024 * 1024
    """One row in an answer; a larger row comes in parts. Not every SDK requests the next part, so
    this is more than the size at which an answer of several rows ends.
    """
    tables_per_instance_max: int = 64
    instances_max: int = 10
    partitions_max: int = 10
    split_point_bytes_max: int = 64
    reserved_units_max: int = 5000
    partition_units_per_s: int = 0
    """Capacity units of one partition key per second; 0 is unlimited."""
    stream_expiration_hours_max: int = 168
    stream_records_default: int = 1000
    stream_bytes_max: int = 4 * 1024 * 1024
    filter_nodes_max: int = 32
    record_bytes_max: int = 16 * 1024 * 1024
    transaction_bytes_max: int = 4 * 1024 * 1024
    transaction_changes_max: int = 5000
    transaction_s_max: float = 60.0
    table_operations_per_s: float = 10.0
    table_operations_burst: int = 200
    defined_columns_max: int = 32
    indexes_per_table_max: int = 5
    index_attributes_max: int = 32
    split_unit_bytes_min: int = 1024 * 1024
    time_to_live_s_min: int = 86400
