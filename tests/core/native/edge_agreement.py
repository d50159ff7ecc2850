"""Each kernel of the HTTP edge against Python: it returns what Python returns, or None.

As in ``agreement.py``, a function fails where the two ways differ, and returns whether the kernel
did answer.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from rowtide.core.protocol.authentication import Authenticator, Credential
from rowtide.core.protocol.signature import (
    content_md5,
    request_signature_v2,
    request_signature_v4,
    signing_key_v4,
    string_to_sign,
)
from rowtide.core.values.errors import StoreError
from rowtide.stream.http.answer import AnswerWriter
from rowtide.stream.http.head_form import HeadForm
from rowtide.stream.http.learned_heads import KnownSender, LearnedHeads
from rowtide.stream.http.limits import HttpLimits
from tests.core.native.inputs import Inputs
from tests.core.native.ways import KERNELS, python

__all__ = ["EDGE_AGREEMENTS"]

NOW_S = datetime(2028, 2, 29, 23, 59, 58, tzinfo=UTC).timestamp()
LIMITS = HttpLimits(head_bytes_max=900, body_bytes_max=4000, headers_max=20)
EDGES = (0, 1, 3, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 300)
KEYS = (b"", b"key", b"k" * 63, b"k" * 64, b"k" * 65, b"\x80\xff\0" * 40)
DATES = (
    *(b"2028-02-29T23:59:58.123Z",) * 12,
    b"2028-02-29T23:59:58Z",
    b"2028-02-29T23:45:00.000000001Z",
    b"2028-03-01T00:14:58Z",
    b"2028-03-01T00:14:59Z",
    b"2028-02-29T23:44:57Z",
    b"2028-02-30T23:59:58Z",
    b"2028-02-29T24:00:00Z",
    b"2028-02-29T23:59:60Z",
    b"0000-02-29T23:59:58Z",
    b"2028-02-29T23:59:58.Z",
    b"2028-02-29T23:59:58.1234567890Z",
    b"2028-02-29T23:59:58+00:00",
    b"2028-02-29 23:59:58Z",
    b"2028-02-29T23:59:58Zz",
    b"",
)
EXTRAS = (
    (b"User-Agent", b"sdk/1.0"),
    (b"Accept-Encoding", b"gzip"),
    (b"x-ots-sdk-traceid", b"1234-5678"),
    (b"X-Ots-Odd", b"a  b\xff"),
    (b"x-ots-signature-of-ours", b"1"),
    (b"x-ots-empty", b""),
)
REQUEST_ID = b"ba6b242d-5e12-8878-a502-000000000001"
PATHS = (b"/GetRow", b"/PutRow", b"/X")
NO_PATHS = (b"/", b"/Get1", b"GetRow", b"/GetRow?a=b", b"//X")


class Client(NamedTuple):
    """A client that writes its headers in one way."""

    names: tuple[bytes, ...]
    values: dict[bytes, bytes]
    wide: bool
    secret: bytes
    separator: bytes

    def message(self, path: bytes, body: bytes, **changed: bytes) -> bytes:
        """Return a signed request; ``changed`` headers are signed, too, except the signature."""
        headers = {name.lower(): self.values.get(name, b"") for name in self.names}
        headers |= {b"x-ots-contentmd5": content_md5(body), b"content-length": b"%d" % len(body)}
        headers |= {name.replace("_", "-").encode(): value for name, value in changed.items()}
        given = headers.get(b"x-ots-signature")
        text = string_to_sign(path, headers)
        headers[b"x-ots-signature"] = given or request_signature_v2(self.secret, text)
        if self.wide:
            key = signing_key_v4(self.secret, b"20280229", b"cn")
            headers[b"x-ots-signaturev4"] = request_signature_v4(key, text)
        lines = [name + self.separator + headers[name.lower()] for name in self.names]
        return b"\r\n".join((b"POST " + path + b" HTTP/1.1", *lines, b"", body))


def _client(inputs: Inputs) -> Client:
    chance = inputs.chance
    values = {
        b"Host": b"127.0.0.1:8080",
        b"x-ots-apiversion": b"2015-12-31",
        b"x-ots-accesskeyid": b"testid",
        b"x-ots-instancename": b"Inst",
        b"x-ots-date": DATES[0],
    }
    wide, separator = chance.randrange(3) == 0, chance.choice((b": ", b":"))
    if wide:
        values |= {b"x-ots-signdate": b"20280229", b"x-ots-signregion": b"cn"}
    extras = EXTRAS if separator == b":" else EXTRAS[:-1]
    values |= dict(chance.sample(extras, chance.randrange(4)))
    names = [*values, b"x-ots-contentmd5", b"Content-Length"]
    names.append(b"X-Ots-Signaturev4" if wide else b"x-ots-signature")
    if chance.randrange(2):
        chance.shuffle(names)
    return Client((*names,), values, wide, chance.choice((b"secret", b"s" * 70)), separator)


def _learn(client: Client, authenticator: Authenticator) -> tuple[LearnedHeads, KnownSender]:
    """Return what a connection has learned of a client's first requests."""
    first = client.message(b"/PutRow", b"first")
    learned = LearnedHeads(LIMITS, authenticator, lambda: NOW_S)
    learned.learn(first)
    assert learned.form is not None
    headers = learned.form.read_headers(first)
    learned.learn_sender(first, authenticator.check_head(b"/PutRow", headers, now_s=NOW_S))
    assert learned.sender is not None, first
    return learned, learned.sender


