"""Calls that are answered by functions of a test, by operation, and noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any

from google.protobuf.message import Message

from rowtide.console.workers.calls import KeyPair, WorkerCalls

__all__ = ["KEY", "ScriptedCalls"]

KEY = KeyPair("rt1", "a secret")


class ScriptedCalls(WorkerCalls):
    """``answers`` has a function for each operation; it gets the request."""

    def __init__(self, **answers: Callable[[Any], Any]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    async def call(
        self,
        credentials: KeyPair,
        instance: str,
        operation: str,
        request: Message | Mapping[str, object] | None = None,
    ) -> Any:
        """Return what the test's function returns, or its coroutine."""
        assert credentials == KEY
        kept = dict(request) if isinstance(request, Mapping) else request
        self.asked.append((operation, kept))
        answer = self.answers[operation](kept)
        return await answer if isawaitable(answer) else answer
