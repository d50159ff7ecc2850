"""Share tokens as the console knows them: checked by a worker, and confirmed while they are used.

A worker gets the digest of a token, never its text. A feed asks again and again whether its token
still holds; all feeds share one list, which is at most ``FRESH_S`` old. So a revoked token ends its
feeds soon after, and thousands of feeds cost one small request every other second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.console.workers.shared_calls import SharedCalls
from rowtide.core.cluster.share_token import FEED, token_digest, token_id_of
from rowtide.core.values.errors import Rejected

__all__ = ["FRESH_S", "ShareTokens", "SharedTable"]

FRESH_S = 2.0
"""How old the list may be. A revoked token must end its feeds within 5 s."""


@dataclass(frozen=True, slots=True)
class SharedTable:
    """What a token allows: to follow a table, or one partition ``key`` of it, as a text.

    A token with ``dashboard`` shows the dashboard of this name over the table, and nothing else.
    """

    token_id: str
    instance: str
    table: str
    key: str | None
    dashboard: str = ""


class ShareTokens:
    """Asks with the console's own key, which needs the admin right and may be read-only."""

    def __init__(
        self,
        calls: WorkerCalls,
        key: KeyPair,
        instance: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._key = key
        self._instance = instance
        self._now_s = now_s
        self._valid: frozenset[str] = frozenset()
        self._listed_s = float("-inf")
        self._listing = asyncio.Lock()
        self._checks = SharedCalls[SharedTable]()

    async def check(self, text: str, purpose: str = FEED) -> SharedTable:
        """Return what a token's text allows.

        Raises ``Rejected`` if it is no valid token for the purpose.
        """
        token_id = token_id_of(text)
        if token_id is None:
            raise Rejected("OTSAuthFailed", "This is no share token.")
        digest = token_digest(text)

        async def ask() -> SharedTable:
            asked = {"token_id": token_id, "digest": digest, "purpose": purpose}
            found = await self._calls.call(self._key, self._instance, "RowtideCheckToken", asked)
            return SharedTable(
                token_id,
                found["instance"],
                found["table"],
                found["key"],
                found.get("dashboard") or "",
            )

        return await self._checks.ask((token_id, digest, purpose), ask)

    async def confirm(self, shared: SharedTable) -> None:
        """Return if a token that was checked still holds. Raises ``Rejected`` if it was revoked.

        Raises ``Unavailable`` and ``OutcomeUnknown`` while no worker can tell.
        """
        called_s = self._now_s()
        if called_s - self._listed_s > FRESH_S:
            async with self._listing:
                if called_s - self._listed_s > FRESH_S:  # No other feed asked meanwhile.
                    await self._list()
        if shared.token_id not in self._valid:
            raise Rejected("OTSAuthFailed", "The share token was revoked, or its table deleted.")

    async def _list(self) -> None:
        asked_s = self._now_s()
        found = await self._calls.call(self._key, self._instance, "RowtideListTokens")
        tokens = found["tokens"]
        self._valid = frozenset(one["token_id"] for one in tokens if one["table_exists"])
        self._listed_s = asked_s
