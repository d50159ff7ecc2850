"""What an access key may do, as the worker says. The worker decides again at each action."""

from __future__ import annotations

from typing import NamedTuple

from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected

__all__ = ["KeyRights", "learn_rights"]


class KeyRights(NamedTuple):
    """A key that the worker accepted. ``instances`` are those it may use, first the named one."""

    key: KeyPair
    instances: tuple[str, ...]
    is_admin: bool
    is_read_only: bool


async def learn_rights(calls: WorkerCalls, key: KeyPair, instance: str) -> KeyRights:
    """Return what a key may do. Raises ``StoreError``: the worker does not accept it."""
    await calls.call(key, instance, "ListTable", pb.ListTableRequest())
    try:
        listed = await calls.call(key, instance, "RowtideListInstances")
    except Rejected as error:
        if error.code != "OTSNoPermissionAccess":
            raise
        return KeyRights(key, (instance,), is_admin=False, is_read_only=False)
    names = [found["name"] for found in listed["instances"]]
    ordered = (instance, *(name for name in names if name != instance))
    return KeyRights(key, ordered, is_admin=True, is_read_only=False)
