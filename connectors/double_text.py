"""A double as text, in the digits that a server writes when it converts one."""

from __future__ import annotations

from decimal import Decimal

__all__ = ["ANY_WIDTH", "MYSQL_WIDTH", "double_text"]

FIXED_EXPONENTS = range(-15, 15)
"""Powers of ten that are written without an exponent if no digit follows the point."""
MYSQL_WIDTH, ANY_WIDTH = 24, 99
"""Most characters of a double without an exponent: in columns of MySQL, and elsewhere."""


def double_text(value: float, width: int) -> str:
    """Return the digits of a finite double."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "finite"
    shown = "".join(map(str, digits))
    minus, power = "-" * sign, exponent + len(shown) - 1
    if power in FIXED_EXPONENTS or 0 > exponent > -len(shown):
        fixed = f"{minus}{Decimal((0, digits, exponent)):f}"
        if len(fixed) <= width:
            return fixed
    if len(shown) > 1:
        shown = f"{shown[0]}.{shown[1:]}"
    return f"{minus}{shown}e{power}"
