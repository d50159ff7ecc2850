"""Types in which a view shows attributes, as the settings declare them.

The columns behind the view keep each value as it was. Only the view casts.
"""

from __future__ import annotations

import re

from rowtide.connectors.fields import Fields, SettingsRefused

__all__ = ["view_types"]

NAMES = frozenset(
    {
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
        *("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL", "UUID", "VARCHAR"),
    }
)
_TYPE = re.compile(r"([A-Z]+)(?:\([0-9]{1,2}(?:, ?[0-9]{1,2})?\))?", re.IGNORECASE)


def view_types(fields: Fields) -> dict[str, str]:
    """Return types by attribute. Raises ``SettingsRefused`` for a text that is no type."""
    found: dict[str, str] = {}
    for name in fields.names():
        text = fields.text(name)
        parts = _TYPE.fullmatch(text)
        if parts is None or parts[1].upper() not in NAMES or ("(" in text) > _is_decimal(text):
            raise SettingsRefused(
                f"{fields.where}.{name} must be DECIMAL(10,2), or one of "
                f"{', '.join(sorted(NAMES))}, but is {text!r}."
            )
        found[name] = text
    return found


def _is_decimal(text: str) -> bool:
    return text.upper().startswith("DECIMAL")
