"""The judge itself: histories that an order explains, and histories that none does.

An operation is written ``from-to what``: ``0-? put:a`` was sent at 0 and never answered, ``!`` was
refused. A row is ``mark=number``; ``put:b/a`` puts b if the mark is a, ``put:b/-`` if there is no
row, ``put:b/+`` if there is one; ``inc:b+2=5`` adds 2 and returns 5.
"""

from __future__ import annotations

import math
import random
import re
from itertools import permutations

import pytest

from tests.histories.imagined import imagine_history
from tests.histories.linearizable import Undecided, by_key, find_unexplained, linearizable
from tests.histories.operation import (
    ILLEGAL,
    Expect,
    Kind,
    Operation,
    Outcome,
    Row,
    from_json,
    step,
    to_json,
)

SCENARIOS = """
case                                       order   history
nothing happened                           yes
a read of what was written                 yes     0-1 put:a  2-3 get:a=0
a read of what was overwritten before      no      0-1 put:a  2-3 put:b  4-5 get:a=0
a read beside two writes sees the former   yes     0-1 put:a  2-5 put:b  3-4 get:a=0
a read beside two writes sees the latter   yes     0-1 put:a  2-5 put:b  3-4 get:b=0
two reads beside a write go back           no      0-9 put:a  1-2 get:a=0  3-4 get:-
a lost write                               no      0-1 put:a  2-3 get:-
a write that nobody sent                   no      0-1 put:a  2-3 get:x=0
an unknown write shows                     yes     0-? put:a  2-3 get:a=0
an unknown write does not show             yes     0-? put:a  2-3 get:-
an unknown write lands much later          yes     0-? put:a  2-3 put:b  4-5 get:b=0  6-7 get:a=0
an unknown write comes and goes            no      0-? put:a  2-3 get:a=0  4-5 get:-
an unknown write shows before it was sent  no      0-1 get:a=0  2-? put:a
one unknown write lands twice              no      0-? put:a  1-2 get:a=0  3-4 put:b  5-6 get:a=0
two unknown writes in either order         yes     0-? put:a  0-? put:b  1-2 get:b=0  3-4 get:a=0
two unknown increments, both came          yes     0-? inc:a+1  0-? inc:b+1  1-2 inc:c+1=3
two unknown increments, one came           yes     0-? inc:a+1  0-? inc:b+1  1-2 inc:c+1=2
two unknown increments are not three       no      0-? inc:a+1  0-? inc:b+1  1-2 inc:c+1=4
an increment counted twice                 no      0-1 inc:a+1=1  2-3 inc:b+1=3
two increments with one answer             no      0-9 inc:a+1=1  0-9 inc:b+1=1
increments beside each other               yes     0-9 inc:a+1=2  0-9 inc:b+1=1
an increment keeps what it returned        yes     0-1 put:a=40  2-3 inc:b+2=42  4-5 get:b=42
an update keeps the number                 yes     0-1 put:a=7  2-3 update:b  4-5 get:b=7
an update makes a row without a number     yes     0-1 update:a  2-3 get:a=
a put forgets the number                   no      0-1 put:a=7  2-3 put:b  4-5 get:b=7
a deleted row is absent                    yes     0-1 put:a  2-3 delete:  4-5 get:-
a deleted row comes back                   no      0-1 put:a  2-3 delete:  4-5 get:a=0
an unknown delete                          yes     0-1 put:a  2-? delete:  3-4 get:a=0  5-6 get:-
a condition that held                      yes     0-1 put:a  2-3 put:b/a  4-5 get:b=0
a condition on a stale mark                no      0-1 put:a  2-3 put:b  4-5 put:c/a
a refusal that was due                     yes     0-1 put:a  2-3 put:b  4-5 !put:c/a
a refusal that was not due                 no      0-1 put:a  4-5 !put:c/a
two winners of one place                   no      0-9 put:a/-  0-9 put:b/-
one winner of one place                    yes     0-9 put:a/-  0-9 !put:b/-
a refusal of an absent row                 yes     0-1 !put:a/+  2-3 put:b  4-5 put:c/+
an unknown condition that cannot have held no      0-1 put:a  2-? put:b/x  3-4 get:b=0
a refusal beside an unknown write          yes     0-? put:a  1-2 !put:b/-  3-4 get:a=0
"""

WORD = re.compile(
    r"(?P<from>\d+)-(?P<to>\d+|\?) (?P<refused>!?)(?P<kind>\w+):(?P<mark>\w*|-)"
    r"(/(?P<condition>\w|[-+]))?(\+(?P<by>\d+))?(=(?P<number>\d*))?$"
)
EXPECT: dict[str, Expect] = {"-": "EXPECT_NOT_EXIST", "+": "EXPECT_EXIST"}
KINDS = {"inc": Kind.INCREMENT, **{kind.value: kind for kind in Kind}}


