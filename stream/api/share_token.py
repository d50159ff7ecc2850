"""Operations on share tokens. Bodies and answers are JSON; only keys with the admin right may call.

A process that serves a feed checks a token here. It sends the digest, never the token itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from rowtide.core.cluster.catalog import Catalog, Document, token_document
from rowtide.core.cluster.share_token import (
    DASHBOARD,
    FEED,
    SECRET_BYTES,
    ShareToken,
    token_digest,
    token_text,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected, invalid, no_table
from rowtide.stream.api.admin_request import json_answer, json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.partition_key import encode_partition_key, show_partition_key
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers

__all__ = ["ShareTokenOperations"]

DASHBOARD_CHARACTERS_MAX = 255


class ShareTokenOperations:
    """Handlers by operation."""

    def __init__(self, directory: Directory, placement: Placement) -> None:
        self._directory = directory
        self._placement = placement

    @answers("RowtideCreateToken")
    async def create_token(self, identity: Identity, body: bytes) -> bytes:
        """Create a token for a ``table``, optional ``instance`` and ``key`` (a partition key).

        With ``dashboard`` it is for the dashboard of this name over the table. The worker does not
        know dashboards: the console checks name and table. Its text is shown only here.
        """
        fields = json_fields(body, {"instance", "table", "key", "dashboard"})
        instance = str(fields.get("instance", identity.instance)).lower()
        name, key_text = str(fields.get("table", "")), fields.get("key")
        dashboard = fields.get("dashboard", "")
        if not isinstance(dashboard, str) or len(dashboard) > DASHBOARD_CHARACTERS_MAX:
            raise invalid(f"dashboard must be a name of at most {DASHBOARD_CHARACTERS_MAX} signs.")
        if dashboard and key_text is not None:
            raise invalid("A token is for a key or for a dashboard, not for both.")
        purpose = DASHBOARD if dashboard else FEED
        token_id = secrets.token_hex(9)
        text = token_text(token_id, secrets.token_bytes(SECRET_BYTES))
        made: list[ShareToken] = []

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            table = self._directory.table(instance, name)
            if table.main:
                raise no_table()  # An index has no stream of its own.
            key = b"" if key_text is None else encode_partition_key(table, str(key_text))
            digest = token_digest(text)
            place = instance, name, table.table_id
            made[:] = [ShareToken(token_id, digest, purpose, *place, key.hex(), stamp, dashboard)]
            return [token_document(token_id, made[0])]

        await self._placement.change(decide)
        return json_answer({**self._shown(made[0]), "token": text})

    @answers("RowtideListTokens")
    def list_tokens(self, identity: Identity, _body: bytes) -> bytes:
        """Return the tokens without their texts and digests."""
        tokens = self._directory.catalog.tokens.values()
        return json_answer({"tokens": [self._shown(token) for token in tokens]})

    @answers("RowtideRevokeToken")
    async def revoke_token(self, identity: Identity, body: bytes) -> bytes:
        """Remove a token for good: ``token_id``."""
        token_id = str(json_fields(body, {"token_id"}).get("token_id", ""))

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            if token_id not in catalog.tokens:
                raise Rejected("OTSObjectNotExist", f"Share token '{token_id}' does not exist.")
            return [token_document(token_id, None)]

        await self._placement.change(decide)
        return json_answer({"token_id": token_id})

    @answers("RowtideCheckToken")
    def check_token(self, identity: Identity, body: bytes) -> bytes:
        """Return what a token allows, by its ``token_id``, ``digest`` and ``purpose``.

        Raises OTSAuthFailed, with one text for each way in which a token is not good.
        """
        fields = json_fields(body, {"token_id", "digest", "purpose"})
        token_id, digest, purpose = (fields.get(n) for n in ("token_id", "digest", "purpose"))
        if not isinstance(digest, str) or not isinstance(token_id, str):
            raise invalid("A token_id and a digest are needed, both texts.")
        token = self._directory.catalog.tokens.get(token_id)
        # The digest is compared for an unknown id too, so that the time tells nothing.
        is_right = (token or _NO_TOKEN).matches(digest)
        if token is None or not is_right or token.purpose != purpose or not self._has_table(token):
            raise Rejected(
                "OTSAuthFailed",
                f"The share token is unknown or revoked, or is not for the purpose '{purpose}'.",
            )
        return json_answer(self._shown(token))

    def _has_table(self, token: ShareToken) -> bool:
        """True unless the token's table was deleted."""
        table = self._directory.catalog.tables_by_id.get(token.table_id)
        return table is not None and table.name == token.table

    def _shown(self, token: ShareToken) -> dict[str, Any]:
        key = show_partition_key(bytes.fromhex(token.key))
        return {
            "token_id": token.token_id,
            "purpose": token.purpose,
            "instance": token.instance,
            "table": token.table,
            "table_exists": self._has_table(token),
            "key": None if key is None else str(key),
            "dashboard": token.dashboard or None,
            "created_us": token.created_us,
        }


_NO_TOKEN = ShareToken("", "0" * 64, "", "", "", -1, "", 0)
