"""The result of an atomic increment of a column."""

from __future__ import annotations

from rowtide.core.protocol import plainbuffer
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX

__all__ = ["apply_increment"]


def apply_increment(change: Cell, current: Cell | None, version_ms: int) -> Cell:
    """Return the put with the result of an increment; a missing column counts as 0."""
    base = 0
    name = change.name.decode()
    if current is not None:
        if current.variant[0] != variant.INTEGER:
            raise invalid(
                f"The value of column '{name}' is {variant.type_name(current.variant)}, "
                f"only VT_INTEGER can be incremented."
            )
        base = int(variant.decode(current.variant))
        version_ms = max(version_ms, current.version_ms or 0)
    result = base + int(variant.decode(change.variant))
    if not -INT64_MAX - 1 <= result <= INT64_MAX:
        raise invalid(f"The increment of column '{name}' overflows a 64-bit integer: {result}.")
    return plainbuffer.put_cell(change.name, variant.encode(result), version_ms)
