"""Instances, access keys, tables and their shards: the fold of the catalog's log.

The catalog is a shard whose rows are documents. Its key is (kind, id), its one STRING cell
``document`` has JSON. A removed document has no row. A change of several documents is one atomic
batch of records. Every worker folds the same log into the same ``Catalog``.

Ids of tables and shards come from counters that only grow, so no id is used twice.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from rowtide.core.cluster.share_token import ShareToken, share_token_content, share_token_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Credential
from rowtide.core.records import record
from rowtide.core.shard.index import index_table
from rowtide.core.shard.reshape import Reshape, reshape_content, reshape_of
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.schema import (
    Index,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
    TableOptions,
)

__all__ = [
    "AccessKey",
    "Catalog",
    "Document",
    "Instance",
    "document_body",
    "reclaimer_document",
    "reshape_document",
    "revocation_document",
    "secret_document",
    "token_document",
    "worker_document",
]

_CELL = b"document"
INSTANCE, ACCESS_KEY, TABLE, COUNTERS = "instance", "key", "table", "counters"
RESHAPE, SECRET = "reshape", "secret"
WORKER, RECLAIMER = "worker", "reclaimer"
_NONE: tuple[Sequence[ShardRange], list[bytes]] = (), []
REVOKED, TOKEN = "revoked", "token"


class Document(NamedTuple):
    """One document; ``content`` None removes it."""

    kind: str
    id: str
    content: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Instance:
    """A namespace. ``kind`` is ``high-performance`` or ``capacity`` and fixed at creation."""

    name: str
    kind: str
    created_us: int


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key pair. ``instances`` None allows all; ``admin`` may manage instances and keys.

    A ``read_only`` key changes nothing. With the admin right it reads what operators read.
    """

    access_key_id: str
    secret: str
    instances: frozenset[str] | None
    enabled: bool
    admin: bool
    created_us: int
    read_only: bool = False

    def __repr__(self) -> str:
        return f"AccessKey({self.access_key_id!r}, admin={self.admin}, enabled={self.enabled})"

    @property
    def can_manage(self) -> bool:
        """True if the key may change instances and keys."""
        return self.admin and not self.read_only


