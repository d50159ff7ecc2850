"""What an access key may do, as the worker says. The worker decides again at each action."""

from __future__ import annotations

from typing import NamedTuple

from rowtide.console.workers.calls import KeyPair, WorkerCalls

__all__ = ["KeyRights", "learn_rights"]


class KeyRights(NamedTuple):
    """A key that the worker accepted. ``instances`` are those it may use, first the named one."""

    key: KeyPair
    instances: tuple[str, ...]
    is_admin: bool
    is_read_only: bool


async def learn_rights(calls: WorkerCalls, key: KeyPair, instance: str) -> KeyRights:
    """Return what a key may do. Raises ``StoreError``: the worker does not accept it."""
    found = await calls.call(key, instance, "RowtideDescribeKey")
    names: list[str] | None = found["instances"]
    if names is None and found["admin"]:
        # Only an administrator sees which instances exist.
        listed = await calls.call(key, instance, "RowtideListInstances")
        names = [one["name"] for one in listed["instances"]]
    others = sorted(name for name in names or () if name != instance)
    return KeyRights(
        key,
        (instance, *others),
        is_admin=bool(found["admin"]),
        is_read_only=bool(found["read_only"]),
    )
