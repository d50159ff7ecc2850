"""Answers that all viewers share: asked with the console's own key, and kept for some seconds.

A page that many people look at asks a worker no more often than a page that one person looks at.
Each operation has at most one call under way, so a slow one delays no other operation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["FRESH_S", "SharedAnswers"]

logger = logging.getLogger(__name__)

FRESH_S = 5.0
ANSWERS_MAX = 64
"""Answers that are kept; the oldest makes room."""


class _Kept(NamedTuple):
    asked_s: float
    answer: dict[str, Any]


class SharedAnswers:
    """The newest answer of each request. Operations are those with JSON bodies."""

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
        self._kept: dict[str, _Kept] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(
        self,
        operation: str,
        fields: Mapping[str, object] | None = None,
        *,
        fresh_s: float = FRESH_S,
    ) -> dict[str, Any]:
        """Return an answer that is at most ``fresh_s`` old.

        Raises ``Unavailable`` and ``OutcomeUnknown`` as calls do, and ``Unavailable`` in place of
        ``Rejected``: it is the console's own key that may not ask, and not the viewer's.
        """
        name = json.dumps([operation, fields or {}], sort_keys=True)
        called_s = self._now_s()
        async with self._asking[operation]:
            kept = self._kept.get(name)
            if kept is not None and called_s - kept.asked_s <= fresh_s:
                return kept.answer
            asked_s = self._now_s()
            try:
                answer: dict[str, Any] = await self._calls.call(
                    self._key, self._instance, operation, fields
                )
            except Rejected as error:
                logger.warning("the console's own key may not call %s: %s", operation, error)
                raise Unavailable(
                    f"The console's own key may not call {operation}: {error.message}",
                    "OTSServerUnavailable",
                ) from error
            self._kept.pop(name, None)
            while len(self._kept) >= ANSWERS_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = _Kept(asked_s, answer)
            return answer
