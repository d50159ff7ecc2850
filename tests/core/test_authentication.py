"""Who may in: each refusal with its code and text, and the order in which they are found."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol.authentication import (
    ABSENT_S_MAX,
    KNOWN_S_MAX,
    Authenticator,
    Credential,
    Identity,
    parse_date,
)
from rowtide.core.protocol.body_compression import compress
from rowtide.core.protocol.operations import OPERATIONS, OperationSpec, StateAccess
from rowtide.core.protocol.signature import (
    content_md5,
    request_signature_v2,
    request_signature_v4,
    signing_key_v4,
    string_to_sign,
)
from rowtide.core.values.errors import Rejected, Unavailable

DATE = b"2026-01-02T03:04:05.678Z"
NOW_S = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
PATH = b"/PutRow"
BODY = b"a body"
BYTES_MAX = 1000

KEYS = {
    key.access_key_id: key
    for key in (
        Credential("testid", "testsecret"),
        Credential("disabled", "testsecret", enabled=False),
        Credential("bound", "testsecret", instances=frozenset({"Inst"})),
        Credential("elsewhere", "testsecret", instances=frozenset({"other"})),
        Credential("reader", "testsecret", is_read_only=True),
    )
}
AUTHENTICATOR = Authenticator(KEYS.get, {"inst", "other"}.__contains__)

Change = Callable[[dict[bytes, bytes]], None]


def make_headers(body: bytes = BODY) -> dict[bytes, bytes]:
    return {
        b"x-ots-apiversion": b"2015-12-31",
        b"x-ots-accesskeyid": b"testid",
        b"x-ots-instancename": b"inst",
        b"x-ots-contentmd5": content_md5(body),
        b"x-ots-date": DATE,
    }


def sign(path: bytes = PATH, /, **values: str) -> dict[bytes, bytes]:
    """Return headers signed by version 2 after the given ones were set."""
    headers = make_headers()
    headers |= {b"x-ots-" + name.encode(): text.encode() for name, text in values.items()}
    text = string_to_sign(path, headers)
    headers[b"x-ots-signature"] = request_signature_v2(b"testsecret", text)
    return headers


def sign_headers_v4(region: bytes = b"cn-hangzhou") -> dict[bytes, bytes]:
    headers = make_headers() | {b"x-ots-signdate": b"20260102", b"x-ots-signregion": region}
    key = signing_key_v4(b"testsecret", b"20260102", region)
    headers[b"x-ots-signaturev4"] = request_signature_v4(key, string_to_sign(PATH, headers))
    return headers


def check(headers: dict[bytes, bytes], *, body: bytes = BODY, now_s: float = NOW_S) -> Identity:
    """Check a whole request as the server does: its head first, then its body."""
    identity = AUTHENTICATOR.check_head(PATH, headers, now_s=now_s)
    assert AUTHENTICATOR.check_body(headers, body, body_bytes_max=BYTES_MAX) == body
    return identity


def refusal(headers: dict[bytes, bytes], *, body: bytes = BODY, now_s: float = NOW_S) -> str:
    with pytest.raises(Rejected) as caught:
        check(headers, body=body, now_s=now_s)
    return f"{caught.value.status} {caught.value.code} {caught.value.message}"


def without(name: str) -> Change:
    return lambda headers: headers.__delitem__(name.encode())


def having(name: str, value: str) -> Change:
    return lambda headers: headers.__setitem__(name.encode(), value.encode())


def test_a_version_2_request_is_answered_with_the_secret() -> None:
    assert check(sign()) == Identity("testid", "inst", b"testsecret")


def test_a_version_4_request_is_answered_with_the_derived_key() -> None:
    key = b"T+W/EGjCXQgDNdB4vKsCKnjD8ZyNRGE5m3zXo2uu2mo="
    assert check(sign_headers_v4()) == Identity("testid", "inst", key)


def test_instance_names_compare_without_case() -> None:
    assert check(sign(instancename="INST")).instance == "inst"
    assert check(sign(instancename="iNST", accesskeyid="bound")).instance == "inst"


def test_the_go_tunnel_clients_version_is_accepted() -> None:
    assert check(sign(apiversion="2018-04-01"))


def test_headers_of_no_meaning_here_are_part_of_the_signed_text() -> None:
    headers = sign(sourceip="10.0.0.1")
    assert check(headers)
    headers[b"x-ots-sourceip"] = b"10.0.0.2"
    assert refusal(headers) == "403 OTSAuthFailed Signature mismatch."


MISSING = [
    "x-ots-apiversion",
    "x-ots-accesskeyid",
    "x-ots-instancename",
    "x-ots-contentmd5",
    "x-ots-date",
    "x-ots-signature",
]


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "absent"])
def test_a_missing_header_is_named(name: str, *, empty: bool) -> None:
    headers = sign()
    (having(name, "") if empty else without(name))(headers)
    assert refusal(headers) == f"400 OTSParameterInvalid Missing header: {name}."


@pytest.mark.parametrize("name", ["x-ots-signdate", "x-ots-signregion"])
def test_version_4_needs_its_own_headers(name: str) -> None:
    headers = sign_headers_v4()
    without(name)(headers)
    assert refusal(headers) == f"400 OTSParameterInvalid Missing header: {name}."


REFUSALS: list[tuple[str, dict[str, str], str]] = [
    (
        "an unknown API version",
        {"apiversion": "2014-08-08"},
        "400 OTSParameterInvalid Invalid api version: 2014-08-08.",
    ),
    (
        "a date that is none",
        {"date": "yesterday"},
        "400 OTSParameterInvalid Invalid date format: yesterday.",
    ),
    (
        "an unknown key",
        {"accesskeyid": "nobody"},
        "403 OTSAuthFailed The AccessKeyID does not exist.",
    ),
    (
        "a disabled key",
        {"accesskeyid": "disabled"},
        "403 OTSAuthFailed The AccessKeyID is disabled.",
    ),
    (
        "an unknown instance",
        {"instancename": "nowhere"},
        "403 OTSAuthFailed The instance is not found.",
    ),
    (
        "a key of another instance",
        {"accesskeyid": "elsewhere"},
        "403 OTSAuthFailed The user has no privilege to access the instance.",
    ),
]


@pytest.mark.parametrize(("case", "values", "expected"), REFUSALS, ids=[r[0] for r in REFUSALS])
def test_refusals_have_the_services_texts(case: str, values: dict[str, str], expected: str) -> None:
    assert refusal(sign(**values)) == expected


@pytest.mark.parametrize("change", ["x-ots-signature", "x-ots-signaturev4"])
def test_a_wrong_signature_is_refused(change: str) -> None:
    headers = sign() if change == "x-ots-signature" else sign_headers_v4()
    having(change, "bm90IHRoZSBzaWduYXR1cmU=")(headers)
    assert refusal(headers) == "403 OTSAuthFailed Signature mismatch."


def test_the_path_is_signed() -> None:
    headers = sign()
    with pytest.raises(Rejected, match=r"Signature mismatch\."):
        AUTHENTICATOR.check_head(b"/DeleteRow", headers, now_s=NOW_S)


def test_another_body_is_refused() -> None:
    assert refusal(sign(), body=b"another body") == (
        "403 OTSAuthFailed Mismatch between MD5 value of request body "
        "and x-ots-contentmd5 in header."
    )


@pytest.mark.parametrize("off_s", [-900, 900])
def test_fifteen_minutes_of_skew_are_allowed(off_s: int) -> None:
    assert check(sign(), now_s=NOW_S + off_s)


@pytest.mark.parametrize("off_s", [-901, 901])
def test_a_second_more_is_not(off_s: int) -> None:
    assert refusal(sign(), now_s=NOW_S + off_s) == (
        "403 OTSAuthFailed Mismatch between system time and x-ots-date: 2026-01-02T03:04:05.678Z."
    )


def test_faults_are_found_in_the_documented_order() -> None:
    """Each fault hides all those after it: repair them one by one."""
    headers = sign()
    late_s = NOW_S + 1000
    for name, value in [
        ("x-ots-accesskeyid", "nobody"),
        ("x-ots-instancename", "nowhere"),
        ("x-ots-date", "now"),
    ]:
        having(name, value)(headers)
    without("x-ots-contentmd5")(headers)
    found = []
    for repair in [
        having("x-ots-contentmd5", "wrong"),
        having("x-ots-date", DATE.decode()),
        having("x-ots-accesskeyid", "testid"),
        having("x-ots-instancename", "inst"),
    ]:
        found.append(refusal(headers, now_s=late_s).split(" ", 2)[2])
        repair(headers)
    found.append(refusal(headers, now_s=late_s).split(" ", 2)[2])
    found.append(refusal(headers).split(" ", 2)[2])
    assert found == [
        "Missing header: x-ots-contentmd5.",
        "Invalid date format: now.",
        "The AccessKeyID does not exist.",
        "The instance is not found.",
        "Mismatch between system time and x-ots-date: 2026-01-02T03:04:05.678Z.",
        "Signature mismatch.",
    ]
    assert refusal(sign(contentmd5="wrong")).startswith("403 OTSAuthFailed Mismatch between MD5")


@pytest.mark.parametrize(
    "date",
    [
        b"2026-01-02T03:04:05Z",
        b"2026-01-02T03:04:05.6Z",
        b"2026-01-02T03:04:05.678Z",
        b"2026-01-02T03:04:05.112112Z",  # Go: month, day and hour again.
        b"2026-01-02T03:04:05.123456789Z",
    ],
)
def test_dates_of_every_sdk_are_read_to_the_second(date: bytes) -> None:
    assert parse_date(date) == int(NOW_S)


@pytest.mark.parametrize(
    "date",
    [
        b"",
        b"Z",
        b"2026-01-02",
        b"2026-01-02T03:04:05",
        b"2026-01-02T03:04:05.Z",
        b"2026-01-02T03:04:05.1234567890Z",
        b"2026-01-02T03:04:05.12a4Z",
        b"2026-01-02T03:04:05.678",
        b"2026-01-02T03:04:05.678ZZ",
        b"2026-01-02T03:04:05,678Z",
        b"2026-01-02T03:04:05+00:00",
        b"2026-13-02T03:04:05Z",
        b"2026-02-30T03:04:05Z",
        b"2026-01-02T24:04:05Z",
        b"2026-01-02 03:04:05Z",
        b"0000-01-02T03:04:05Z",
        b"2026-W01-1T03:04:05Z",
        b"\xff026-01-02T03:04:05Z",
        "\N{FULLWIDTH DIGIT TWO}026-01-02T03:04:05Z".encode(),
    ],
)
def test_other_dates_are_refused(date: bytes) -> None:
    with pytest.raises(Rejected, match="Invalid date format"):
        parse_date(date)


@given(date=st.binary(max_size=40))
def test_no_bytes_in_the_date_do_more_than_be_refused(date: bytes) -> None:
    with pytest.raises(Rejected, match="Invalid date format"):
        parse_date(date)


# ---- Compressed bodies ----


def make_deflated_headers(body: bytes, size: int | str) -> dict[bytes, bytes]:
    return make_headers(body) | {
        b"x-ots-request-compress-type": b"deflate",
        b"x-ots-request-compress-size": str(size).encode(),
    }


def content(headers: dict[bytes, bytes], body: bytes) -> bytes:
    return AUTHENTICATOR.check_body(headers, body, body_bytes_max=BYTES_MAX)


@pytest.mark.parametrize("original", [b"x" * BYTES_MAX, b"short", b""])
def test_a_compressed_body_is_inflated_after_its_md5_was_checked(original: bytes) -> None:
    body = zlib.compress(original)
    assert content(make_deflated_headers(body, len(original)), body) == original


BOMB = zlib.compress(b"\0" * 10_000_000)
COMPRESSION_FAULTS = [
    ("more than it declares", BOMB, "10", "400 The request body does not inflate to 10 bytes."),
    ("declares too much", BOMB, "10000000", "413 The size of POST data is too large."),
    (
        "less than declared",
        zlib.compress(b"a"),
        "2",
        "400 The request body does not inflate to 2 b",
    ),
    (
        "cut short",
        zlib.compress(b"a" * 99)[:-5],
        "99",
        "400 The request body does not inflate to 99",
    ),
    (
        "more after the end",
        zlib.compress(b"a") + b"b",
        "1",
        "400 The request body does not inflate",
    ),
    ("no zlib at all", b"plain text", "10", "400 The request body is not a zlib stream."),
    ("size is no number", zlib.compress(b"a"), "-1", "400 Invalid compress size: -1."),
    ("size is absurd", zlib.compress(b"a"), "9" * 5000, "400 Invalid compress size: 9999"),
    ("size is absent", zlib.compress(b"a"), "", "400 Missing header: x-ots-request-compress-size."),
]


@pytest.mark.parametrize(
    ("case", "body", "size", "expected"), COMPRESSION_FAULTS, ids=[c[0] for c in COMPRESSION_FAULTS]
)
def test_a_faulty_compressed_body_is_refused(
    case: str, body: bytes, size: str, expected: str
) -> None:
    with pytest.raises(Rejected) as caught:
        content(make_deflated_headers(body, size), body)
    assert f"{caught.value.status} {caught.value.message}".startswith(expected)


def test_a_bomb_is_not_inflated_beyond_what_it_declares() -> None:
    headers = make_deflated_headers(BOMB, 10)
    tracemalloc.start()
    try:
        with pytest.raises(Rejected):
            content(headers, BOMB)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_another_kind_of_compression_is_refused_by_name() -> None:
    headers = make_headers(b"a") | {b"x-ots-request-compress-type": b"br"}
    with pytest.raises(Rejected, match=r"Unsupported compress type: br\."):
        content(headers, b"a")


def test_what_we_compress_is_a_zlib_stream() -> None:
    assert zlib.decompress(compress(b"a" * 100)) == b"a" * 100


# ---- Keys for error answers ----


def test_an_error_is_signed_by_the_key_the_request_names() -> None:
    assert AUTHENTICATOR.answer_key({b"x-ots-accesskeyid": b"testid"}) == ("testid", b"testsecret")
    assert AUTHENTICATOR.answer_key({b"x-ots-accesskeyid": b"nobody"}) is None
    assert AUTHENTICATOR.answer_key({}) is None
    key = signing_key_v4(b"testsecret", b"20260102", b"cn-hangzhou")
    assert AUTHENTICATOR.answer_key(sign_headers_v4()) == ("testid", key)


STATUS = b"/RowtideStatus"


@pytest.mark.parametrize(
    ("age_s", "path", "changed", "refused"),
    [
        (KNOWN_S_MAX, PATH, {}, None),
        (KNOWN_S_MAX + 1, PATH, {}, Unavailable),
        (KNOWN_S_MAX + 1, STATUS, {}, None),
        (ABSENT_S_MAX, PATH, {"accesskeyid": "new"}, Rejected),
        (ABSENT_S_MAX + 1, PATH, {"accesskeyid": "new"}, Unavailable),
        (KNOWN_S_MAX + 1, STATUS, {"accesskeyid": "new"}, Unavailable),
        (ABSENT_S_MAX, PATH, {"instancename": "new"}, Rejected),
        (ABSENT_S_MAX + 1, PATH, {"instancename": "new"}, Unavailable),
    ],
)
def test_nobody_is_judged_by_what_was_known_too_long_ago(
    age_s: float, path: bytes, changed: dict[str, str], refused: type[Exception] | None
) -> None:
    """A key may have been revoked meanwhile, or made."""
    aged = Authenticator(AUTHENTICATOR.credential, AUTHENTICATOR.instance_exists, lambda: age_s)
    with pytest.raises(refused) if refused else nullcontext():
        aged.check_head(path, sign(path, **changed), now_s=NOW_S)


def operations(access: StateAccess) -> pytest.MarkDecorator:
    found = [spec for spec in OPERATIONS.values() if spec.access is access]
    return pytest.mark.parametrize("spec", found, ids=lambda spec: spec.name)


@operations(StateAccess.WRITE)
def test_a_read_only_key_may_not_call_what_changes_something(spec: OperationSpec) -> None:
    path = b"/" + spec.name.encode()
    with pytest.raises(Rejected) as caught:
        AUTHENTICATOR.check_head(path, sign(path, accesskeyid="reader"), now_s=NOW_S)
    assert (caught.value.status, caught.value.code, caught.value.message) == (
        403,
        "OTSNoPermissionAccess",
        f"Access key 'reader' is read-only: it cannot call {spec.name}. Use a key that may write.",
    )
    assert AUTHENTICATOR.check_head(path, sign(path), now_s=NOW_S)


@operations(StateAccess.READ)
def test_a_read_only_key_may_call_what_changes_nothing(spec: OperationSpec) -> None:
    path = b"/" + spec.name.encode()
    headers = sign(path, accesskeyid="reader")
    identity = AUTHENTICATOR.check_head(path, headers, now_s=NOW_S)
    assert identity.access_key_id == "reader"


def test_a_wrong_signature_does_not_tell_that_a_key_is_read_only() -> None:
    headers = sign(accesskeyid="reader") | {b"x-ots-signature": b"wrong"}
    assert refusal(headers) == "403 OTSAuthFailed Signature mismatch."
