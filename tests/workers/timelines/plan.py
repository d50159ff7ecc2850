"""Who is in which conversation, and who sends which message: all of it follows from a seed."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Planned", "Sizes", "make_groups", "make_messages"]

MEMBERS_MIN = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a run is. Conversations of more than ``copies_max`` members share an inbox."""

    users: int
    conversations: int
    members_max: int
    copies_max: int
    messages: int
    senders: int
    kills: int
    changes: int
    """Splits, merges and moves of shards. A move copies rows: many are most of the work."""


class Planned(NamedTuple):
    """A message that is to be sent until an answer says that it is stored."""

    conversation: str
    sender: str
    message_id: str


def make_groups(sizes: Sizes, chance: random.Random) -> dict[str, list[str]]:
    """Return the members of each conversation. Each has a sender; most are small, some large."""
    users = [f"u{number}" for number in range(sizes.users)]
    groups: dict[str, list[str]] = {}
    for number in range(sizes.conversations):
        # The smallest and the largest size are always there.
        share = number / max(1, sizes.conversations - 1)
        count = round(MEMBERS_MIN * (sizes.members_max / MEMBERS_MIN) ** share)
        sender = users[number % sizes.senders]
        others = [user for user in users if user != sender]
        groups[f"c{number}"] = [sender, *chance.sample(others, count - 1)]
    return groups


def make_messages(
    sizes: Sizes, groups: dict[str, list[str]], chance: random.Random
) -> list[deque[Planned]]:
    """Return what each sender sends: a random message of its conversations after another."""
    shares: list[deque[Planned]] = []
    for number in range(sizes.senders):
        sender = f"u{number}"
        its = [name for name, members in groups.items() if sender in members]
        count = len(range(number, sizes.messages, sizes.senders))
        shares.append(
            deque(Planned(chance.choice(its), sender, f"{sender}-{n}") for n in range(count))
        )
    return shares
