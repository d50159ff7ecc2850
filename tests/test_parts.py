"""The table of ``make test``: what each part took, and which part grew."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import parts
from tests.support.parts import Baseline, Part, growth, main, table

BEFORE = Baseline("two cores", 2, (Part("units", 100, 180, 0.1), Part("faults", 300, 200, 0.1)))

GROWTH = {
    "as before": (Part("units", 100, 0, 0.1), 1.0),
    "a fifth more": (Part("units", 120, 0, 0.1), 1.2),
    "a machine half as fast": (Part("units", 200, 0, 0.2), 1.0),
    "a machine twice as fast hides nothing": (Part("units", 75, 0, 0.05), 1.5),
}


@pytest.mark.parametrize(("part", "times"), GROWTH.values(), ids=GROWTH.keys())
def test_a_part_is_compared_at_the_same_machine_speed(part: Part, times: float) -> None:
    assert growth(part, BEFORE.parts[0]) == pytest.approx(times)


def test_a_part_beside_others_is_compared_by_its_cpu_time() -> None:
    before = Part("units", 100, 180, 0.1)
    assert growth(Part("units", 700, 198, 0.1, beside=True), before) == pytest.approx(1.1)


def test_parts_at_the_same_time_count_once() -> None:
    first = Part("units", 100, 180, 0.1, beside=True, began_s=1000)
    then = Part("faults", 300, 200, 0.1, began_s=1010)
    assert (
        table([first, then], None, 2)[3] == "all                                   310 s    380 s"
    )


def test_the_table_names_the_part_that_grew_and_no_other() -> None:
    now = [
        Part("units", 119, 190, 0.1, began_s=0),
        Part("faults", 363, 210, 0.1, began_s=119),
        Part("new", 5, 4, 0.1, began_s=482),
    ]
    assert table(now, BEFORE, 2) == [
        "part                                   wall      CPU  baseline  change",
        "units                                 119 s    190 s     100 s    +19%",
        "faults                                363 s    210 s     300 s    +21%",
        "new                                     5 s      4 s",
        "all                                   487 s    404 s",
        "GREW: faults: 1.21 times its baseline at the same machine speed",
    ]


def test_another_number_of_processors_is_not_compared() -> None:
    lines = table([Part("units", 500, 900, 0.1)], BEFORE, 8)
    assert lines[1] == "units                                 500 s    900 s"
    assert lines[-1] == "Not compared: 8 processors; the baseline has 2."


def test_without_a_baseline_nothing_is_compared() -> None:
    assert table([], None, 2)[-1] == "Not compared: no baseline is recorded."


def test_a_run_is_noted_reported_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "LAST", tmp_path / "build/parts.jsonl")
    monkeypatch.setattr(parts, "BASELINE", tmp_path / "parts.json")
    assert main(["report"]) == 0
    failing = "import os, sys; sys.exit(os.getcwd() != sys.argv[1] or 7)"
    assert main(["begin"]) == 0
    command = [sys.executable, "-c", failing, str(tmp_path)]
    assert main(["run", "units", "--in", str(tmp_path), "--", *command]) == 7
    lower = f"import os, sys; sys.exit(os.nice(0) - {os.nice(0)})"
    command = [sys.executable, "-c", lower]
    assert main(["run", "units", "--beside", "--", *command]) == min(
        parts.BESIDE_NICE, 19 - os.nice(0)
    )
    assert main(["run", "units", "--", *command]) == 0
    assert main(["run", "units", "--", sys.executable, "-c", "pass"]) == 0
    [part] = parts.last_parts()
    assert part.name == "units"
    assert part.wall_s > 0
    assert part.cpu_s > 0
    assert main(["record", "a test's"]) == 0
    kept = parts.read_baseline()
    assert kept is not None
    assert (kept.machine, [part.name for part in kept.parts]) == ("a test's", ["units"])
    capsys.readouterr()
    assert main(["report"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("units ")
    assert main(["begin"]) == 0
    assert parts.last_parts() == ()


def test_the_recorded_baseline_has_the_parts_of_the_makefile() -> None:
    kept = parts.read_baseline()
    makefile = (parts.ROOT / "Makefile").read_text(encoding="utf-8")
    assert [p.name for p in (kept.parts if kept else ()) if f'"{p.name}"' not in makefile] == []
