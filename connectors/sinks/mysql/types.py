"""Types that a sink's settings declare for columns, in the words of the server.

A misspelt type is refused before any table is created.
"""

from __future__ import annotations

import re

from rowtide.connectors.fields import Fields, SettingsRefused

__all__ = ["parse_column_types"]

NAMES = frozenset(
    {
        *("BOOLEAN", "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BIT", "YEAR"),
        *("DECIMAL", "FLOAT", "DOUBLE"),
        *("DATE", "TIME", "DATETIME", "TIMESTAMP"),
        *("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET", "JSON"),
        *("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
        *("UUID", "INET4", "INET6"),
    }
)
_NUMBERS = r"[0-9]{1,5}(?:, ?[0-9]{1,2})?"
_MEMBERS = r"'[^'\\]*'(?:, ?'[^'\\]*')*"
_ENDING = r"UNSIGNED|ZEROFILL|CHARACTER SET [a-z0-9_]+|COLLATE [a-z0-9_]+"
_TYPE = re.compile(
    rf"([A-Z]+[46]?)(?: ?\((?:{_NUMBERS}|{_MEMBERS})\))?(?: (?:{_ENDING}))*", re.IGNORECASE
)


def parse_column_types(fields: Fields) -> dict[str, str]:
    """Return types by rowtide's column name. Raises ``SettingsRefused`` for a text that
    is no type.
    """
    found: dict[str, str] = {}
    for name in fields.names():
        text = fields.text(name)
        parts = _TYPE.fullmatch(text)
        if parts is None or parts[1].upper() not in NAMES:
            raise SettingsRefused(
                f"{fields.where}.{name} must be a type such as DECIMAL(10,2), DATETIME(3) or "
                f"BIGINT UNSIGNED, of {', '.join(sorted(NAMES))}, but is {text!r}."
            )
        found[name] = text
    return found
