"""What is posted: rows of one batch as JSON, named by their content and signed.

A message has the headers of Standard Webhooks. Its id is a digest of its body, so the
same rows posted again are the same message. The signature covers id, time and body. Bytes
are base64, and a double that JSON lacks is a text. ``order`` is the key in hex: as texts
these sort as the keys do, and so do the bounds of ``covers``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

__all__ = ["Message", "message_id", "messages", "secret_bytes", "signatures"]

PREFIX = "whsec_"
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
ENVELOPE_BYTES = 1024
"""Upper bound of a body beside its rows, without names and bounds."""


class Message(NamedTuple):
    """Rows of one request. ``bodies`` are their JSON, ``covers`` the range that they cover."""

    head: str
    rows: Sequence[SinkRow]
    bodies: Sequence[str]
    covers: Range | None
    stamp: int

    @property
    def body(self) -> bytes:
        """The request's body."""
        covers = "null"
        if self.covers is not None:
            begin, end = (bound.hex() for bound in self.covers)
            covers = _dump({"begin": begin, "end": end, "stamp": self.stamp})
        return f'{self.head}"covers":{covers},"rows":[{",".join(self.bodies)}]}}'.encode()

    def halves(self) -> tuple[Message, Message]:
        """Return the same rows as two messages that cover nothing."""
        middle = len(self.rows) // 2
        first = self._replace(rows=self.rows[:middle], bodies=self.bodies[:middle], covers=None)
        rest = self._replace(rows=self.rows[middle:], bodies=self.bodies[middle:], covers=None)
        return first, rest


def messages(batch: SinkBatch, *, rows_max: int, bytes_max: int) -> Iterator[Message]:
    """Yield a batch in order as messages of bounded size. A larger row is alone in its message."""
    head = _dump({"type": "rowtide.rows", "table": batch.table, "shard": batch.shard_id})
    head = f"{head[:-1]},"
    rows = list(batch.rows)
    if batch.covers is not None:
        # Each message covers up to the next one's first key.
        rows.sort(key=lambda row: row.key_bytes)
    begin, end = batch.covers or (b"", b"")
    space = bytes_max - ENVELOPE_BYTES - len(head)
    some: list[SinkRow] = []
    bodies: list[str] = []
    size = 0

    def make_message(upto: bytes) -> Message:
        covers = None if batch.covers is None else (begin, upto)
        return Message(head, tuple(some), tuple(bodies), covers, batch.stamp)

    for row in rows:
        body = _row(row)
        length = len(body.encode()) + 1
        full = len(some) >= rows_max or size + length > space
        same = bool(some) and some[-1].key_bytes == row.key_bytes
        if some and full and not (same and batch.covers is not None):
            yield make_message(row.key_bytes)
            begin = row.key_bytes
            some, bodies, size = [], [], 0
        some.append(row)
        bodies.append(body)
        size += length
    if some or batch.covers is not None:
        yield make_message(end)


def message_id(body: bytes) -> str:
    """Return an id that the same body always gets."""
    return f"msg_{hashlib.sha256(body).hexdigest()[:32]}"


def secret_bytes(secret: str) -> bytes:
    """Return the key of a secret: base64 after ``whsec_``, otherwise the text itself."""
    if secret.startswith(PREFIX):
        return b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def signatures(secrets: Sequence[bytes], name: str, time_s: int, body: bytes) -> str:
    """Return the signature header of a message, with one signature per secret."""
    signed = f"{name}.{time_s}.".encode() + body
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{b64encode(digest).decode()}" for digest in digests)


def _row(row: SinkRow) -> str:
    key = hashlib.sha256(row.key_bytes).hexdigest()[:24]
    return _dump(
        {
            "id": f"{key}-{row.stamp}",
            "kind": row.kind,
            "stamp": row.stamp,
            "sequence": row.sequence if row.sequence >= 0 else None,
            "order": row.key_bytes.hex(),
            "key": _columns(dict(row.key)),
            "columns": None if row.columns is None else _columns(row.columns),
            "before": None if row.before is None else _columns(row.before),
            "existed": row.existed,
        }
    )


def _columns(columns: Mapping[str, Scalar]) -> Mapping[str, object]:
    return {name: _plain(value) for name, value in columns.items()}


def _plain(value: Scalar) -> object:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
