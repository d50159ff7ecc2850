"""Is there an order of the operations on a row that explains every answer?

Wing and Gong's search in Lowe's form: an order is built from the front, always by an operation
that began before any other that is left has ended; a (set of operations done, row) that was met
before is not entered again. Each row is checked alone: linearizability is local, so rows that are
linearizable make a linearizable store.

Operations of unknown outcome have no end, may come anywhere after their beginning, or never: they
are tried where nothing else fits. What keeps the search short does not change its verdict:

- An operation that reads, may come next and fits the row comes next at once: whatever order exists,
  one exists that has it here.
- A mark that nobody ever saw or asked for is none: rows that differ in nothing else are equal.
- Of unknown operations that are equal then, the one sent first comes first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from tests.histories.operation import ILLEGAL, Operation, Outcome, Row, step

__all__ = ["Undecided", "by_key", "find_unexplained", "linearizable"]

STEPS_MAX = 2_000_000


class Undecided(Exception):
    """The search was given up: neither verdict was reached."""


@dataclass(slots=True)
class Node:
    """A beginning or an end in a doubly linked list of what is left, in order of time."""

    index: int
    end: Node | None = None
    before: Node | None = None
    after: Node | None = None

    def lift(self) -> None:
        """Take a beginning and its end out of the list."""
        for node in (self, self.end):
            assert node is not None
            assert node.before is not None, "the head stays"
            node.before.after = node.after
            if node.after is not None:
                node.after.before = node.before

    def put_back(self) -> None:
        """Undo the latest ``lift``."""
        for node in (self.end, self):
            assert node is not None
            assert node.before is not None, "the head stays"
            node.before.after = node
            if node.after is not None:
                node.after.before = node


@dataclass(slots=True)
class Choice:
    """An operation that was put next, and what stood before it."""

    row: Row
    done: int
    index: int
    node: Node | None
    forced: bool


def by_key(history: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Return what matters of a history, by row.

    Unknown reads and refused attempts tell nothing; reads that may be stale are checked elsewhere.
    """
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        has_no_answer = operation.outcome is Outcome.UNKNOWN and operation.reads
        may_be_stale = operation.bound_s is not None
        if operation.outcome is not Outcome.UNAVAILABLE and not has_no_answer and not may_be_stale:
            found[operation.key].append(operation)
    return found


def linearizable(history: Sequence[Operation], start: Row = None) -> bool:
    """True if the operations on one row can be put into an order. Raises ``Undecided``."""
    return find_unexplained(history, start) is None


def find_unexplained(
    history: Sequence[Operation], start: Row = None, *, steps_max: int = STEPS_MAX
) -> list[Operation] | None:
    """Return None for a linearizable history, else where the longest order that was found ends.

    That is: of the operations left there, those that began before any of them has ended.
    """
    return Search(history, start, steps_max).run()


class Search:
    """One search; ``run`` is called once."""

    def __init__(self, history: Sequence[Operation], start: Row, steps_max: int) -> None:
        known = [o for o in history if not math.isinf(o.returned_s)]
        unknown = sorted(
            (o for o in history if math.isinf(o.returned_s)), key=lambda o: o.invoked_s
        )
        self._operations = _without_unseen_marks([*known, *unknown])
        self._originals = [*known, *unknown]
        self._known = len(known)
        self._equal_before = _equal_before(self._operations, self._known)
        self._head = _link_moments(known)
        self._row = start
        self._done = 0
        self._met: set[tuple[int, Row]] = set()
        self._choices: list[Choice] = []
        self._steps_left = steps_max
        self._longest = -1
        self._stuck: list[Operation] = []

    def run(self) -> list[Operation] | None:
        """Return as ``unexplained`` does."""
        node = self._head.after
        while node is not None:
            if node.end is None:  # The end of one that is not in order yet.
                self._note_stuck()
                if self._take_unknown(self._known):
                    node = self._head.after
                    continue
                found = self._back()
                if found is None:
                    return self._stuck
                node = found
            elif self._take(node.index, node):
                node = self._head.after
            else:
                node = node.after
        return None

    def _take(self, index: int, node: Node | None) -> bool:
        """Put an operation next where that fits; return whether it did."""
        operation = self._operations[index]
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Undecided(f"key {operation.key}: {len(self._operations)} operations")
        after = step(self._row, operation)
        if after is ILLEGAL:
            return False
        done = self._done | 1 << index
        if (done, after) in self._met:
            return False
        self._met.add((done, after))
        self._choices.append(Choice(self._row, self._done, index, node, operation.reads))
        self._row, self._done = after, done
        if node is not None:
            node.lift()
        return True

    def _take_unknown(self, first: int) -> bool:
        """Put the first unknown operation next that has begun, is left, and fits."""
        ended = self._first_end_s()
        for index in range(first, len(self._operations)):
            if self._operations[index].invoked_s > ended:
                break
            if not self._done >> index & 1 and self._is_first(index) and self._take(index, None):
                return True
        return False

    def _is_first(self, index: int) -> bool:
        """True if the unknown operations sent before that are equal to this one are done."""
        before = self._equal_before.get(index)
        return before is None or bool(self._done >> before & 1)

    def _back(self) -> Node | None:
        """Undo choices until one has an alternative; return where to look next, None for none."""
        while self._choices:
            choice = self._choices.pop()
            self._row, self._done = choice.row, choice.done
            if choice.node is None:
                if self._take_unknown(choice.index + 1):
                    return self._head.after
                continue
            choice.node.put_back()
            if not choice.forced:
                return choice.node.after
        return None

    def _first_end_s(self) -> float:
        node = self._head.after
        while node is not None:
            if node.end is None:
                return self._operations[node.index].returned_s
            node = node.after
        return math.inf

    def _note_stuck(self) -> None:
        count = self._done.bit_count()
        if count > self._longest:
            self._longest = count
            ended = self._first_end_s()
            self._stuck = [
                operation
                for index, operation in enumerate(self._originals)
                if not self._done >> index & 1 and operation.invoked_s <= ended
            ]


def _without_unseen_marks(history: Sequence[Operation]) -> list[Operation]:
    """Return the operations, with an empty mark where nobody saw it or made it a condition."""
    seen = {operation.if_mark for operation in history}
    seen |= {o.found[0] for o in history if isinstance(o.found, tuple)}
    return [o if o.mark in seen else replace(o, mark="") for o in history]


def _equal_before(operations: Sequence[Operation], first: int) -> dict[int, int]:
    """Return, for each of the unknown operations, which equal one was sent just before it."""
    latest: dict[object, int] = {}
    before: dict[int, int] = {}
    for index in range(first, len(operations)):
        one = operations[index]
        effect = (one.kind, one.mark, one.number, one.expect, one.if_mark)
        if effect in latest:
            before[index] = latest[effect]
        latest[effect] = index
    return before


def _link_moments(known: Sequence[Operation]) -> Node:
    """Return the head of the list; at one moment beginnings come before ends."""
    moments: list[tuple[float, int, Node]] = []
    for index, operation in enumerate(known):
        end = Node(index)
        moments.append((operation.invoked_s, 0, Node(index, end)))
        moments.append((operation.returned_s, 1, end))
    head = last = Node(-1)
    for _, _, node in sorted(moments, key=itemgetter(0, 1)):
        last.after, node.before = node, last
        last = node
    return head
