"""What a connection has learned of its client's requests: the form of heads, and the sender.

The form lets a head be read by one match. Of a sender whose request was authenticated, a kernel
reads whole requests: it compares head, signature and body with what was learned (``SignedForm``).
It accepts a request or leaves it to the parser and the authenticator. Whether the sender still has
its rights is checked for each request, with the keys as they are known then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from rowtide.core import native
from rowtide.core.protocol.authentication import Authenticator, Credential, Identity
from rowtide.core.protocol.signed_form import SignedForm, make_signed_form
from rowtide.stream.http.head_form import HeadForm, learn_form
from rowtide.stream.http.limits import HttpLimits

__all__ = ["LESSONS_MAX", "MAX_STALENESS", "KnownHead", "KnownSender", "LearnedHeads"]

LESSONS_MAX = 8
"""How often a connection learns the form of its heads; then all others go to the parser."""

MAX_STALENESS = b"x-ots-max-staleness-ms"
"""How old the result of a read may be. Rowtide's own header, signed like every ``x-ots-`` header.
"""


class KnownSender(NamedTuple):
    """The sender of a connection's requests, and their form."""

    credential: Credential
    identity: Identity
    heads: HeadForm
    signed: SignedForm

    def is_granted(self, authenticator: Authenticator, path: bytes) -> bool:
        """True if the sender may still call an operation."""
        return authenticator.is_granted(self.credential, self.identity.instance, path)


class KnownHead(NamedTuple):
    """The head of a request that a kernel has accepted: date, signature and body are right."""

    sender: KnownSender
    head: bytes

    def read_headers(self) -> dict[bytes, bytes]:
        """Return the headers by name in lower case. Few requests need them."""
        return self.sender.heads.read_headers(self.head)


class LearnedHeads:
    """What one connection has learned. Without ``authenticator`` it learns no sender.

    ``clock`` gives Unix seconds.
    """

    __slots__ = ("_authenticator", "_clock", "_lessons", "_limits", "_unread", "form", "sender")

    def __init__(
        self,
        limits: HttpLimits,
        authenticator: Authenticator | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._authenticator = authenticator
        self._clock = clock
        self._lessons = LESSONS_MAX
        self._unread = 0  # Accepted requests that have the form, and that no kernel read.
        self.form: HeadForm | None = None
        self.sender: KnownSender | None = None

    def learn(self, message: bytes) -> None:
        """Learn the form of heads from a whole request that was accepted."""
        if self._lessons:
            self._lessons -= 1
            self.form = learn_form(message, self._limits.headers_max)

    def learn_sender(self, message: bytes, identity: Identity) -> None:
        """Learn the sender of an accepted request that has the form: the first, second, fourth, ...

        So a client whose requests are never alike costs little.
        """
        self._unread += 1
        authenticator, form = self._authenticator, self.form
        if authenticator is None or form is None or self._unread & (self._unread - 1):
            return
        self.sender = None
        found = form.pattern.match(message)
        credential = authenticator.credential(identity.access_key_id)
        if found is None or credential is None or MAX_STALENESS in form.names:
            return
        spans = [found.span(group) for group in range(len(form.names) + 2)]
        signed = make_signed_form(message, form.names, spans, identity.response_key)
        if signed is not None:
            self.sender = KnownSender(credential, identity, form, signed)

    def forget(self) -> None:
        """Forget all and learn no more: the connection ends."""
        self.form = self.sender = None
        self._lessons = 0

    def read(self, sender: KnownSender, message: bytes) -> tuple[bytes, bytes, bytes] | None:
        """Return path, head and body of a whole request of ``sender``; None: others must decide.

        Whether the sender may call the operation is not checked (``KnownSender.is_granted``).
        """
        limits = self._limits
        return native.kernels.read_signed(
            message,
            *sender.signed,
            int(self._clock()),
            limits.head_bytes_max,
            limits.body_bytes_max,
        )
