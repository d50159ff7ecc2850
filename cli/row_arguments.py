"""The arguments of ``rowtide row`` for one table: its key, and changes of columns.

The order of the arguments does not matter: the table defines its key columns and their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import Expect, ProtocolClient
from rowtide.cli.value_syntax import Assignment, SyntaxRefused, key_value, parse_argument
from rowtide.client.wire_row import Change, Delete, Increment, Key, Put, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn

__all__ = [
    "change_of",
    "delete_of",
    "expectation_of",
    "key_columns_of",
    "only_key",
    "parse_assignments",
    "put_of",
    "range_ends",
    "schema_of",
    "split",
]

_WIRE_TYPES = {pb.INTEGER: INTEGER, pb.STRING: STRING, pb.BINARY: BINARY}
_EXPECTATIONS: dict[str | None, Expect] = {
    None: "IGNORE",
    "exist": "EXPECT_EXIST",
    "not-exist": "EXPECT_NOT_EXIST",
}


def schema_of(client: ProtocolClient, table: str) -> list[KeyColumn]:
    """Return the key columns of a table."""
    return key_columns_of(client.describe_table(table))


def key_columns_of(described: pb.DescribeTableResponse) -> list[KeyColumn]:
    """Return the key columns of a table that was described."""
    return [
        KeyColumn(
            column.name,
            _WIRE_TYPES[column.type],
            column.HasField("option") and column.option == pb.AUTO_INCREMENT,
        )
        for column in described.table_meta.primary_key
    ]


def parse_assignments(arguments: Sequence[str]) -> list[Assignment]:
    """Return the assignments of the arguments. Raises ``UsageError`` for a bad one."""
    try:
        found = [a for text in arguments for a in parse_argument(text, _file)]
    except (SyntaxRefused, OSError) as error:
        raise click.UsageError(str(error)) from error
    names = [assignment.name for assignment in found]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"{name} is given twice.")
    return found


def _file(name: str) -> bytes:
    return click.get_binary_stream("stdin").read() if name == "-" else Path(name).read_bytes()


def split(
    schema: Sequence[KeyColumn], given: Sequence[Assignment], *, assign: bool = False
) -> tuple[Key, list[Assignment]]:
    """Return the key, in the table's order, and the other columns."""
    named = {assignment.name: assignment for assignment in given}
    key: list[tuple[str, Any]] = []
    for column in schema:
        assignment = named.pop(column.name, None)
        if assignment is not None:
            key.append((column.name, _value(column, assignment)))
        elif assign and column.auto_increment:
            key.append((column.name, Special.AUTO_INCREMENT))
        else:
            whole = ", ".join(column.name for column in schema)
            raise click.UsageError(f"The key is ({whole}): {column.name} is missing.")
    return key, list(named.values())


def only_key(schema: Sequence[KeyColumn], arguments: Sequence[str]) -> Key:
    """Return the key. Raises ``UsageError`` for any other column."""
    key, rest = split(schema, parse_assignments(arguments))
    if rest:
        whole = ", ".join(column.name for column in schema)
        raise click.UsageError(f"The key is ({whole}): {rest[0].name} is no part of it.")
    return key


def range_ends(schema: Sequence[KeyColumn], given: dict[str, Any]) -> tuple[Key, Key]:
    """Return the first and the last key of a scan.

    --from includes, and --to excludes, all rows that begin with the given columns. That holds in
    both directions.
    """
    if given["prefix"] and (given["start"] or given["end"]):
        raise click.UsageError("--prefix excludes --from and --to.")
    low, high = Special.INF_MIN, Special.INF_MAX
    first, last = (high, low) if given["backward"] else (low, high)
    start = _fill_key(schema, given["prefix"] or given["start"], first)
    if given["prefix"]:
        return start, _fill_key(schema, given["prefix"], last)
    return start, _fill_key(schema, given["end"], first if given["end"] else last)


def _fill_key(schema: Sequence[KeyColumn], arguments: Sequence[str], fill: Special) -> Key:
    """Return a key of the given leading columns, and ``fill`` for the others."""
    named = {assignment.name: assignment for assignment in parse_assignments(arguments)}
    key: list[tuple[str, Any]] = []
    for column in schema:
        assignment = named.pop(column.name, None)
        if assignment is not None and len(key) and key[-1][1] is fill:
            raise click.UsageError(f"{column.name} is given without {key[-1][0]} before it.")
        key.append((column.name, fill if assignment is None else _value(column, assignment)))
    if named:
        raise click.UsageError(f"{next(iter(named))} is not a key column.")
    return key


def _value(column: KeyColumn, assignment: Assignment) -> Any:
    try:
        return key_value(column, assignment)
    except SyntaxRefused as error:
        raise click.UsageError(str(error)) from error


def put_of(assignment: Assignment, version_ms: int | None) -> Put:
    """Return the put of a column."""
    if assignment.sign == "+=":
        raise click.UsageError(f"{assignment.name}: put cannot increment, update can.")
    return Put(assignment.name, assignment.value, version_ms)


def change_of(assignment: Assignment, version_ms: int | None) -> Change:
    """Return the change of a column in an update."""
    if assignment.sign == "+=":
        assert isinstance(assignment.value, int), "the parser reads an integer"
        return Increment(assignment.name, assignment.value)
    return Put(assignment.name, assignment.value, version_ms)


def delete_of(text: str) -> Delete:
    """Return the deletion of NAME or NAME@MS."""
    name, at, version = text.rpartition("@")
    if at and version.isdecimal():
        return Delete(name, int(version))
    return Delete(text)


def expectation_of(expect: str | None) -> Expect:
    """Return the expectation of --expect."""
    return _EXPECTATIONS[expect]