def requests_of_a_sender(inputs: Inputs) -> bool:
    """Compare requests of one client: all that the kernel accepts, Python accepts as well."""
    client = _client(inputs)
    keys = {"testid": Credential("testid", client.secret.decode())}
    authenticator = Authenticator(keys.get, {"inst"}.__contains__)
    learned, sender = _learn(client, authenticator)
    message = inputs.maybe_damage(_another(inputs, client))
    found = learned.read(sender, message)
    expected = python(lambda: _read(sender.heads, authenticator, message))
    assert found is None or found == expected
    head, text, states = (inputs.maybe_damage(part) for part in sender.signed)
    KERNELS.read_signed(message, head, text, states, int(NOW_S), 900, 4000)
    return found is not None


def _another(inputs: Inputs, client: Client) -> bytes:
    """Return another request of a client; some are odd, but signed rightly."""
    chance = inputs.chance
    body = _text(inputs, chance.choice((*EDGES, 4000)))
    path = chance.choice(PATHS if chance.randrange(8) else NO_PATHS)
    odd = chance.randrange(24)
    changed: dict[str, bytes] = {"x_ots_date": chance.choice(DATES)}
    if odd == 0:
        changed["x_ots_contentmd5"] = content_md5(b"other")
    elif odd == 1:
        changed["content_length"] = chance.choice((b"%d" % (len(body) + 1), b"0005", b"", b"+5"))
    elif odd == 2:
        changed["x_ots_instancename"] = b"other"
    elif odd == 3 and not client.wide:
        changed["x_ots_signature"] = request_signature_v2(b"other", path)
    elif odd == 4:
        changed["host"] = chance.choice((b" a", b"a ", b"a\tb", b"\x7f", b"a\r\nb: c", b"h" * 900))
    elif odd == 5:
        body += bytes(4001 - len(body))
    return client.message(path, body, **changed)


def _read(
    heads: HeadForm, authenticator: Authenticator, message: bytes
) -> tuple[bytes, bytes, bytes] | None:
    """Return path, head and body of a request that Python accepts whole."""
    found = heads.pattern.match(message)
    if found is None or found.end() > LIMITS.head_bytes_max:
        return None
    headers, body = heads.read_headers(message), message[found.end() :]
    if len(body) != int(headers[b"content-length"]) or len(body) > LIMITS.body_bytes_max:
        return None
    try:
        authenticator.check_head(found[1], headers, now_s=NOW_S)
        authenticator.check_body(headers, body, body_bytes_max=LIMITS.body_bytes_max)
    except StoreError:
        return None
    return found[1], message[: found.end()], body


def _text(inputs: Inputs, size: int) -> bytes:
    """Return bytes of which few are by chance: each would make Hypothesis slower."""
    period = inputs.chance.randbytes(7)
    return (period * (size // 7 + 1))[:size]


def digests(inputs: Inputs) -> bool:
    """Compare MD5 and both kinds of HMAC with those of Python's library."""
    chance = inputs.chance
    size = chance.choice((*EDGES, chance.randrange(700)))
    text, key = _text(inputs, size), chance.choice((*KEYS, chance.randbytes(20)))
    sum_ = hashlib.md5(text, usedforsecurity=False).digest()
    assert KERNELS.content_md5(text) == b64encode(sum_)
    for wide, name in ((False, "sha1"), (True, "sha256")):
        states = KERNELS.hmac_states(key, wide)
        assert states is not None
        expected = b64encode(hmac.digest(key, text, name))
        assert KERNELS.hmac_text(states, text) == expected
    return True


def answers(inputs: Inputs) -> bool:
    """Compare whole answers."""
    chance = inputs.chance
    sizes = (*EDGES, 562) if chance.randrange(50) else (4096, 65535, 65536, 65537)
    body = _text(inputs, chance.choice(sizes))
    key = (chance.choice(("testid", "schlüssel", "k" * 600)), chance.choice(KEYS))
    status, last = chance.choice((200, 403, 503)), chance.randrange(10) == 0
    request_id = chance.choice((REQUEST_ID, REQUEST_ID, b"\r\n", b"i" * 600))
    path = chance.choice((*PATHS, *NO_PATHS, b"", b"/\r\n", b"/" * 513))
    signed = key if chance.randrange(10) else None

    def write() -> list[bytes]:
        writer = AnswerWriter(lambda: NOW_S)
        return writer.answer(status, body, request_id=request_id, path=path, key=signed, last=last)

    expected = python(write)
    assert write() == expected
    if signed is None or last:
        return False
    date, states = DATES[0], KERNELS.hmac_states(key[1], False)
    assert states is not None
    written = KERNELS.write_answer(b"HTTP", body, date, request_id, path, b"signer", states)
    return written is not None


EDGE_AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {
    "content_md5, hmac_states, hmac_text": digests,
    "read_signed": requests_of_a_sender,
    "write_answer": answers,
}