class Catalog:
    """The catalog as of ``applied``, the offset of the last folded entry."""

    def __init__(self) -> None:
        self.applied = -1
        self.stamp = 0
        self.instances: dict[str, Instance] = {}
        self.keys: dict[str, AccessKey] = {}
        self.credentials: dict[str, Credential] = {}
        """What requests are authenticated with, by access key id."""
        self.revoked: set[str] = set()
        """Ids of revoked keys, so that a worker that still has one does not add it again."""
        self.tokens: dict[str, ShareToken] = {}
        """Share tokens by their ids."""
        self.tables: dict[tuple[str, str], Table] = {}
        self.tables_by_id: dict[int, Table] = {}
        self.shards: dict[str, tuple[Table, ShardRange]] = {}
        """Every shard whose log is kept, including those that have ended."""
        self.reshapes: dict[str, Reshape] = {}
        """Planned changes of shards, by their id."""
        self.hop_secret: bytes | None = None
        """The secret with which workers authenticate to each other."""
        self.workers: dict[str, str] = {}
        """Last address of each worker that has not shut down, by name; some have crashed.
        """
        self.reclaimer_paused = False
        self.next_table_id = 1
        self.next_shard = 1
        self._begins: dict[int, tuple[Sequence[ShardRange], list[bytes]]] = {}
        """Each table's current shards, and their first keys."""
        self._group: list[record.Body] = []
        """The records read so far of a group that is not complete."""

    # Lookups.

    def table(self, instance: str, name: str) -> Table | None:
        """Return a table by its instance (any case) and name."""
        return self.tables.get((instance.lower(), name))

    def tables_of(self, instance: str) -> list[Table]:
        """Return an instance's tables by name, without their indexes."""
        wanted = instance.lower()
        return [t for (i, _), t in sorted(self.tables.items()) if i == wanted and not t.main]

    def shard_for(self, table: Table, encoded_key: bytes) -> ShardRange:
        """Return the shard that has a key, of the shards of ``table``.

        A caller that read the table before a split has its old shards, which may have ended.
        """
        shards = table.shards
        if len(shards) == 1:
            return shards[0]
        known, begins = self._begins.get(table.table_id, _NONE)
        if known is not shards:
            begins = [shard.begin for shard in shards]
        return shards[bisect_right(begins, encoded_key) - 1]

    def can_exist_unread(self, shard_id: str) -> bool:
        """True if an unknown shard may be in a part of the log that was not read yet.

        Any may be, also one whose id was assigned already: ids are assigned before the shard is
        created.
        """
        return shard_id[1:].isdecimal() and shard_id not in self.shards

    def documents(self) -> list[Document]:
        """Return everything as documents: a snapshot."""
        found = [Document(INSTANCE, name, asdict(i)) for name, i in self.instances.items()]
        found += [Document(ACCESS_KEY, id, key_content(k)) for id, k in self.keys.items()]
        found += [revocation_document(key_id) for key_id in sorted(self.revoked)]
        found += [token_document(*token) for token in self.tokens.items()]
        tables = [table for table in self.tables.values() if not table.main]
        found += [Document(TABLE, table_id(t), table_content(t)) for t in tables]
        found += [reshape_document(reshape) for reshape in self.reshapes.values()]
        found += [worker_document(*worker) for worker in self.workers.items()]
        found.append(self.counters())
        if self.reclaimer_paused:
            found.append(reclaimer_document(paused=True))
        if self.hop_secret is not None:
            found.append(secret_document(self.hop_secret))
        return found

    def counters(self, *, tables: int = 0, shards: int = 0) -> Document:
        """Return the counters' document after assigning this many ids."""
        return Document(
            COUNTERS,
            "ids",
            {"table": self.next_table_id + tables, "shard": self.next_shard + shards},
        )

    # Folding.

    def replay(self, offset: int, value: bytes) -> bool:
        """Fold one entry of the log; return False for a void one."""
        envelope, body = record.decode_record(value)
        self.applied = offset
        if envelope.at != offset:
            return False
        self.stamp = max(self.stamp, envelope.stamp)
        if envelope.group & record.FIRST:
            self._group = []
        self._group.append(body)
        # The log may be read in pieces. Apply a group only when it is complete.
        if envelope.group & record.LAST:
            group, self._group = self._group, []
            for one in group:
                self._take(one)
        return True

    def _take(self, body: record.Body) -> None:
        if isinstance(body, record.PutBody):
            self._set(*_document(body.key, body.cells))
        elif isinstance(body, record.DeleteBody):
            kind, name = (str(variant.decode(value)) for value in body.key)
            self._remove(kind, name)
        elif isinstance(body, record.Snapshot):
            self._restart()
            for row in body.rows:
                self._set(*_document(row.key, row.cells))

    def _restart(self) -> None:
        applied, stamp = self.applied, self.stamp
        self.__init__()  # type: ignore[misc]  # A snapshot replaces everything.
        self.applied, self.stamp = applied, stamp

    def _set(self, kind: str, name: str, content: dict[str, Any]) -> None:
        if kind == INSTANCE:
            self.instances[name] = Instance(**_select_fields(Instance, content))
        elif kind == ACCESS_KEY:
            key = self.keys[name] = _key_of(content)
            self.credentials[name] = Credential(
                key.access_key_id, key.secret, key.enabled, key.instances, key.read_only
            )
        elif kind == REVOKED:
            self.revoked.add(name)
        elif kind == TOKEN:
            self.tokens[name] = share_token_of(content)
        elif kind == COUNTERS:
            self.next_table_id, self.next_shard = content["table"], content["shard"]
        elif kind == SECRET:
            self.hop_secret = bytes.fromhex(content["hop"])
        elif kind == TABLE:
            self._set_table(_table_of(content))
        elif kind == RESHAPE:
            self.reshapes[name] = reshape_of(content)
        elif kind == WORKER:
            self.workers[name] = content["address"]
        elif kind == RECLAIMER:
            self.reclaimer_paused = content["paused"]

    def _set_table(self, table: Table) -> None:
        self._forget_table(table.table_id)
        self._add(table)
        for index in table.indexes:
            self._add(index_table(table, index))
        # Last: a local index has the table's shards.
        for shard in (*table.shards, *table.ended):
            self.shards[shard.shard_id] = (table, shard)

    def _add(self, table: Table) -> None:
        self.tables[table.instance.lower(), table.name] = table
        self.tables_by_id[table.table_id] = table
        begins = [shard.begin for shard in table.shards]
        self._begins[table.table_id] = table.shards, begins
        for shard in table.shards:
            self.shards[shard.shard_id] = (table, shard)

    def _forget_table(self, number: int) -> None:
        """Remove a table with its indexes, if it is known."""
        old = self.tables_by_id.get(number)
        if old is None:
            return
        for index in old.indexes:
            self._forget_table(index.table_id)
        for shard in (*old.shards, *old.ended):
            self.shards.pop(shard.shard_id, None)
        del self.tables_by_id[number], self._begins[number]
        del self.tables[old.instance.lower(), old.name]

    def _remove(self, kind: str, name: str) -> None:
        if kind == INSTANCE:
            self.instances.pop(name, None)
        elif kind == ACCESS_KEY:
            self.keys.pop(name, None)
            self.credentials.pop(name, None)
        elif kind == TOKEN:
            self.tokens.pop(name, None)
        elif kind == TABLE:
            self._forget_table(int(name))
        elif kind == RESHAPE:
            self.reshapes.pop(name, None)
        elif kind == WORKER:
            self.workers.pop(name, None)


