"""What is posted: some rows of one batch as JSON, named by what is in them, and signed.

A message has the headers of Standard Webhooks. Its id is made of its body, so the same rows posted
again are the same message; the signature covers id, time and body. Bytes are base64, a double that
JSON has no word for is a text. ``order`` is the key in hex: compared as texts these stand in the
keys' order, as do the bounds of ``covers``.
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
"""More than what stands in a body beside its rows, the names and bounds left out."""


class Message(NamedTuple):
    """Rows that go in one request. ``bodies`` are theirs, ``covers`` what they are all of."""

    head: str
    rows: Sequence[SinkRow]
    bodies: Sequence[str]
    covers: Range | None
    stamp: int

    @property
    def body(self) -> bytes:
        """Return the request's body."""
        covers = "null"
        if self.covers is not None:
            begin, end = (bound.hex() for bound in self.covers)
            covers = _dump({"begin": begin, "end": end, "stamp": self.stamp})
        return f'{self.head}"covers":{covers},"rows":[{",".join(self.bodies)}]}}'.encode()

    def halves(self) -> tuple[Message, Message]:
        """Return the same rows as two messages, which cover nothing."""
        middle = len(self.rows) // 2
        first = self._replace(rows=self.rows[:middle], bodies=self.bodies[:middle], covers=None)
        rest = self._replace(rows=self.rows[middle:], bodies=self.bodies[middle:], covers=None)
        return first, rest


def messages(batch: SinkBatch, *, rows_max: int, bytes_max: int) -> Iterator[Message]:
    """Yield a batch in order as messages of bounded size; a row that is too large has one alone."""
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

    def made(upto: bytes) -> Message:
        covers = None if batch.covers is None else (begin, upto)
        return Message(head, tuple(some), tuple(bodies), covers, batch.stamp)

    for row in rows:
        body = _row(row)
        length = len(body.encode()) + 1
        full = len(some) >= rows_max or size + length > space
        same = bool(some) and some[-1].key_bytes == row.key_bytes
        if some and full and not (same and batch.covers is not None):
            yield made(row.key_bytes)
            begin = row.key_bytes
            some, bodies, size = [], [], 0
        some.append(row)
        bodies.append(body)
        size += length
    if some or batch.covers is not None:
        yield made(end)


def message_id(body: bytes) -> str:
    """Return a name that the same rows, posted again, have again."""
    return f"msg_{hashlib.sha256(body).hexdigest()[:32]}"


def secret_bytes(secret: str) -> bytes:
    """Return the key that a secret stands for: base64 behind ``whsec_``, else the text itself."""
    if secret.startswith(PREFIX):
        return b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def signatures(secrets: Sequence[bytes], name: str, time_s: int, body: bytes) -> str:
    """Return the header that proves who sent a message, one signature per secret."""
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
