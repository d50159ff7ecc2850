"""How the slots are divided among the workers of a group, as owners and as standbys.

Each slot has one owner, and as many standbys as configured, if there are enough other workers. A
worker keeps its slots as far as the balance allows: owners differ by at most one slot. A slot
without an owner goes to one of its standbys if that has room, because it has the rows.

The same holdings always give the same division. Members have arbitrary names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Holding", "divide"]


@dataclass(slots=True)
class Holding:
    """The slots that a member owns, and those of which it is a standby."""

    owned: set[int] = field(default_factory=set)
    standby: set[int] = field(default_factory=set)


def divide(now: Mapping[str, Holding], *, slots: int, standbys: int) -> dict[str, Holding]:
    """Return the new holdings; ``now`` has every present member."""
    then = {name: Holding() for name in sorted(now)}
    former: dict[int, str] = {}
    for name, holding in then.items():
        holding.owned = {s for s in now[name].owned if 0 <= s < slots and s not in former}
        former |= dict.fromkeys(holding.owned, name)
    _divide_owned(then, now, slots)
    _divide_standby(then, now, former, slots, min(standbys, len(then) - 1))
    return then


def _divide_owned(then: dict[str, Holding], now: Mapping[str, Holding], slots: int) -> None:
    """Balance the owners: no member above its quota; free slots go to members with room."""
    least, more = divmod(slots, len(then))
    by_most = sorted(then, key=lambda name: -len(then[name].owned))
    quota = {name: least + (place < more) for place, name in enumerate(by_most)}

    def room(slot: int, names: Iterable[str]) -> list[str]:
        """Return members with room for a slot: its standbys first, then those with fewest slots."""
        free = [name for name in names if len(then[name].owned) < quota[name]]
        return sorted(free, key=lambda n: (slot not in now[n].standby, len(then[n].owned), n))

    for name, holding in then.items():
        surplus = len(holding.owned) - quota[name]
        if surplus > 0:
            others = [other for other in then if other != name]
            warm = {s for s in holding.owned if any(s in now[n].standby for n in room(s, others))}
            given = sorted(holding.owned, key=lambda slot: (slot not in warm, slot))
            holding.owned -= set(given[:surplus])
    owned = set[int]().union(*(holding.owned for holding in then.values()))
    unowned = [slot for slot in range(slots) if slot not in owned]
    kept = set[int]().union(*(holding.standby for holding in now.values()))
    # Slots with a standby first: the others can go to any member.
    for slot in sorted(unowned, key=lambda slot: (slot not in kept, slot)):
        then[room(slot, then)[0]].owned.add(slot)


def _divide_standby(
    then: dict[str, Holding],
    now: Mapping[str, Holding],
    former: Mapping[int, str],
    slots: int,
    count: int,
) -> None:
    """Give every slot its standbys: keep present ones, then its former owner, then the emptiest."""
    for name, holding in then.items():
        holding.standby = {s for s in now[name].standby if 0 <= s < slots} - holding.owned
    for slot in range(slots):
        holders = [name for name, holding in then.items() if slot in holding.standby]
        surplus = max(0, len(holders) - count)
        for name in sorted(holders, key=lambda n: -len(then[n].standby))[:surplus]:
            then[name].standby.discard(slot)
        free = sorted(_free(then, slot), key=lambda n: (former.get(slot) != n, _load(then[n]), n))
        for name in free[: max(0, count - len(holders))]:
            then[name].standby.add(slot)
    while _level_standbys(then):
        pass


def _level_standbys(then: dict[str, Holding]) -> bool:
    """Move one standby to a worker that has two fewer. True if one was moved."""
    for name in sorted(then, key=lambda n: (-len(then[n].standby), n)):
        for slot in sorted(then[name].standby):
            least = min(_free(then, slot), key=lambda n: (_load(then[n]), n), default=name)
            if len(then[least].standby) + 1 < len(then[name].standby):
                then[name].standby.discard(slot)
                then[least].standby.add(slot)
                return True
    return False


def _free(then: Mapping[str, Holding], slot: int) -> list[str]:
    """Return the members that neither own a slot nor are its standby."""
    return [n for n, held in then.items() if slot not in held.owned and slot not in held.standby]


def _load(holding: Holding) -> tuple[int, int]:
    return len(holding.standby), len(holding.owned)
