"""How a client reaches a test's instance."""

from __future__ import annotations

from typing import Any

from rowtide.testing.instance import InstanceAccess

__all__ = ["access_of"]


def access_of(instance: InstanceAccess) -> dict[str, Any]:
    """Return the arguments of a client of an instance."""
    return {
        "endpoint": instance.endpoint,
        "instance": instance.name,
        "access_key_id": instance.access_key_id,
        "access_key_secret": instance.access_key_secret,
    }
