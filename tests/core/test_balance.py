"""When shards are split, moved and merged by themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rowtide.core.cluster.balance import Balance, BalanceSettings, ShardLoad, WantedChange
from rowtide.core.values.schema import ShardRange

SETTINGS = BalanceSettings(split_bytes=1000, split_writes_per_s=100, merge_after_s=60)
TWO = {0: "a", 1: "b"}
ONE = {0: "a", 1: "a"}
BORDERS = [b"", *(bytes((letter,)) for letter in b"dhmqu"), b""]


def loads(text: str) -> list[ShardLoad]:
    """Return the loads of a table from words SHARD:SLOT:SIZE:RATE; +SHARD came of a split."""
    found = []
    for number, word in enumerate(text.split()):
        name, slot, size, rate = word.split(":")
        end = BORDERS[number + 1] if number + 1 < len(text.split()) else b""
        parents = ("s0",) if name.startswith("+") else ()
        shard = ShardRange(name.lstrip("+"), int(slot), BORDERS[number], end, parents)
        found.append(ShardLoad(7, shard, int(size), None if rate == "?" else float(rate)))
    return found


SCENARIOS = """
case                                   workers  shards                            wants
a large shard is split                 one      s1:0:1001:0                       split s1
a shard of just that size stays        one      s1:0:1000:0                       -
a hot shard is split                   two      s1:0:0:101                        split s1 hot
one worker alone splits nothing hot    one      s1:0:0:999                        -
a rate nobody knows yet splits nothing two      s1:0:0:?                          -
the busiest gives to the idlest        two      s1:0:0:60 s2:0:0:60               move s1 1
nothing moves for a small difference   two      s1:0:0:60 s2:0:0:30 s3:1:0:50     -
nothing moves that would turn it round two      s1:0:0:90 s2:1:0:20               -
nothing moves before rates are known   two      s1:0:0:90 s2:0:0:90 s3:1:0:?      -
cold parts are merged                  one      +s1:0:9:0 +s2:0:9:1               merge s1 s2
cold shards made so stay               one      s1:0:9:0 s2:0:9:1                 -
warm parts stay                        one      +s1:0:9:11 +s2:0:9:1              -
cold parts of two slots stay           one      +s1:0:9:0 +s2:1:9:0               -
large cold parts stay                  one      +s1:0:200:0 +s2:0:50:0            -
"""


def scenarios() -> list[tuple[str, str, str, str]]:
    header, *lines = SCENARIOS.strip().splitlines()
    starts = [header.index(word) for word in ("workers", "shards", "wants")]
    cuts = [0, *starts, None]
    parts = [tuple(line[a:b].strip() for a, b in pairwise(cuts)) for line in lines]
    return parts  # type: ignore[return-value]


def spell(wanted: WantedChange) -> str:
    words = [wanted.kind, *wanted.shards]
    words += [str(wanted.slot)] if wanted.slot >= 0 else []
    return " ".join(words + ["hot"] * wanted.hot)


@pytest.mark.parametrize(("case", "workers", "shards", "wants"), scenarios())
def test_loads_decide_which_change_is_wanted(
    case: str, workers: str, shards: str, wants: str
) -> None:
    balance = Balance(SETTINGS)
    owners = {"one": ONE, "two": TWO}[workers]
    # Nothing that was hot or cold for a moment counts.
    first = balance.look(loads(shards), owners, 0.0)
    assert [w for w in first if w.hot or w.kind == "merge"] == []
    last = [spell(wanted) for wanted in balance.look(loads(shards), owners, 60.0)]
    assert last == ([] if wants == "-" else [wants]), case


def test_off_is_off() -> None:
    balance = Balance(BalanceSettings(0, 0, 0))
    for now_s in (0.0, 1e6):
        seen = loads("+s1:0:9999999:99999 +s2:0:1:0 +s3:0:1:0")
        assert balance.look(seen, TWO, now_s) == []


def test_one_change_of_a_table_at_a_time() -> None:
    assert len(Balance(SETTINGS).look(loads("s1:0:2000:0 s2:0:2000:0"), TWO, 0.0)) == 1


ONE_KEY = "s1:1:1001:0 s2:0:0:60 s3:0:0:60"
"""A large shard that can't be split, and two that would be moved apart."""


def test_a_split_that_was_refused_keeps_no_other_shard_from_being_moved() -> None:
    balance = Balance(SETTINGS)
    for now_s in (0.0, 5.0):
        [split] = balance.look(loads(ONE_KEY), TWO, now_s)
        assert spell(split) == "split s1"
    balance.record_rejection(split, 5.0)
    assert [spell(w) for w in balance.look(loads(ONE_KEY), TWO, 10.0)] == ["move s2 1"]


def test_a_split_that_is_refused_again_and_again_is_tried_ever_more_seldom() -> None:
    balance = Balance(SETTINGS)
    tried = []
    for now_s in range(0, 24 * 3600, 5):
        for wanted in balance.look(loads("s1:0:1001:0"), ONE, now_s):
            tried.append(now_s)
            balance.record_rejection(wanted, now_s)
    assert tried[:5] == [0, 10, 30, 70, 150]
    assert {b - a for a, b in pairwise(tried[10:])} == {3600}


def test_a_shard_that_was_refused_for_its_size_is_split_once_it_is_hot() -> None:
    balance = Balance(SETTINGS)
    for now_s in (0.0, 5.0):
        [split] = balance.look(loads("s1:0:1001:101"), TWO, now_s)
        assert not split.hot
    balance.record_rejection(split, 5.0)
    assert [spell(w) for w in balance.look(loads("s1:0:1001:101"), TWO, 10.0)] == ["split s1 hot"]
