"""Signatures against the protocol's vectors, and against Python's own HMAC."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol.signature import (
    canonical_query,
    content_md5,
    request_signature_v2,
    request_signature_v4,
    response_signature,
    signing_key_v4,
    string_to_sign,
)

HEADERS = {
    b"x-ots-date": b"2026-01-02T03:04:05.678Z",
    b"host": b"127.0.0.1",
    b"x-ots-apiversion": b"2015-12-31",
    b"x-ots-accesskeyid": b"testid",
    b"x-ots-instancename": b"inst",
    b"x-ots-contentmd5": b"1B2M2Y8AsgTpgAmY7PhCfg==",
    b"x-ots-signature": b"/fHkcVY2RRBMOnUCU87Hem+o4Zc=",
}
TEXT = (
    b"/ListTable\nPOST\n\nx-ots-accesskeyid:testid\nx-ots-apiversion:2015-12-31\n"
    b"x-ots-contentmd5:1B2M2Y8AsgTpgAmY7PhCfg==\nx-ots-date:2026-01-02T03:04:05.678Z\n"
    b"x-ots-instancename:inst\n"
)
SIGNING_KEY = b"T+W/EGjCXQgDNdB4vKsCKnjD8ZyNRGE5m3zXo2uu2mo="


def test_the_signed_text_holds_every_ots_header_in_order_and_nothing_else() -> None:
    assert string_to_sign(b"/ListTable", HEADERS) == TEXT


def test_both_signature_headers_are_left_out_of_the_signed_text() -> None:
    headers = HEADERS | {b"x-ots-signaturev4": b"any"}
    assert string_to_sign(b"/ListTable", headers) == TEXT


def test_headers_are_sorted_by_name_and_not_by_line() -> None:
    # Sorted by line, "x-ots-a-b:" would come first: "-" is less than ":".
    headers = {b"x-ots-a-b": b"2", b"x-ots-a": b"1"}
    assert string_to_sign(b"/X", headers) == b"/X\nPOST\n\nx-ots-a:1\nx-ots-a-b:2\n"


def test_a_percent_sign_in_a_header_is_only_text() -> None:
    headers = {b"x-ots-%d%b": b"%s"}
    assert string_to_sign(b"/X", headers) == b"/X\nPOST\n\nx-ots-%d%b:%s\n"


def test_a_query_takes_part_sorted() -> None:
    assert canonical_query(b"b=2&a=%20") == b"a=%20&b=2"
    assert string_to_sign(b"/X", {}, b"b=2&a=1") == b"/X\nPOST\na=1&b=2\n"


def test_version_2_signs_as_the_protocols_vector() -> None:
    assert request_signature_v2(b"testsecret", TEXT) == b"/fHkcVY2RRBMOnUCU87Hem+o4Zc="


def test_version_4_derives_the_key_of_the_protocols_vector() -> None:
    assert signing_key_v4(b"testsecret", b"20260102", b"cn-hangzhou") == SIGNING_KEY


def test_version_4_signs_with_the_keys_text_and_a_salt() -> None:
    expected = base64.b64encode(hmac.digest(SIGNING_KEY, TEXT + b"ots", "sha256"))
    assert request_signature_v4(SIGNING_KEY, TEXT) == expected


def test_an_answer_is_signed_over_its_headers_then_the_path_without_a_last_newline() -> None:
    lines = [b"x-ots-contentmd5:M", b"x-ots-date:D"]
    text = b"x-ots-contentmd5:M\nx-ots-date:D\n/GetRow"
    expected = base64.b64encode(hmac.digest(b"testsecret", text, "sha1"))
    assert response_signature(b"testsecret", b"/GetRow", lines) == expected


def test_an_answer_is_signed_by_sha1_in_version_4_too() -> None:
    expected = base64.b64encode(hmac.digest(SIGNING_KEY, b"a:1\n/GetRow", "sha1"))
    assert response_signature(SIGNING_KEY, b"/GetRow", [b"a:1"]) == expected


def test_the_md5_of_no_body_is_the_protocols() -> None:
    assert content_md5(b"") == b"1B2M2Y8AsgTpgAmY7PhCfg=="


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 66, 128])
def test_keys_around_a_hash_block_sign_as_hmac_does(size: int) -> None:
    key = b"k" * size
    assert request_signature_v2(key, TEXT) == base64.b64encode(hmac.digest(key, TEXT, "sha1"))


@given(key=st.binary(max_size=200), text=st.binary(max_size=300))
def test_saved_hash_states_sign_as_hmac_does(key: bytes, text: bytes) -> None:
    # Keys longer than a hash block (64 bytes) are hashed first: both sides of it are drawn.
    assert request_signature_v2(key, text) == base64.b64encode(hmac.digest(key, text, "sha1"))
    salted = base64.b64encode(hmac.digest(key, text + b"ots", "sha256"))
    assert request_signature_v4(key, text) == salted


@given(body=st.binary(max_size=200))
def test_remembered_and_computed_md5_agree(body: bytes) -> None:
    assert content_md5(body) == base64.b64encode(hashlib.md5(body).digest())
    assert content_md5(body) == base64.b64encode(hashlib.md5(body).digest())
