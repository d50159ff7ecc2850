"""Our checker and porcupine, which nobody here wrote, come to the same verdicts.

The Go program in ``porcupine/`` has the rules of a row a third time, in another language. Without
Go on the PATH this is not checked, and says so.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance.program import need, run
from tests.histories.imagined import imagine_history
from tests.histories.linearizable import linearizable
from tests.histories.operation import Operation, to_json
from tests.histories.test_linearizable import read_scenario, scenarios, spoilt

# Its tests share a program that is built once: they stay in one process.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("porcupine")]

COUNT = 400


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go program, built; the module proxy is asked once, then there is a cache."""
    need("go")
    folder = tmp_path_factory.mktemp("porcupine")
    shutil.copytree(Path(__file__).with_name("porcupine"), folder, dirs_exist_ok=True)
    run(["go", "build", "-mod=readonly", "-o", folder / "judge", "."], folder)
    return folder / "judge"


def verdicts(program: Path, histories: list[list[Operation]]) -> list[bool]:
    """Return what porcupine says of each."""
    lines = [json.dumps([to_json(one) for one in history]) for history in histories]
    done = subprocess.run(
        [program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    return [line == "yes" for line in done.stdout.split()]


def test_porcupine_agrees_with_the_table(program: Path) -> None:
    table = scenarios()
    answers = verdicts(program, [read_scenario(text) for _, _, text in table])
    assert dict(zip([s[0] for s in table], answers, strict=True)) == {s[0]: s[1] for s in table}


def test_porcupine_agrees_on_random_histories(program: Path) -> None:
    histories = []
    for seed in range(COUNT):
        chance = random.Random(seed)
        history = imagine_history(chance, 25, 4)
        histories.append(spoilt(chance, history) if seed % 4 else history)
    ours = [linearizable(history) for history in histories]
    assert verdicts(program, histories) == ours
    assert COUNT // 4 < sum(ours) < COUNT, "both verdicts occur"
