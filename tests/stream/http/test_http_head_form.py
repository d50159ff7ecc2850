"""A head of a known form passes the parser by, and gives what the parser would give.

A reader that is fed views never uses a form, so it is the judge: whatever bytes follow a first
request, both must see the same requests, failures and open ends.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected
from rowtide.stream.http.head_form import learn_form
from rowtide.stream.http.learned_heads import LESSONS_MAX
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.request import BodyBudget, Request, RequestReader

LIMITS = HttpLimits(head_bytes_max=512, headers_max=8, body_bytes_max=64, bodies_bytes_max=100)
HEADS = ("Host: a", "Content-Length: 5", "x-ots-date: 2026-01-02", "X-Ots-Signature: a+/=")


def message(*lines: str, start: str = "POST /Echo HTTP/1.1", body: str = "hello") -> bytes:
    return ("\r\n".join((start, *(lines or HEADS), "", "")) + body).encode("latin-1")


FIRST = message()


def judge(request: Request) -> None:
    """Accept requests as an edge does: posts to one path, unless the signature is empty."""
    if request.method != b"POST" or request.path != b"/Echo":
        request.failure = Rejected("OTSParameterInvalid", "Unsupported operation.")
    elif not request.headers.get(b"x-ots-signature"):
        request.failure = Rejected("OTSAuthFailed", "Signature mismatch.")
    else:
        request.identity = Identity("id", "instance", b"key")


class Reading:
    """A reader that has taken the first request, and what else it makes of some pieces."""

    def __init__(self, first: bytes, *, views: bool) -> None:
        self.judged = 0
        self.budget = BodyBudget(LIMITS.bodies_bytes_max)
        self.reader = RequestReader(self._judge, LIMITS, self.budget)
        self._views = views
        self.feed(first)

    def _judge(self, request: Request) -> None:
        self.judged += 1
        judge(request)

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.reader.feed(memoryview(piece) if self._views else piece)

    def list_effects(self) -> list[object]:
        """Return everything that a connection may act upon."""
        reader = self.reader
        found: list[object] = [
            (
                *(request.method, request.path, request.query),
                *(list(request.headers.items()), request.body(), request.received, request.held),
                *(request.last, str(request.failure), request.identity is None),
            )
            for request in reader.complete
        ]
        return [
            *found,
            *(self.judged, reader.arriving is None, reader.stopped, reader.continue_due),
            self.budget.held,
        ]


def both(*pieces: bytes, first: bytes = FIRST) -> tuple[list[object], list[object]]:
    formed, parsed = (Reading(first, views=views) for views in (False, True))
    formed.feed(*pieces)
    parsed.feed(*pieces)
    return formed.list_effects(), parsed.list_effects()


ALIKE = {
    "the same again": message(),
    "other values": message("Host: b:1", "Content-Length: 2", HEADS[2], HEADS[3], body="hi"),
    "no blank behind a colon": message("Host:a", *HEADS[1:]),
    "an empty value": message("Host:", *HEADS[1:]),
    "blanks within a value": message("Host: a b  c", *HEADS[1:]),
    "bytes above ASCII": message("Host: \xff\x80", *HEADS[1:]),
    "no body": message(HEADS[0], "Content-Length: 0", *HEADS[2:], body=""),
    "a length with zeros before it": message(HEADS[0], "Content-Length: 0005", *HEADS[2:]),
    "a refused head": message(*HEADS[:3], "X-Ots-Signature:"),
    "another path": message(*HEADS, start="POST /Other HTTP/1.1"),
    "a body that the budget refuses": message(
        HEADS[0], "Content-Length: 60", *HEADS[2:], body="b" * 60
    ),
}
UNLIKE = {
    "names in another case": message("HOST: a", *HEADS[1:]),
    "another order": message(*reversed(HEADS)),
    "a header more": message(*HEADS, "Accept: a"),
    "a header less": message(*HEADS[1:]),
    "a header twice": message(*HEADS, "Host: b"),
    "more headers than allowed": message(*HEADS, *(f"h{n}: a" for n in range(8))),
    "a head that is too large": message("Host: " + "a" * 600, *HEADS[1:]),
    "a body that is too large": message(HEADS[0], "Content-Length: 65", *HEADS[2:], body="b" * 65),
    "another method": message(*HEADS, start="GET /Echo HTTP/1.1"),
    "an older version": message(*HEADS, start="POST /Echo HTTP/1.0"),
    "a query": message(*HEADS, start="POST /Echo?a=b HTTP/1.1"),
    "an escaped path": message(*HEADS, start="POST /%45cho HTTP/1.1"),
    "blanks around a value": message("Host:  a ", *HEADS[1:]),
    "a tab before a value": message("Host:\ta", *HEADS[1:]),
    "a value of blanks": message("Host:   ", *HEADS[1:]),
    "a folded value": message("Host: a\r\n b", *HEADS[1:]),
    "a bare line feed": message("Host: a\nb", *HEADS[1:]),
    "a bare carriage return": message("Host: a\rb", *HEADS[1:]),
    "a zero byte": message("Host: a\0b", *HEADS[1:]),
    "a negative length": message(HEADS[0], "Content-Length: -5", *HEADS[2:]),
    "a signed length": message(HEADS[0], "Content-Length: +5", *HEADS[2:]),
    "two lengths": message(HEADS[0], "Content-Length: 5, 5", *HEADS[2:]),
    "no length": message(HEADS[0], "Content-Length:", *HEADS[2:]),
    "a huge length": message(HEADS[0], "Content-Length: " + "9" * 30, *HEADS[2:]),
    "a length in other digits": message(HEADS[0], "Content-Length: \xb2", *HEADS[2:]),
    "close": message(*HEADS, "Connection: close"),
    "chunks": message(HEADS[0], "Transfer-Encoding: chunked", body="5\r\nhello\r\n0\r\n\r\n"),
    "both lengths": message(*HEADS, "Transfer-Encoding: chunked", body="0\r\n\r\n"),
    "an expectation": message(*HEADS, "Expect: 100-continue"),
    "an upgrade": message(*HEADS, "Connection: Upgrade", "Upgrade: h2c"),
    "a body that is cut": message()[:-1],
    "a head that is cut": message()[:40],
    "a body that is too long": message() + b"x",
    "two at once": message() + message(),
    "a line before it": b"\r\n" + message(),
    "nothing": b"",
}


@pytest.mark.parametrize("case", [*ALIKE, *UNLIKE])
@pytest.mark.parametrize("follows", [(), (message(),)], ids=["last", "then a plain one"])
def test_a_form_gives_what_the_parser_gives(case: str, follows: tuple[bytes, ...]) -> None:
    formed, parsed = both({**ALIKE, **UNLIKE}[case], *follows)
    assert formed == parsed


@pytest.mark.parametrize("case", ALIKE)
def test_a_like_head_passes_the_parser_by(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(FIRST, views=False)
    monkeypatch.setattr(RequestReader, "_parse", lambda *_: pytest.fail("the parser was asked"))
    reading.feed(ALIKE[case])
    assert len(reading.reader.complete) == 2


UNLEARNED = [
    *("close", "an upgrade", "chunks", "both lengths", "an expectation", "a header twice"),
    *("another method", "a folded value", "a refused head", "another path", "two at once"),
    *("a body that is cut", "a head that is cut", "a line before it"),
]


@pytest.mark.parametrize("case", UNLEARNED)
def test_no_form_is_learned_from_what_is_unusual(case: str) -> None:
    first = {**ALIKE, **UNLIKE}[case]
    formed, parsed = both(message(), message(), first=first)
    assert formed == parsed
    assert Reading(first, views=False).reader._learned.form is None


def test_a_form_is_learned_anew_some_times() -> None:
    reading = Reading(FIRST, views=False)
    forms = {id(reading.reader._learned.form)}
    for number in range(2 * LESSONS_MAX):
        reading.feed(message(*HEADS, f"Extra{number}: a"))
        forms.add(id(reading.reader._learned.form))
    assert len(forms) == LESSONS_MAX
    assert len(reading.reader.complete) == 2 * LESSONS_MAX + 1


def test_a_head_beyond_the_number_of_headers_has_no_form() -> None:
    assert learn_form(FIRST, headers_max=len(HEADS)) is not None
    assert learn_form(FIRST, headers_max=len(HEADS) - 1) is None


@given(
    at=st.integers(0, len(FIRST)),
    taken=st.integers(0, 12),
    put=st.one_of(
        st.binary(max_size=6),
        st.sampled_from([b"\r\n", b"\r\n\r\n", b": ", b" ", b"\t", b"Content-Length: 3\r\n"]),
    ),
    cut=st.integers(0, 2 * len(FIRST)),
)
@example(at=0, taken=0, put=b"", cut=0)
@example(at=len(FIRST), taken=0, put=FIRST[:30], cut=len(FIRST))
def test_any_change_of_a_request_gives_what_the_parser_gives(
    at: int, taken: int, put: bytes, cut: int
) -> None:
    changed = FIRST[:at] + put + FIRST[at + taken :] + FIRST
    formed, parsed = both(changed[: len(changed) - len(FIRST)], FIRST)
    assert formed == parsed
    formed, parsed = both(changed[:cut], changed[cut:])
    assert formed == parsed