def revocation_document(access_key_id: str) -> Document:
    """Return the document that records that a key is revoked."""
    return Document(REVOKED, access_key_id, {})


def token_document(token_id: str, token: ShareToken | None) -> Document:
    """Return the document of a share token; None removes it."""
    return Document(TOKEN, token_id, None if token is None else share_token_content(token))


def secret_document(secret: bytes) -> Document:
    """Return the document of the secret that workers share."""
    return Document(SECRET, "cluster", {"hop": secret.hex()})


def reshape_document(reshape: Reshape, *, gone: bool = False) -> Document:
    """Return the document of a change of shards, or the one that removes it."""
    return Document(RESHAPE, reshape.id, None if gone else reshape_content(reshape))


def worker_document(name: str, address: str | None) -> Document:
    """Return the document with a worker's address, or its removal without an address."""
    return Document(WORKER, name, None if address is None else {"address": address})


def reclaimer_document(*, paused: bool) -> Document:
    """Return the document that pauses or resumes the reclaimers."""
    return Document(RECLAIMER, "cluster", {"paused": paused})


def document_body(document: Document) -> tuple[bytes, record.Body]:
    """Return the log key and body that store ``document``."""
    values = [variant.encode(document.kind), variant.encode(document.id)]
    log_key = f"{document.kind}/{document.id}".encode()
    if document.content is None:
        return log_key, record.DeleteBody(values, None)
    text = json.dumps(document.content, separators=(",", ":"), sort_keys=True)
    cell = plainbuffer.put_cell(_CELL, variant.encode(text), 0)
    return log_key, record.PutBody(values, [cell], None)


def snapshot_body(documents: Iterable[Document]) -> record.Snapshot:
    """Return one record with the whole catalog."""
    rows = []
    for document in documents:
        _, body = document_body(document)
        assert isinstance(body, record.PutBody), "a snapshot has no removed document"
        rows.append(record.SnapshotRow(body.key, body.cells))
    return record.Snapshot(rows)


