"""What the health page finds in the status of workers, and that it has words for all of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowtide.console.languages.texts import LANGUAGES, texts_of, translate
from rowtide.console.pages.faults import ClusterFault, find_faults
from rowtide.console.pages.health import HealthWatch
from rowtide.console.workers.calls import KeyPair, WorkerCalls

ROOT = Path(__file__).resolve().parents[3]
KINDS = set(
    re.findall(
        r'(?:ClusterFault\(|return |else )"(\w+)"',
        (ROOT / "console/pages/faults.py").read_text(encoding="utf-8"),
    )
) | {"keys_old", "no_answer", "own_key"}


def healthy() -> dict[str, Any]:
    """Return the status of a worker that has nothing."""
    slot: dict[str, Any] = {
        "slot": 0,
        "open": True,
        "failure": None,
        "lease": True,
        "lease_age_s": 0.1,
        "flush_age_s": 5.0,
        "closed": {},
        "opening": {},
        "shards": [{"unflushed": 3}],
    }
    return {
        "address": "w:1",
        "ready": True,
        "drained": False,
        "reasons": [],
        "free_bytes": 10**12,
        "free_bytes_min": 256 * 1024 * 1024,
        "slots": [slot],
        "standbys": [],
        "indexes": [],
    }


Change = Callable[[dict[str, Any]], object]
SLOT = "0 @ w:1"
CASES: list[tuple[Change, tuple[str, str, bool]]] = [
    (lambda w: w.update(error="timed out"), ("worker_silent", "w:1", True)),
    (lambda w: w.update(free_bytes=1), ("disk_full", "w:1", True)),
    (lambda w: w.update(free_bytes=300 * 1024 * 1024), ("disk_filling", "w:1", False)),
    (lambda w: w.update(reasons=["starting"]), ("worker_not_ready", "w:1", True)),
    (
        lambda w: w.update(reasons=["no broker has answered for 12 s"]),
        ("broker_silent", "w:1", True),
    ),
    (
        lambda w: w.update(reasons=["access keys were last read 70 s ago"]),
        ("keys_old", "w:1", True),
    ),
    (lambda w: w.update(drained=True, reasons=["drained"]), ("worker_drained", "w:1", False)),
    (lambda w: w["slots"][0].update(open=False), ("slot_waits", SLOT, True)),
    (lambda w: w["slots"][0].update(open=False, failure="x"), ("slot_fails", SLOT, True)),
    (lambda w: w["slots"][0].update(lease=False), ("slot_lease", SLOT, True)),
    (lambda w: w["slots"][0].update(closed={"s1": "lost"}), ("shard_closed", "s1", True)),
    (lambda w: w["slots"][0].update(opening={"s1": "x"}), ("shard_opening", "s1", True)),
    (lambda w: w["slots"][0].update(flush_age_s=700.0), ("flush_overdue", SLOT, False)),
    (lambda w: w["standbys"].append({"faults": {"s1": "x"}}), ("standby", "s1 @ w:1", False)),
    (
        lambda w: w["indexes"].append(
            {"instance": "i", "table": "t", "index": "x", "behind": 9, "behind_s": 61.0}
        ),
        ("index_behind", "i/t/x", False),
    ),
]


@pytest.mark.parametrize(("change", "found"), CASES, ids=[found[0] for _, found in CASES])
def test_each_fault_is_found(change: Change, found: tuple[str, str, bool]) -> None:
    worker = healthy()
    assert find_faults([worker]) == []
    change(worker)
    [fault] = find_faults([worker])
    assert (fault.kind, fault.subject, fault.is_bad) == found


def test_the_worst_is_first() -> None:
    worker = healthy()
    worker["drained"] = True
    worker["slots"][0]["closed"] = {"s1": "lost"}
    assert [fault.kind for fault in find_faults([worker])] == ["shard_closed", "worker_drained"]


def test_a_cause_is_before_what_follows_from_it() -> None:
    worker = healthy()
    worker["slots"][0]["lease"] = False
    worker["reasons"] = ["slot 0 has no lease", "no broker has answered for 12 s"]
    assert [fault.kind for fault in find_faults([worker])] == ["broker_silent", "slot_lease"]


def test_every_kind_of_fault_has_a_case_and_words_in_both_languages() -> None:
    assert {found[0] for _, found in CASES} | {"no_answer", "own_key"} == KINDS
    for language in LANGUAGES:
        texts = texts_of(language, "health")
        assert [kind for kind in KINDS if f"{kind}_do" not in texts] == []
        for kind in KINDS:
            assert "s9" in translate(language, f"health.{kind}", subject="s9")


def test_since_when_is_from_the_first_sight_to_the_end() -> None:
    watch = HealthWatch(WorkerCalls("http://127.0.0.1:1"), KeyPair("id", "secret"), "demo")
    first = ClusterFault("shard_closed", "s1", True, "one reason")
    watch.note([first])
    since_s = watch.since_s(first)
    assert since_s is not None
    # The reason may count seconds: it is the same fault.
    watch.note([first._replace(reason="another reason")])
    assert watch.since_s(first) == since_s
    watch.note([])
    assert watch.since_s(first) is None
