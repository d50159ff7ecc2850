"""The form of a client's signed requests, as a kernel reads them.

Requests of one client with one key mostly differ in path, date, checksum, length, signature
and a few other values. A form has what stays the same as bytes, and a slot for each value that
may differ. It is learned from a request that was authenticated. The kernel ``read_signed`` then
compares the next request with the form. It accepts only a request that
``Authenticator.check_head`` and ``check_body`` accept; any other is left to them.

The form is two lists of steps, each a number, a length of two bytes, and bytes that stand as
they are. In ``head`` the number is the kind of the slot behind the bytes. In ``text``, which the
signature covers, it is the slot whose value follows.

The headers that name the sender are part of the bytes that stay: key, instance, and the key's day
and region. So a form is valid for one identity. The caller checks before each use that the
identity still has its rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rowtide.core.protocol import signature

__all__ = ["SignedForm", "make_signed_form"]

_END, _PATH, _VALUE, _DATE, _MD5, _SIGNATURE, _LENGTH = range(7)
"""Kinds of slots; core/native/http.c has the same numbers."""

_PATH_NAME: Final = b""
"""In place of a header's name."""

_NO_SLOT: Final = 255
_SLOTS_MAX: Final = 64
_HEAD_BYTES_MAX: Final = 16 * 1024
"""Below what two bytes of length can have; heads of real clients have less than one kilobyte."""

_FIXED: Final = frozenset(
    (
        *(b"x-ots-apiversion", b"x-ots-accesskeyid", b"x-ots-instancename"),
        *(b"x-ots-signdate", b"x-ots-signregion"),
    )
)
"""Headers whose values belong to the form."""

_KINDS: Final = {
    b"x-ots-date": _DATE,
    b"x-ots-contentmd5": _MD5,
    b"content-length": _LENGTH,
}

_COMPRESSION: Final = b"compress-"
"""Part of the names of headers that say how bodies are compressed: such requests have no form."""


class SignedForm(NamedTuple):
    """What a kernel needs to read a request; ``states`` are as secret as the key."""

    head: bytes
    text: bytes
    states: bytes


def make_signed_form(
    message: bytes, names: Sequence[bytes], spans: Sequence[tuple[int, int]], key: bytes
) -> SignedForm | None:
    """Return the form of an authenticated request; None: it has none, or there is no kernel.

    ``names`` are the headers' names in lower case, each once. ``spans`` are where in ``message``
    its head is, then the path, then the headers' values. ``key`` is what signed the request.
    """
    (_, head_end), (path_at, at), *places = spans
    values = {name: message[slice(*place)] for name, place in zip(names, places, strict=True)}
    wide = bool(values.get(b"x-ots-signaturev4"))
    states = signature.hmac_states(key, wide=wide)
    unusual = any(_COMPRESSION in name for name in names) or head_end > _HEAD_BYTES_MAX
    if not states or unusual or len(names) >= _SLOTS_MAX:
        return None
    kinds = {**_KINDS, (b"x-ots-signaturev4" if wide else b"x-ots-signature"): _SIGNATURE}
    steps, slots = [_step(_PATH, message[:path_at])], {_PATH_NAME: 0}
    for name, (begin, end) in zip(names, places, strict=True):
        if name in _FIXED:
            continue
        slots[name] = len(slots)
        steps.append(_step(kinds.get(name, _VALUE), message[at:begin]))
        at = end
    steps.append(_step(_END, message[at:head_end]))
    end_of_text = signature.V4_PRODUCT if wide else b""
    return SignedForm(
        b"".join(steps), _text_steps(values, slots) + _step(_NO_SLOT, end_of_text), states
    )


def _text_steps(values: Mapping[bytes, bytes], slots: Mapping[bytes, int]) -> bytes:
    """Return the steps of the text that the signature covers (``signature.string_to_sign``)."""
    steps, literal = [_step(slots[_PATH_NAME], b"")], b"\nPOST\n\n"
    for name in signature.find_signed_names(values):
        literal += name + b":"
        if name in slots:
            steps.append(_step(slots[name], literal))
            literal = b"\n"
        else:
            literal += values[name] + b"\n"
    return b"".join((*steps, _step(_NO_SLOT, literal)))


def _step(number: int, literal: bytes) -> bytes:
    return bytes((number,)) + len(literal).to_bytes(2, "little") + literal
