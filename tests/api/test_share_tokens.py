"""Share tokens on a real server: made, checked, listed, revoked, and shown once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.core.cluster.share_token import DASHBOARD, FEED, token_digest, token_id_of
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from tests.api.conftest import MakeTable
from tests.support.servers import serving

pytestmark = pytest.mark.system


@pytest.fixture
def clean(client: ProtocolClient) -> Iterator[None]:
    """Revoke the tokens that a test leaves."""
    yield
    for token in client.call_json("RowtideListTokens", {})["tokens"]:
        client.call_json("RowtideRevokeToken", {"token_id": token["token_id"]})


def check_token(client: ProtocolClient, text: str, **fields: object) -> dict[str, Any]:
    """Return what the server says of a token's text; empty if it refuses it."""
    asked = {"token_id": token_id_of(text) or "", "digest": token_digest(text), "purpose": FEED}
    try:
        return client.call_json("RowtideCheckToken", asked | fields)
    except ServerError as error:
        if (error.code, error.status) != ("OTSAuthFailed", 403):
            raise
        return {}


@pytest.mark.usefixtures("clean")
def test_a_token_allows_its_table_until_it_is_revoked(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    made = client.call_json("RowtideCreateToken", {"table": table})
    text = made.pop("token")
    assert (made["table"], made["key"], made["purpose"]) == (table, None, FEED)
    assert check_token(client, text) == made
    assert client.call_json("RowtideListTokens", {})["tokens"] == [made]
    client.call_json("RowtideRevokeToken", {"token_id": made["token_id"]})
    assert check_token(client, text) == {}
    with pytest.raises(ServerError, match=f"Share token '{made['token_id']}' does not exist"):
        client.call_json("RowtideRevokeToken", {"token_id": made["token_id"]})


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [(STRING, "ann", "ann"), (INTEGER, "-7", "-7"), (BINARY, "0Aff", "0aff")],
)
def test_a_token_may_be_for_one_key(
    client: ProtocolClient, make_table: MakeTable, kind: int, text: str, shown: str
) -> None:
    table = make_table((KeyColumn("k", kind),))
    made = client.call_json("RowtideCreateToken", {"table": table, "key": text})
    assert check_token(client, made["token"])["key"] == shown


def test_a_key_of_another_type_or_a_table_that_is_absent_is_refused(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table((KeyColumn("k", INTEGER),))
    with pytest.raises(ServerError, match="'ann' is no value of key column 'k'"):
        client.call_json("RowtideCreateToken", {"table": table, "key": "ann"})
    with pytest.raises(ServerError, match="Requested table does not exist"):
        client.call_json("RowtideCreateToken", {"table": "absent"})
    with pytest.raises(ServerError, match="Requested table does not exist"):
        client.call_json("RowtideCreateToken", {"table": table, "instance": "absent"})
    assert client.call_json("RowtideListTokens", {})["tokens"] == []


@pytest.mark.usefixtures("clean")
def test_what_is_not_exactly_the_token_is_refused_with_one_text(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    text = client.call_json("RowtideCreateToken", {"table": make_table()})["token"]
    assert check_token(client, text)
    assert check_token(client, text[:-1]) == {}
    assert check_token(client, text + "A") == {}
    assert check_token(client, text, token_id="00" * 9) == {}
    assert check_token(client, text, purpose="write") == {}
    assert check_token(client, text, digest="") == {}
    with pytest.raises(ServerError, match="surrogates not allowed"):
        client.call_json("RowtideCheckToken", {"token_id": "\ud800", "digest": "\ud800"})
    with pytest.raises(ServerError, match="both texts"):
        client.call_json("RowtideCheckToken", {"token_id": 1, "digest": None})


@pytest.mark.usefixtures("clean")
def test_a_token_for_a_dashboard_has_this_purpose_alone(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    made = client.call_json("RowtideCreateToken", {"table": table, "dashboard": "sales"})
    text = made.pop("token")
    assert (made["dashboard"], made["purpose"]) == ("sales", DASHBOARD)
    assert check_token(client, text) == {}
    assert check_token(client, text, purpose=DASHBOARD) == made
    assert client.call_json("RowtideListTokens", {})["tokens"] == [made]
    feed = client.call_json("RowtideCreateToken", {"table": table})["token"]
    assert check_token(client, feed, purpose=DASHBOARD) == {}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dashboard": "sales", "key": "a"}, "for a key or for a dashboard"),
        ({"dashboard": 7}, "dashboard must be a name"),
        ({"dashboard": "x" * 256}, "at most 255"),
    ],
)
def test_a_wrong_dashboard_is_refused(
    client: ProtocolClient, make_table: MakeTable, fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(ServerError, match=reason):
        client.call_json("RowtideCreateToken", {"table": make_table(), **fields})


@pytest.mark.usefixtures("clean")
def test_a_token_ends_with_its_table_even_if_another_takes_the_name(
    client: ProtocolClient,
) -> None:
    key = (KeyColumn("k", INTEGER),)
    client.create_table("shared", key)
    text = client.call_json("RowtideCreateToken", {"table": "shared"})["token"]
    client.delete_table("shared")
    assert check_token(client, text) == {}
    client.create_table("shared", key)
    assert check_token(client, text) == {}
    [listed] = client.call_json("RowtideListTokens", {})["tokens"]
    assert not listed["table_exists"]
    client.delete_table("shared")


def test_a_token_outlives_its_server_and_its_text_is_nowhere(tmp_path: Path) -> None:
    with serving(tmp_path) as ready, ProtocolClient(**ready._asdict()) as client:
        client.create_table("orders", (KeyColumn("k", INTEGER),))
        text = client.call_json("RowtideCreateToken", {"table": "orders"})["token"]
    secret = text.split("_", 2)[2].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if secret in path.read_bytes()] == []
    with serving(tmp_path) as ready, ProtocolClient(**ready._asdict()) as client:
        assert check_token(client, text)["table"] == "orders"