def table_id(table: Table) -> str:
    """Return a table's document id."""
    return str(table.table_id)


def table_content(table: Table) -> dict[str, Any]:
    """Return a table's document."""
    content = asdict(table)
    for derived in ("key_wire", "key_overhead", "auto_increment_index", "main"):
        del content[derived]
    content["ended"] = _ranges(content["ended"])
    for ranged in (content, *content["indexes"]):
        ranged["shards"] = _ranges(ranged["shards"])
    for index in content["indexes"]:
        if not index["key_named"]:  # Earlier versions do not know this field.
            del index["key_named"]
    content["split_points"] = [point.hex() for point in table.split_points]
    return content


def _ranges(shards: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**s, "begin": s["begin"].hex(), "end": s["end"].hex()} for s in shards]


def key_content(access_key: AccessKey) -> dict[str, Any]:
    """Return an access key's document.

    Workers of earlier versions do not know read-only keys, and drop the field from the snapshots
    that they write. To them such a key is disabled, so that it never writes.
    """
    instances = access_key.instances
    content = asdict(access_key)
    content["instances"] = None if instances is None else sorted(instances)
    if access_key.read_only:
        content["enabled"] = False
    else:
        del content["read_only"]
    return content


def _select_fields(kind: type[Any], content: dict[str, Any]) -> dict[str, Any]:
    """Return the content for which ``kind`` has a field.

    A worker of a later version may have written more fields. That must not stop this worker, which
    continues to serve during a rolling upgrade.
    """
    return {field.name: content[field.name] for field in fields(kind) if field.name in content}


def _key_of(content: dict[str, Any]) -> AccessKey:
    instances = content["instances"]
    allowed = None if instances is None else frozenset(instances)
    is_enabled = content["enabled"] or content.get("read_only", False)
    fields = _select_fields(AccessKey, content)
    return AccessKey(**{**fields, "instances": allowed, "enabled": is_enabled})


def _table_of(content: dict[str, Any]) -> Table:
    return Table(
        **{
            **_select_fields(Table, content),
            "key": tuple(KeyColumn(*column[: len(KeyColumn._fields)]) for column in content["key"]),
            "options": TableOptions(**_select_fields(TableOptions, content["options"])),
            "stream": None if content["stream"] is None else _stream_of(content["stream"]),
            "shards": tuple(_shard_of(shard) for shard in content["shards"]),
            "ended": tuple(_shard_of(shard) for shard in content["ended"]),
            "split_points": tuple(bytes.fromhex(point) for point in content["split_points"]),
            "defined_columns": tuple((name, kind) for name, kind, *_ in content["defined_columns"]),
            "indexes": tuple(_index_of(index) for index in content.get("indexes", ())),
        }
    )


def _stream_of(content: dict[str, Any]) -> StreamSettings:
    known = _select_fields(StreamSettings, content)
    return StreamSettings(**{**known, "columns": tuple(content["columns"])})


def _index_of(content: dict[str, Any]) -> Index:
    return Index(
        **{
            **_select_fields(Index, content),
            "key": tuple(content["key"]),
            "columns": tuple(content["columns"]),
            "shards": tuple(_shard_of(shard) for shard in content["shards"]),
        }
    )


def _shard_of(content: dict[str, Any]) -> ShardRange:
    return ShardRange(
        **{
            **_select_fields(ShardRange, content),
            "begin": bytes.fromhex(content["begin"]),
            "end": bytes.fromhex(content["end"]),
            "parents": tuple(content["parents"]),
        }
    )


def _document(values: list[bytes], cells: Iterable[Cell]) -> tuple[str, str, dict[str, Any]]:
    kind, name = (str(variant.decode(value)) for value in values)
    text = next(str(variant.decode(c.variant)) for c in cells if c.name == _CELL)
    return kind, name, json.loads(text)
