"""``rowtide cluster status``: whole, and with everything wrong that can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.cli.cluster import show
from rowtide.cli.exits import CommandOutcomeUnknown
from rowtide.cli.main import main

RECLAIMER = {"paused": False, "shard": None, "passes": 3, "rows": 10, "ranges": 1}


def slot(number: int, **fields: Any) -> dict[str, Any]:
    """Return a healthy slot, but for the given fields."""
    well = {
        "slot": number,
        "open": True,
        "failure": None,
        "lease": True,
        "lease_age_s": 0.42,
        "flush_age_s": 61.0,
        "shards": [{"shard": f"s{number}", "unflushed": 7}],
        "closed": {},
        "opening": {},
        "reclaimer": RECLAIMER,
    }
    return {**well, **fields}


def worker(address: str, *slots: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a healthy worker, but for the given fields."""
    well = {
        "address": address,
        "ready": True,
        "reasons": [],
        "uptime_s": 7300.0,
        "connections": 12,
        "free_bytes": 5_000_000_000,
        "slots": list(slots),
        "standbys": [],
        "indexes": [],
    }
    return {**well, **fields}


INDEX = {"instance": "demo", "table": "t", "index": "by_x", "behind": 40, "behind_s": 1.25}

WELL = """\
worker  state  up       slots  shards  connections  free disk
a:1     ready  2 h 1 min      1       1           12  5,000 MB
b:1     ready  2 h 1 min      1       1           12  5,000 MB

slot  worker  state  lease age  shards  unflushed  flushed        reclaimer
   0  b:1     open   0.4 s           1          7  1 min 1 s ago  3 passes
   1  a:1     open   0.4 s           1          7  1 min 1 s ago  3 passes

table   global index  records behind  time behind
demo/t  by_x                      40  1.2 s
"""

ILL = """\
worker  state      up         slots  shards  connections  free disk
a:1     not ready  2 h 1 min      2       1           12  5,000 MB
b:1     silent

slot  worker  state     lease age  shards  unflushed  flushed        reclaimer
   0  a:1     opening                   0          0                 paused
   1  a:1     no lease  5.1 s           1          7  1 min 1 s ago  in s1, 3 passes

a:1 is not ready: slot 0 is not open
slot 0 does not open at a:1: rows/0: IO error: No space left on device
shard s9 stays closed: its log ends at 5
shard s8 does not open, retried: its log has not answered
b:1 does not answer: no answer
"""


def test_workers_that_are_well_take_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    show([worker("a:1", slot(1), indexes=[INDEX]), worker("b:1", slot(0))])
    assert words(capsys.readouterr().out) == words(WELL)


COPIES = """\
slot  standby  state    shards  records behind  time behind
   0  a:1      warm          2               0  0.3 s
   1  b:1      reading       1             700

shard s7 is not kept warm at b:1: no record of ours
"""


def test_copies_of_slots_have_a_table_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    copy = {"slot": 0, "warm": True, "shards": 2, "lag_records": 0, "lag_s": 0.26, "faults": {}}
    cold = {"slot": 1, "warm": False, "shards": 1, "lag_records": 700, "lag_s": None}
    faults = {"s7": "no record of ours"}
    first = worker("a:1", slot(1), standbys=[copy])
    show([first, worker("b:1", slot(0), standbys=[{**cold, "faults": faults}])])
    assert words(COPIES) == words(capsys.readouterr().out)[-len(words(COPIES)) :]


def test_what_is_wrong_is_said_in_sentences_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    opening = slot(
        0,
        open=False,
        failure="rows/0: IO error: No space left on device",
        lease=False,
        lease_age_s=None,
        flush_age_s=None,
        shards=[],
        closed={"s9": "its log ends at 5"},
        opening={"s8": "its log has not answered"},
        reclaimer={**RECLAIMER, "paused": True},
    )
    reading = slot(1, lease=False, lease_age_s=5.1, reclaimer={**RECLAIMER, "shard": "s1"})
    ill = worker("a:1", opening, reading, ready=False, reasons=["slot 0 is not open"])
    show([ill, {"address": "b:1", "error": "no answer"}])
    assert words(capsys.readouterr().out) == words(ILL)


def words(text: str) -> list[list[str]]:
    """Return the words of each line: widths are tested with the tables."""
    return [line.split() for line in text.splitlines()]


@pytest.mark.system
def test_a_server_tells_of_its_workers(data_dir: Path) -> None:
    asked = ["cluster", "status", "--data-dir", str(data_dir)]
    result = CliRunner().invoke(main, [*asked, "--output", "json"], prog_name="rowtide")
    [only] = json.loads(result.output)["workers"]
    assert (only["ready"], only["reasons"]) == (True, [])
    assert [slot["open"] for slot in only["slots"]] == [True] * 4
    result = CliRunner().invoke(main, asked, prog_name="rowtide")
    assert result.exit_code == 0
    assert f"{only['address']}  ready" in result.output


@pytest.mark.parametrize("command", ["drain", "undrain", "forget"])
def test_a_drain_of_unknown_outcome_is_not_told_as_one_that_changed_nothing(
    command: str, tmp_path: Path
) -> None:
    def unknown(*_asked: object) -> Any:
        raise ServerError("OTSTimeout", "Operation timeout.", 503, "r1")

    given = ["--endpoint", "http://127.0.0.1:1", "--instance", "demo"]
    given += ["--access-key-id", "a", "--access-key-secret", "b", "--data-dir", str(tmp_path)]
    with patch.object(ProtocolClient, "call_json", unknown):
        result = CliRunner().invoke(main, ["cluster", command, "worker:1", *given])
    assert result.exit_code == CommandOutcomeUnknown.exit_code
