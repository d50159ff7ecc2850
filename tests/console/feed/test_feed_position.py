"""Tokens: what they hold, and that no damage goes unnoticed."""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.console.feed.feed_position import (
    KIND_ROWS,
    TOKEN_CHARS_MAX,
    FeedPosition,
    ShardPosition,
    TokenTooLong,
    decode_token,
    encode_token,
    table_tag,
)
from rowtide.core.values.errors import Rejected

TAG = table_tag("Inst", "orders")
GOLDEN = "AQBld3X8gID5wMHEggOA4s-qBgIE9ANkAAN4LTEHAGGkh0c"
"""A token that some program keeps: later versions must read it."""
NAMES = st.one_of(
    st.integers(0, 10**9).map(lambda number: f"s{number}"),
    st.from_regex(r"[A-Za-z0-9-]{1,64}", fullmatch=True),
)
SHARDS = st.lists(
    st.builds(ShardPosition, NAMES, st.integers(0, 2**62), st.integers(0, 2**33)),
    max_size=20,
    unique_by=lambda shard: shard.shard,
)


def position(*shards: tuple[str, int, int]) -> FeedPosition:
    """Return a position of the table."""
    return FeedPosition(TAG, 1_700_000_000_000_000, tuple(ShardPosition(*one) for one in shards))


def decode(token: str) -> FeedPosition:
    """Return the position of a token of the table."""
    return decode_token(token, tag=TAG, enabled_at_us=1_700_000_000_000_000)


def test_the_bytes_of_a_token_stay_as_they_are() -> None:
    token = encode_token(position(("s3", 500, 1_700_000_100), ("x-1", 7, 1_700_000_000)))
    assert token == GOLDEN
    assert decode(GOLDEN).shards[0] == ShardPosition("s3", 500, 1_700_000_100)


@given(shards=SHARDS, rows_from=st.binary(max_size=200))
def test_a_token_comes_back_as_it_was(shards: list[ShardPosition], rows_from: bytes) -> None:
    whole = position()._replace(shards=tuple(shards))
    assert decode(encode_token(whole)) == whole
    rows = whole._replace(kind=KIND_ROWS, rows_from=rows_from)
    assert decode(encode_token(rows)) == rows


def test_a_token_cut_at_every_byte_is_refused() -> None:
    token = encode_token(position(("s3", 500, 1_700_000_100), ("s4", 7, 1_700_000_000)))
    for length in range(len(token)):
        with pytest.raises(Rejected, match="The position is damaged") as refused:
            decode(token[:length])
        assert refused.value.status == 400


@given(at=st.integers(0, 1000), letter=st.sampled_from("AZaz09-_=+/ é"))
def test_a_token_with_another_letter_is_refused(at: int, letter: str) -> None:
    token = encode_token(position(("s3", 500, 1_700_000_100)))
    at %= len(token)
    changed = token[:at] + letter + token[at + 1 :]
    if changed != token:
        with pytest.raises(Rejected):
            decode(changed)


@given(body=st.binary(max_size=60))
def test_bytes_with_a_right_checksum_never_break_the_reader(body: bytes) -> None:
    content = b"\x01" + body
    content += zlib.crc32(content).to_bytes(4, "big")
    token = base64.urlsafe_b64encode(content).rstrip(b"=").decode()
    with suppress(Rejected):
        found = decode(token)
        assert found.tag == TAG


def test_a_token_of_another_table_or_stream_says_so() -> None:
    token = encode_token(position(("s3", 500, 1_700_000_100)))
    with pytest.raises(Rejected, match="belongs to another table"):
        decode_token(token, tag=table_tag("inst", "other"), enabled_at_us=1_700_000_000_000_000)
    with pytest.raises(Rejected, match="another stream of this table"):
        decode_token(token, tag=TAG, enabled_at_us=1)
    assert table_tag("INST", "orders") == TAG


def test_hundreds_of_shards_fit_and_too_many_are_refused() -> None:
    few = [(f"s{number}", 10**6, 1_700_000_000 + number % 100) for number in range(350)]
    assert len(encode_token(position(*few))) <= TOKEN_CHARS_MAX
    many = [(f"s{number}", 10**6, 1_700_000_000) for number in range(1000)]
    with pytest.raises(TokenTooLong, match="1000 shards"):
        encode_token(position(*many))
