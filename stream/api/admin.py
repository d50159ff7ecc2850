"""Rowtide's own operations: instances, access keys, status. Bodies and answers are JSON.

They use the same protocol as all others, are signed like every request, and have names
that begin with ``Rowtide``. Only keys with the admin right may use them.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Sequence
from typing import Any

from rowtide.core.cluster.catalog import (
    ACCESS_KEY,
    INSTANCE,
    AccessKey,
    Catalog,
    Document,
    Instance,
    key_content,
    revocation_document,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.schema import is_instance_name
from rowtide.stream.api.admin_request import json_answer, json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.clock import MachineClock

__all__ = ["AdminOperations", "new_key_id", "new_secret"]

KINDS = ("high-performance", "capacity")


def new_key_id() -> str:
    """Return a fresh access key id."""
    return "rt" + secrets.token_hex(9)


def new_secret() -> str:
    """Return a fresh secret of 238 random bits: letters and digits, easy to paste anywhere."""
    alphabet = string.ascii_letters + string.digits
    return "".join(secrets.choice(alphabet) for _ in range(40))


class AdminOperations:
    """Handlers by operation; ``status`` returns this worker's status."""

    def __init__(
        self,
        directory: Directory,
        placement: Placement,
        status: Callable[[], dict[str, Any]],
        clock: MachineClock,
    ) -> None:
        self._directory = directory
        self._placement = placement
        self._status = status
        self._clock = clock

    @answers("RowtideStatus")
    def status(self, identity: Identity, _body: bytes) -> bytes:
        """Return the worker's status."""
        return json_answer(self._status())

    @answers("RowtideSetClock")
    def set_clock(self, identity: Identity, body: bytes) -> bytes:
        """Set the clock of a server that runs on a test's clock: ``now_us``, Unix microseconds.

        ``passed_us`` is the time by which open transactions age meanwhile; 0 by default.
        """
        fields = json_fields(body, {"now_us", "passed_us"})
        now_us, passed_us = fields.get("now_us"), fields.get("passed_us", 0)
        if type(now_us) is not int or type(passed_us) is not int:
            raise invalid("The now_us and passed_us must be whole numbers of microseconds.")
        self._clock.set(now_us, passed_us)
        return json_answer({"now_us": now_us, "passed_us": passed_us})

    @answers("RowtideAdvanceClock")
    def advance_clock(self, identity: Identity, body: bytes) -> bytes:
        """Advance a test's clock, and return its new time.

        The step is ``by_us`` microseconds (0 reads the clock) or ends at ``to_us``, a
        Unix time. The clock never goes back.
        """
        fields = json_fields(body, {"by_us", "to_us"})
        if len(fields) != 1 or type(moment := next(iter(fields.values()))) is not int:
            raise invalid("Either by_us or to_us is needed, a whole number of microseconds.")
        self._clock.advance(moment if "by_us" in fields else moment - self._clock())
        return json_answer({"now_us": self._clock()})

    @answers("RowtideListInstances")
    def list_instances(self, identity: Identity, _body: bytes) -> bytes:
        """Return instances with their kinds and numbers of tables."""
        catalog = self._directory.catalog
        return json_answer(
            {
                "instances": [
                    {
                        "name": instance.name,
                        "kind": instance.kind,
                        "created_us": instance.created_us,
                        "tables": len(catalog.tables_of(name)),
                    }
                    for name, instance in sorted(catalog.instances.items())
                ]
            }
        )

    @answers("RowtideCreateInstance")
    async def create_instance(self, identity: Identity, body: bytes) -> bytes:
        """Create an instance: ``name``, optional ``kind``."""
        fields = json_fields(body, {"name", "kind"})
        name, kind = str(fields.get("name", "")), str(fields.get("kind", KINDS[0]))
        if not is_instance_name(name):
            raise invalid(
                f"Invalid instance name: '{name}': 3-16 letters, digits and hyphens, first a "
                f"letter, last no hyphen."
            )
        if kind not in KINDS:
            raise invalid(f"Invalid instance kind: '{kind}': one of {', '.join(KINDS)}.")

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            if name.lower() in catalog.instances:
                raise Rejected("OTSObjectAlreadyExist", f"Instance '{name}' already exists.")
            limit = self._directory.limits.instances_max
            if len(catalog.instances) >= limit:
                raise Rejected(
                    "OTSQuotaExhausted", f"Number of instances exceeds the quota:{limit}."
                )
            return [instance_document(Instance(name, kind, stamp))]

        await self._placement.change(decide)
        return json_answer({"name": name, "kind": kind})

    @answers("RowtideDeleteInstance")
    async def delete_instance(self, identity: Identity, body: bytes) -> bytes:
        """Delete an instance without tables: ``name``. The last instance cannot be deleted."""
        name = str(json_fields(body, {"name"}).get("name", ""))

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            if name.lower() not in catalog.instances:
                raise Rejected("OTSObjectNotExist", f"Instance '{name}' does not exist.")
            tables = catalog.tables_of(name)
            if tables:
                raise invalid(
                    f"Instance '{name}' has {len(tables)} tables, first '{tables[0].name}': "
                    f"delete them first."
                )
            if len(catalog.instances) == 1:
                raise invalid(f"Instance '{name}' is the last one: no request could name another.")
            return [Document(INSTANCE, name.lower(), None)]

        await self._placement.change(decide)
        return json_answer({"name": name})

    @answers("RowtideListKeys")
    def list_keys(self, identity: Identity, _body: bytes) -> bytes:
        """Return access keys without their secrets."""
        keys = self._directory.catalog.keys.values()
        return json_answer({"keys": [_without_secret(key) for key in keys]})

    @answers("RowtideDescribeKey")
    def describe_key(self, identity: Identity, body: bytes) -> bytes:
        """Return what the key that signed the request may do."""
        json_fields(body, set())
        key = self._directory.catalog.keys.get(identity.access_key_id)
        if key is None:
            raise Rejected("OTSAuthFailed", "The AccessKeyID does not exist.")
        return json_answer(_without_secret(key))

    @answers("RowtideCreateKey")
    async def create_key(self, identity: Identity, body: bytes) -> bytes:
        """Create a key pair: optional ``instances``, ``admin``, ``read_only``.

        The secret is shown only here.
        """
        fields = json_fields(body, {"instances", "admin", "read_only"})
        wanted = fields.get("instances")
        if wanted is not None and not isinstance(wanted, list):
            raise invalid("The instances of a key must be a list of names.")
        allowed = None if wanted is None else frozenset(str(name).lower() for name in wanted)
        created: list[AccessKey] = []

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            unknown = sorted((allowed or frozenset()) - set(catalog.instances))
            if unknown:
                raise Rejected("OTSObjectNotExist", f"Instance '{unknown[0]}' does not exist.")
            key = AccessKey(
                access_key_id=new_key_id(),
                secret=new_secret(),
                instances=allowed,
                enabled=True,
                admin=bool(fields.get("admin")),
                created_us=stamp,
                read_only=bool(fields.get("read_only")),
            )
            created[:] = [key]
            return [key_document(key)]

        await self._placement.change(decide)
        secret = {"access_key_secret": created[0].secret}
        return json_answer({**_without_secret(created[0]), **secret})

    @answers("RowtideRevokeKey")
    async def revoke_key(self, identity: Identity, body: bytes) -> bytes:
        """Remove a key for good: ``access_key_id``.

        The last key that can manage instances and keys cannot be removed.
        """
        key_id = str(json_fields(body, {"access_key_id"}).get("access_key_id", ""))

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            key = catalog.keys.get(key_id)
            if key is None:
                raise Rejected("OTSObjectNotExist", f"Access key '{key_id}' does not exist.")
            if key.can_manage and sum(k.can_manage for k in catalog.keys.values()) == 1:
                raise invalid(f"Access key '{key_id}' is the last one with the admin right.")
            return [Document(ACCESS_KEY, key_id, None), revocation_document(key_id)]

        await self._placement.change(decide)
        return json_answer({"access_key_id": key_id})


def instance_document(instance: Instance) -> Document:
    """Return the document of an instance."""
    return Document(
        INSTANCE,
        instance.name.lower(),
        {"name": instance.name, "kind": instance.kind, "created_us": instance.created_us},
    )


def key_document(key: AccessKey) -> Document:
    """Return the document of an access key."""
    return Document(ACCESS_KEY, key.access_key_id, key_content(key))


def _without_secret(key: AccessKey) -> dict[str, Any]:
    return {
        "access_key_id": key.access_key_id,
        "instances": None if key.instances is None else sorted(key.instances),
        "enabled": key.enabled,
        "admin": key.admin,
        "created_us": key.created_us,
        "read_only": key.read_only,
    }
