"""Columns of a source that rowtide does not get, or gets masked.

    columns:
      only: {shop.customers: [name, email]}
      without: {shop.orders: [note]}
      mask: {shop.customers: {email: hash}}
      secret: "${SHOP_SECRET}"

Tables have their names at the source. Columns of a key can't be masked, because the
source finds its rows by their keys, in the order of the keys.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sources.source import NamesTables
from rowtide.core.values.errors import invalid

__all__ = ["REDACTED", "TableColumns", "columns_by_target", "hash_value", "parse_columns"]

MASKS = ("hash", "redact")
REDACTED = "***"
SECRET_BYTES_MIN = 16
"""A shorter secret can be guessed, and with it the hashed values."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The rules for one table's columns beside its key.

    ``only`` names the columns that are kept, None for all. ``without`` and ``masks`` have
    lower-case names and ignore letter case. So a misspelt case masks too much rather than
    too little.
    """

    where: str
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    masks: Mapping[str, str] = field(default_factory=dict)
    secret: bytes = b""

    @property
    def named(self) -> frozenset[str]:
        """The columns that are left out or masked, in lower case."""
        return self.without | self.masks.keys()

    def check(self, table: TableShape) -> None:
        """Raise ``Rejected`` if the rules remove or mask a column of the table's key."""
        key = [column.name for column in table.key if column.name.lower() in self.named]
        if key:
            raise invalid(
                f"{self.where} leaves out or masks {', '.join(key)}, of the key of table "
                f"'{table.name}'. Columns of a key stay as they are: name other columns, or give "
                f"the table another key at the source."
            )

    def apply(self, columns: Mapping[str, V]) -> dict[str, V | str]:
        """Return a row's columns as rowtide gets them."""
        only, without, masks = self.only, self.without, self.masks
        found: dict[str, V | str] = {}
        for name, value in columns.items():
            lower = name.lower()
            if lower in without or (only is not None and name not in only):
                continue
            mask = masks.get(lower)
            if mask is None or value is None:
                found[name] = value
            else:
                found[name] = REDACTED if mask == "redact" else hash_value(value, self.secret)
        return found


def hash_value(value: object, secret: bytes) -> str:
    """Return the HMAC-SHA-256 of a value in hexadecimal digits.

    Values that are equal as texts have equal hashes whatever their type. So 7 and '7' can
    be joined.
    """
    if isinstance(value, bytes):
        text = value
    elif isinstance(value, bool):
        text = b"true" if value else b"false"
    else:
        text = str(value).encode("utf-8", "surrogatepass")
    return hmac.digest(secret, text, "sha256").hex()


def parse_columns(fields: Fields) -> Mapping[str, TableColumns]:
    """Return the rules by a table's full name. Raises ``SettingsRefused``."""
    only, without = _lists(fields.inner("only")), _lists(fields.inner("without"))
    masks = _masks(fields.inner("mask"))
    secret = fields.text("secret", "").encode()
    fields.refuse_unknown()
    hashes = any("hash" in of_table.values() for of_table in masks.values())
    if hashes and len(secret) < SECRET_BYTES_MIN:
        raise SettingsRefused(
            f"{fields.where}.secret must have {SECRET_BYTES_MIN} bytes or more, because "
            f"{fields.where}.mask has 'hash'; `openssl rand -hex 32` makes one."
        )
    found: dict[str, TableColumns] = {}
    for table in sorted({*only, *without, *masks}):
        rule = TableColumns(
            fields.where,
            frozenset(only[table]) if table in only else None,
            frozenset(name.lower() for name in without.get(table, ())),
            {name.lower(): mask for name, mask in masks.get(table, {}).items()},
            secret,
        )
        _check_agreement(table, rule)
        found[table] = rule
    return found


def _check_agreement(table: str, rule: TableColumns) -> None:
    if rule.only is not None and rule.without:
        raise SettingsRefused(f"{rule.where}: only and without exclude each other for {table}.")
    if both := sorted(rule.without & rule.masks.keys()):
        raise SettingsRefused(
            f"{rule.where} has {', '.join(both)} of {table} under without and under mask."
        )
    if rule.only is not None:
        stay = {name.lower() for name in rule.only}
        if lacking := sorted(rule.masks.keys() - stay):
            raise SettingsRefused(
                f"{rule.where}.mask has {', '.join(lacking)} of {table}, which only leaves out."
            )


def _lists(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return lists of columns by table. Raises ``SettingsRefused`` for an empty one."""
    found = {table: fields.texts(table) for table in fields.names()}
    for table, columns in found.items():
        if not columns:
            raise SettingsRefused(f"{fields.where}.{table} must name columns.")
    return found


def _masks(fields: Fields) -> dict[str, dict[str, str]]:
    """Return masks by table and column. Raises ``SettingsRefused``."""
    found: dict[str, dict[str, str]] = {}
    for table in fields.names():
        columns = fields.inner(table)
        found[table] = {name: columns.choice(name, MASKS) for name in columns.names()}
        if not found[table]:
            raise SettingsRefused(f"{columns.where} must name columns.")
    return found


def columns_by_target(
    rules: Mapping[str, TableColumns], source: object, kind: str
) -> Mapping[str, TableColumns]:
    """Return rules by the name of the table in rowtide.

    Raises ``SettingsRefused`` for a table that the source does not follow. Its name may
    be misspelt, and then a table that should be masked would not be.
    """
    if not rules:
        return {}
    if not isinstance(source, NamesTables):
        where = next(iter(rules.values())).where
        raise SettingsRefused(f"{where}: a {kind} source can't leave out or mask columns.")
    target_of: Callable[[str], str | None] = source.target_of
    found: dict[str, TableColumns] = {}
    for table, rule in rules.items():
        target = target_of(table)
        if target is None:
            raise SettingsRefused(
                f"{rule.where} has {table!r}, but the source follows no such table."
            )
        found[target] = rule
    return found
