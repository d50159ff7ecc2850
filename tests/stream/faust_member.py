"""A worker as a process of its own, to be killed: joins a group and reports each change.

Called with bootstrap, group, instance, address, slots and session time-out. Writes one JSON
object per line to standard output: ``{"assigned": [...]}`` or ``{"revoked": [...]}``.
"""

from __future__ import annotations

import asyncio
import json
import sys

from rowtide.stream.worker.faust_membership import Membership, MembershipConfig


def report(word: str, slots: frozenset[int]) -> None:
    sys.stdout.write(json.dumps({word: sorted(slots)}) + "\n")
    sys.stdout.flush()


async def main() -> None:
    bootstrap, group, instance, address, slots, timeout_ms = sys.argv[1:]
    membership = Membership(
        MembershipConfig(
            bootstrap=bootstrap,
            group=group,
            instance=instance,
            address=address,
            slots=int(slots),
            session_timeout_ms=int(timeout_ms),
        ),
        on_assigned=lambda new: report("assigned", new),
        on_revoked=lambda gone: report("revoked", gone),
    )
    await membership.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
