"""Ids of transactions: what clients carry, and the keys that remember commits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.shard.transaction_id import (
    TransactionId,
    commit_bound,
    commit_key,
    commit_value,
    decode_commit_stamp,
    parse_id,
)
from rowtide.core.values.errors import Rejected

numbers = st.integers(0, 2**64 - 1)
ids = st.builds(TransactionId, st.integers(0, 10**9).map("s{}".format), numbers, numbers)


@given(ids)
def test_an_id_comes_back(transaction_id: TransactionId) -> None:
    assert parse_id(str(transaction_id)) == transaction_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not existed transaction id",
        "s1",
        "s1-",
        "s1-0123456789abcdef0123456789abcde",
        "s1-0123456789abcdef0123456789abcdeff",
        "s1-0123456789ABCDEF0123456789abcdef",
        "1-0123456789abcdef0123456789abcdef",
        "s1-0123456789abcdef0123456789abcdef\n",
        "s\N{ARABIC-INDIC DIGIT ONE}-0123456789abcdef0123456789abcdef",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="TransactionID is invalid") as refused:
        parse_id(text)
    assert refused.value.code == "OTSParameterInvalid"


@given(ids, ids)
def test_commits_stand_in_the_order_of_their_starts(one: TransactionId, two: TransactionId) -> None:
    in_order = (one.started_us, one.random) <= (two.started_us, two.random)
    assert (commit_key(one) <= commit_key(two)) == in_order
    assert (commit_key(one) < commit_bound(two.started_us)) == (one.started_us < two.started_us)


def test_the_bytes_are_those_of_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/guides/transactions.md").read_text("utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| `74")]
    key, value = line.strip("| `").split("` | `")
    found = parse_id("s12-000660cb1721f5420ca9a02720e2a952")
    assert commit_key(found).hex() == key
    assert commit_value(found.started_us - 2).hex() == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_commit_keeps_its_stamp(stamp: int) -> None:
    assert decode_commit_stamp(commit_value(stamp)) == stamp
