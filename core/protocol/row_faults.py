"""The errors of a row that is not valid PlainBuffer, and their texts.

``plainbuffer.py`` reads rows, and calls these functions for anything unusual.
"""

from __future__ import annotations

from rowtide.core.values import errors, variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT

__all__ = ["check_name", "check_value", "cut_off", "fault", "invalid_row", "wrong_checksum"]


def cut_off(buffer: bytes) -> errors.Rejected:
    """Return the failure of a row that its buffer does not contain completely."""
    return errors.invalid(f"Invalid row: it breaks off at its end, byte {len(buffer)}.")


def invalid_row(at: int, what: str) -> errors.Rejected:
    """Return the failure of a row for a bad byte."""
    return errors.invalid(f"Invalid row: byte {at}: {what}.")


def wrong_checksum(at: int, checksum: int, crc: int) -> errors.Rejected:
    """Return the failure of a cell for its checksum."""
    return invalid_row(at, f"a cell's checksum is {checksum:02X}, not {crc:02X}")


def fault(op: int, value: bytes, version: int | None, *, has_op: bool) -> str | None:
    """Return what a cell of this form lacks or has too much, or None."""
    if not has_op:
        return None if value else "a cell without value and operation"
    if op == DELETE_ALL:
        return "a delete of all versions with a value or a version" if value or version else None
    if op == DELETE_ONE:
        if value or version is None:
            return "a delete of one version needs a version and no value"
        return None
    if op == INCREMENT:
        if not value or value[0] != variant.INTEGER or version is not None:
            return "an increment needs an INTEGER value and no version"
        return None
    return f"unknown cell operation {op:02X}"


def check_name(name: bytes, at: int) -> None:
    """Reject a column name that is not UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError as error:
        raise invalid_row(at, f"a column name is not UTF-8: {error.reason}") from error


def check_value(value: bytes, at: int, allowed: frozenset[int]) -> None:
    """Reject bytes that are not one variant of an allowed type."""
    try:
        variant.check(value)
    except errors.Rejected as refusal:
        raise invalid_row(at, refusal.message.removesuffix(".")) from refusal
    if value[0] not in allowed:
        raise invalid_row(at, f"a value of type {variant.type_name(value)}")
