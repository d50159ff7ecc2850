"""Share tokens: their texts, their digests, and what the catalog keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.share_token import (
    DASHBOARD,
    FEED,
    SECRET_BYTES,
    ShareToken,
    share_token_content,
    share_token_of,
    token_digest,
    token_id_of,
    token_text,
)

SECRETS = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)
IDS = st.text("0123456789abcdef", min_size=18, max_size=18)


def token(digest: str, token_id: str = "0a") -> ShareToken:
    return ShareToken(token_id, digest, FEED, "demo", "orders", 7, "", 1)


@given(IDS, SECRETS)
def test_a_text_names_its_id_and_has_its_own_digest(token_id: str, secret: bytes) -> None:
    text = token_text(token_id, secret)
    assert token_id_of(text) == token_id
    assert token(token_digest(text)).matches(token_digest(text))
    assert not token(token_digest(text)).matches(token_digest(text + "x"))
    assert text.isascii()
    assert not set(text) & set(" /?&=%")


@given(IDS, SECRETS, SECRETS)
def test_texts_of_two_secrets_differ_in_their_digests(
    token_id: str, one: bytes, other: bytes
) -> None:
    digests = {token_digest(token_text(token_id, secret)) for secret in (one, other)}
    assert len(digests) == len({one, other})


@pytest.mark.parametrize(
    "text",
    [
        *("", "rts", "rts_", "rts__secret", "rts_0a", "rts_0a_", "rt_0a_x", "rts_ü_x"),
        *("rts_.._x", "rts_0a_" + "x" * 300),
    ],
)
def test_another_text_is_no_token(text: str) -> None:
    assert token_id_of(text) is None


@given(st.text())
def test_no_text_breaks_the_check(text: str) -> None:
    token_id = token_id_of(text)
    assert token_id is None or token_id in text


def test_a_document_is_read_back_and_ignores_what_a_later_version_added() -> None:
    kept = token("00" * 32)
    content = share_token_content(kept)
    assert share_token_of(content) == kept
    assert share_token_of({**content, "later": 1}) == kept


def test_a_token_of_before_dashboards_is_read_and_stored_as_it_was() -> None:
    content = share_token_content(token("00" * 32))
    assert "dashboard" not in content
    assert share_token_of(content).dashboard == ""
    shown = ShareToken("0b", "00" * 32, DASHBOARD, "demo", "orders", 7, "", 1, "sales")
    assert share_token_of(share_token_content(shown)) == shown


def test_a_digest_of_any_kind_of_text_is_compared() -> None:
    assert not token("00" * 32).matches("ü")