def operation(text: str) -> Operation:
    """Return what a scenario's words say."""
    found = WORD.match(text)
    assert found, text
    kind, number = KINDS[found["kind"]], int(found["number"] or 0)
    row: Row = None
    if found["mark"] != "-":
        row = (found["mark"], number if found["number"] else None)
    condition = found["condition"]
    known = found["to"] != "?"
    return Operation(
        client=0,
        worker=0,
        key="row",
        kind=kind,
        invoked_s=float(found["from"]),
        returned_s=float(found["to"]) if known else math.inf,
        outcome=Outcome.REFUSED if found["refused"] else Outcome.OK if known else Outcome.UNKNOWN,
        mark=found["mark"],
        number=int(found["by"] or 0) if kind is Kind.INCREMENT else number,
        expect=EXPECT.get(condition or "", "IGNORE"),
        if_mark=condition if condition and condition not in EXPECT else None,
        found=number if kind is Kind.INCREMENT else row,
    )


def scenarios() -> list[tuple[str, bool, str]]:
    """Return (case, verdict, history) of each line of the table."""
    lines = SCENARIOS.strip().splitlines()[1:]
    return [(line[:43].strip(), line[43:46] == "yes", line[51:]) for line in lines]


def read_scenario(text: str) -> list[Operation]:
    """Return the history that a line of the table holds."""
    return [operation(words) for words in re.split(r"\s{2,}", text.strip()) if words]


@pytest.mark.parametrize(
    ("expected", "text"), [(s[1], s[2]) for s in scenarios()], ids=[s[0] for s in scenarios()]
)
def test_a_history_is_judged_as_the_table_says(expected: bool, text: str) -> None:
    history = read_scenario(text)
    assert linearizable(history) is expected
    assert slow_verdict(history) is expected, "and an exhaustive search agrees"


def slow_verdict(history: list[Operation]) -> bool:
    """Try every order of every choice of unknown operations: the definition, word by word."""
    known = [o for o in history if o.returned_s < math.inf]
    unknown = [o for o in history if math.isinf(o.returned_s)]
    for chosen in range(1 << len(unknown)):
        taken = known + [o for i, o in enumerate(unknown) if chosen >> i & 1]
        for order in permutations(taken):
            in_time = all(
                not order[j].returned_s < order[i].invoked_s
                for i in range(len(order))
                for j in range(i + 1, len(order))
            )
            if in_time and explains(order):
                return True
    return False


def explains(order: tuple[Operation, ...]) -> bool:
    row: Row = None
    for one in order:
        after = step(row, one)
        if after is ILLEGAL:
            return False
        row = after
    return True


def spoilt(chance: random.Random, history: list[Operation]) -> list[Operation]:
    """Change what one read or increment returned; the result may still be explained."""
    rows: list[Row] = [None, *((f"m{n}", 1) for n in range(len(history)))]
    candidates = [o for o in history if o.kind in (Kind.GET, Kind.INCREMENT)]
    if candidates:
        one = chance.choice(candidates)
        one.found = chance.choice(rows) if one.kind is Kind.GET else chance.randrange(5)
    return history


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_are_judged_as_an_exhaustive_search_does(seed: int) -> None:
    chance = random.Random(seed)
    history = imagine_history(chance, 6, 3)
    assert linearizable(history), "a store that is right"
    history = spoilt(chance, history)
    assert linearizable(history) is slow_verdict(history)


def test_a_long_history_takes_little_and_ends_where_it_goes_wrong() -> None:
    history = imagine_history(random.Random(1), 600, 8, lost=0.01)
    assert find_unexplained(history) is None
    reads = [o for o in history if o.kind is Kind.GET]
    reads[-1].found = ("nobody", 1)
    stuck = find_unexplained(history)
    assert stuck is not None
    assert reads[-1] in stuck


def test_a_search_without_an_end_is_no_verdict() -> None:
    clueless = [operation(f"0-? inc:m+{2**n}") for n in range(1, 30)]
    clueless.append(operation("1-2 get:m=15"))
    with pytest.raises(Undecided):
        find_unexplained(clueless, steps_max=10_000)


def test_what_tells_nothing_is_left_out() -> None:
    lost, refused = operation("0-? get:-"), operation("0-1 put:a")
    refused.outcome = Outcome.UNAVAILABLE
    assert by_key([lost, refused]) == {}


def test_an_operation_comes_back_from_json() -> None:
    for words in ("0-1 put:a/x=1", "0-? delete:", "0-1 get:a=1", "0-1 !inc:a/-+1"):
        one = operation(words)
        assert from_json(to_json(one)) == one
