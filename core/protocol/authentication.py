"""Authenticates requests and checks that they arrived unchanged.

The checks run in the documented order of the service, and the first failure is the answer:
mandatory headers, API version, date, key, instance, clock skew, signature, the right to change
something; then, once the body has arrived, its MD5. The HTTP layer checks method and operation name
before.

Headers are bytes, names in lower case, values trimmed. Instance names compare without case. Time is
an argument, in seconds since the Unix epoch. The signed day of version 4 is not compared with the
date. A key derived for a day stays valid until its secret is revoked, because some SDKs never renew
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hmac import compare_digest
from typing import Final, NoReturn

from rowtide.core.protocol.body_compression import DEFLATE, inflate
from rowtide.core.protocol.operations import OPERATIONS, StateAccess
from rowtide.core.protocol.signature import (
    content_md5,
    request_signature_v2,
    request_signature_v4,
    signing_key_v4,
    string_to_sign,
)
from rowtide.core.values.errors import Rejected, Unavailable, invalid

__all__ = [
    "ABSENT_S_MAX",
    "KNOWN_S_MAX",
    "SKEW_MAX_S",
    "Authenticator",
    "Credential",
    "Headers",
    "Identity",
    "parse_date",
]

Headers = Mapping[bytes, bytes]
"""A request's headers as bytes: names in lower case, values trimmed."""

SKEW_MAX_S: Final = 15 * 60

KNOWN_S_MAX: Final = 30.0
"""Keys and instances that were read longer ago grant no access: they may be revoked by now."""

ABSENT_S_MAX: Final = 3.0
"""What was absent longer ago may exist by now. Above the lag of a follower, 2 s."""

STALE_KEY_PATHS: Final = frozenset(
    b"/" + name.encode() for name, spec in OPERATIONS.items() if not spec.needs_fresh_keys
)
"""Paths that operators call while Kafka is down: keys read at any time before are accepted."""

CHANGING: Final = frozenset(
    b"/" + name.encode() for name, spec in OPERATIONS.items() if spec.access is StateAccess.WRITE
)
"""Paths of the operations that a read-only key may not call."""

API_VERSIONS: Final = frozenset({b"2015-12-31", b"2018-04-01"})
"""The Go tunnel client sends the second."""

MANDATORY: Final = (
    b"x-ots-apiversion",
    b"x-ots-accesskeyid",
    b"x-ots-instancename",
    b"x-ots-contentmd5",
    b"x-ots-date",
)

_FRACTION = re.compile(rb"\.\d{1,9}Z")
_FIRST_19 = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Credential:
    """An access key: its secret, and the instances that it may use (``None``: all of them).

    Instance names are stored in lower case. A read-only key may call only operations that change
    nothing.
    """

    access_key_id: str
    secret: str
    enabled: bool = True
    instances: frozenset[str] | None = None
    is_read_only: bool = False

    def __post_init__(self) -> None:
        if self.instances is not None:
            lowered = frozenset(name.lower() for name in self.instances)
            object.__setattr__(self, "instances", lowered)

    def can_use(self, instance: str) -> bool:
        """True if the key may use ``instance``, a name in lower case."""
        return self.instances is None or instance in self.instances

    def can_call(self, path: bytes) -> bool:
        """True unless the key is read-only and the operation changes something."""
        return not (self.is_read_only and path in CHANGING)


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request. ``instance`` is in lower case; ``response_key`` signs the answer."""

    access_key_id: str
    instance: str
    response_key: bytes


@dataclass(slots=True)
class Authenticator:
    """Checks requests against the keys and instances that the caller knows now.

    ``credential`` finds a key by its id, ``instance_exists`` an instance by its lower-cased name.
    Both are called for every request, so that a revoked key stops at once. ``age_s`` returns the
    age of the caller's keys and instances. If they are too old, they neither grant nor deny access.
    """

    credential: Callable[[str], Credential | None]
    instance_exists: Callable[[str], bool]
    age_s: Callable[[], float] = lambda: 0.0

    def check_head(
        self, path: bytes, headers: Headers, *, now_s: float, query: bytes = b""
    ) -> Identity:
        """Check everything that needs no body. A rejected request's body need not be read."""
        _require_headers(headers)
        sent_s = parse_date(headers[b"x-ots-date"])
        if path not in STALE_KEY_PATHS:
            self._require_known_within(KNOWN_S_MAX)
        credential = self._find_key(headers)
        instance = headers[b"x-ots-instancename"].decode("utf-8", "replace").lower()
        if not self.instance_exists(instance):
            self._require_known_within(ABSENT_S_MAX)
            _refuse("The instance is not found.")
        if not credential.can_use(instance):
            _refuse("The user has no privilege to access the instance.")
        if abs(int(now_s) - sent_s) > SKEW_MAX_S:
            date = headers[b"x-ots-date"].decode("ascii")
            _refuse(f"Mismatch between system time and x-ots-date: {date}.")
        key = _key_of(credential, headers)
        _check_signature(key, string_to_sign(path, headers, query), headers)
        if not credential.can_call(path):
            raise _changes_by_read_only(credential.access_key_id, path)
        return _identity(credential.access_key_id, instance, key)

    def is_granted(self, credential: Credential, instance: str, path: bytes) -> bool:
        """True if ``check_head`` would accept a well-signed request that names the same.

        ``credential`` is what an earlier request was accepted with, ``instance`` in lower case.
        """
        return (
            self.credential(credential.access_key_id) is credential
            and self.instance_exists(instance)
            and (path in STALE_KEY_PATHS or self.age_s() <= KNOWN_S_MAX)
            and credential.can_call(path)
        )

    def check_body(self, headers: Headers, body: bytes, *, body_bytes_max: int) -> bytes:
        """Check a body against its MD5, and inflate it if it is compressed."""
        if content_md5(body) != headers[b"x-ots-contentmd5"]:
            _refuse("Mismatch between MD5 value of request body and x-ots-contentmd5 in header.")
        kind = headers.get(b"x-ots-request-compress-type")
        if not kind:
            return body
        if kind.lower() != DEFLATE:
            raise invalid(f"Unsupported compress type: {kind.decode('utf-8', 'replace')}.")
        size = headers.get(b"x-ots-request-compress-size")
        if not size:
            raise invalid("Missing header: x-ots-request-compress-size.")
        return inflate(body, declared_size=size, bytes_max=body_bytes_max)

    def answer_key(self, headers: Headers) -> tuple[str, bytes] | None:
        """Return key id and key to sign an error with; None if the request has no known key."""
        key_id = headers.get(b"x-ots-accesskeyid")
        credential = self.credential(key_id.decode("utf-8", "replace")) if key_id else None
        if credential is None:
            return None
        return credential.access_key_id, _key_of(credential, headers)

    def _find_key(self, headers: Headers) -> Credential:
        credential = self.credential(headers[b"x-ots-accesskeyid"].decode("utf-8", "replace"))
        if credential is None:
            self._require_known_within(ABSENT_S_MAX)
            _refuse("The AccessKeyID does not exist.")
        if not credential.enabled:
            _refuse("The AccessKeyID is disabled.")
        return credential

    def _require_known_within(self, seconds: float) -> None:
        """Raise ``Unavailable`` unless the keys and instances were read within ``seconds``."""
        age_s = self.age_s()
        if age_s > seconds:
            raise Unavailable(
                f"Access keys and instances were last read {age_s:.0f} s ago.",
                "OTSServerUnavailable",
            )


