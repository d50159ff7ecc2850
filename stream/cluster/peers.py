"""The other workers: their addresses, and calls to all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.cluster.hop_client import HopClient, Unreached
from rowtide.stream.cluster.hop_frames import NOBODY

__all__ = ["Answers", "Peers", "silent"]

ANSWER_S = 3.0
"""A worker that has not answered by then is reported as silent."""

Answers = dict[str, bytes | StoreError]


class Peers:
    """The workers of a cluster except the one at ``address``. ``owners`` returns each slot's."""

    def __init__(
        self,
        hop: HopClient,
        owners: Callable[[], Mapping[int, str]],
        catalog: Catalog,
        *,
        address: str,
    ) -> None:
        self.address = address
        self._hop = hop
        self._owners = owners
        self._catalog = catalog

    def serving(self) -> set[str]:
        """Return the addresses of the workers that have slots."""
        return set(self._owners().values()) - {self.address}

    def list_addresses(self) -> set[str]:
        """Return the addresses of all workers on record, drained and dead ones too."""
        return (self.serving() | set(self._catalog.workers.values())) - {self.address}

    async def ask(
        self,
        operation: str,
        body: bytes,
        *,
        among: Collection[str] | None = None,
        answer_s: float = ANSWER_S,
    ) -> Answers:
        """Return each worker's answer or error; all are called at once."""
        addresses = sorted(self.list_addresses() if among is None else among)
        async with asyncio.TaskGroup() as tasks:
            asked = {
                at: tasks.create_task(self._ask(at, operation, body, answer_s), name=f"ask[{at}]")
                for at in addresses
            }
        return {at: task.result() for at, task in asked.items()}

    async def _ask(
        self, address: str, operation: str, body: bytes, answer_s: float
    ) -> bytes | StoreError:
        try:
            async with asyncio.timeout(answer_s):
                return await self._hop.call(address, NOBODY, operation, body)
        except TimeoutError:
            return Unavailable("no answer")
        except Unreached:
            return Unavailable("no connection")
        except StoreError as error:
            return error


def silent(answers: Answers) -> list[dict[str, str]]:
    """Return those that did not answer, as operators see them."""
    return [
        {"address": address, "error": str(answer) or "no answer"}
        for address, answer in answers.items()
        if isinstance(answer, StoreError)
    ]