def parse_date(date: bytes) -> int:
    """Return the whole second of an ``x-ots-date``: ISO 8601, UTC, with a trailing Z.

    The fraction must be digits and is ignored: Go prints month, day and hour there.
    """
    second, rest = _epoch_second(date[:19]), date[19:]
    if second is None or (rest != b"Z" and _FRACTION.fullmatch(rest) is None):
        raise invalid(f"Invalid date format: {date.decode('utf-8', 'replace')}.")
    return second


@lru_cache(1024)
def _epoch_second(text: bytes) -> int | None:
    """Return the second since the epoch. Cached, because requests of one moment share it."""
    if _FIRST_19.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return None
    return int(moment.replace(tzinfo=UTC).timestamp())


@lru_cache(1024)
def _identity(access_key_id: str, instance: str, response_key: bytes) -> Identity:
    return Identity(access_key_id, instance, response_key)


def _require_headers(headers: Headers) -> None:
    for name in MANDATORY:
        if not headers.get(name):
            raise invalid(f"Missing header: {name.decode('ascii')}.")
    if headers.get(b"x-ots-signaturev4"):
        for name in (b"x-ots-signdate", b"x-ots-signregion"):
            if not headers.get(name):
                raise invalid(f"Missing header: {name.decode('ascii')}.")
    elif not headers.get(b"x-ots-signature"):
        raise invalid("Missing header: x-ots-signature.")
    version = headers[b"x-ots-apiversion"]
    if version not in API_VERSIONS:
        raise invalid(f"Invalid api version: {version.decode('utf-8', 'replace')}.")


def _key_of(credential: Credential, headers: Headers) -> bytes:
    """Return the key that signs request and answer: the secret, or version 4's derived key."""
    secret = credential.secret.encode("utf-8")
    date, region = headers.get(b"x-ots-signdate"), headers.get(b"x-ots-signregion")
    if date and region and headers.get(b"x-ots-signaturev4"):
        return signing_key_v4(secret, date, region)
    return secret


def _check_signature(key: bytes, text: bytes, headers: Headers) -> None:
    given = headers.get(b"x-ots-signaturev4")
    if given:
        expected = request_signature_v4(key, text)
    else:
        given, expected = headers[b"x-ots-signature"], request_signature_v2(key, text)
    if not compare_digest(expected, given):
        _refuse("Signature mismatch.")


def _changes_by_read_only(access_key_id: str, path: bytes) -> Rejected:
    return Rejected(
        "OTSNoPermissionAccess",
        f"Access key '{access_key_id}' is read-only: it cannot call {path[1:].decode()}. "
        f"Use a key that may write.",
    )


def _refuse(message: str) -> NoReturn:
    raise Rejected("OTSAuthFailed", message)
