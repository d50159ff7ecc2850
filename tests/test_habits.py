"""What a contributor runs: targets of make, hooks before a commit, the check of its message."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.commit_message import find_faults, main

ROOT = Path(__file__).resolve().parents[1]
TARGETS_MAX = 12
BODY = "\n\nA read that came early found no slot.\n"


def test_the_makefile_has_a_dozen_targets_and_help_lists_them() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.MULTILINE)
    assert 0 < len(targets) <= TARGETS_MAX, targets
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [target for target in targets if not re.search(rf"\b{target}\b", shown)] == []


def test_each_hook_runs_a_command_of_this_repository() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    [local] = hooks["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        program, *arguments = hook["entry"].split()
        assert program.startswith(".venv/bin/"), hook["id"]
        assert [a for a in arguments if a.endswith(".py") and not (ROOT / a).exists()] == []


@pytest.mark.parametrize(
    ("message", "faults"),
    {
        "good": (f"roster: wait for slots that open{BODY}", []),
        "of git": ("Merge branch 'a'", []),
        "comments are no part": (f"docs: wrap lines{BODY}# {'x' * 90}\n", []),
        "no area": (f"Wait for slots{BODY}", ["the subject is not"]),
        "too long": (f"roster: {'wait ' * 14}{BODY}", ["the subject has 78 characters"]),
        "no imperative": (f"roster: fixed it{BODY}", ["the summary does not begin"]),
        "no body": ("roster: wait for slots", ["no body says why"]),
        "no blank line": ("roster: wait\nfor slots", ["the second line is not blank"]),
        "a wide body": (f"roster: wait\n\n{'why ' * 20}", ["line 1 of the body has 80"]),
        "empty": ("", ["the subject is not", "no body"]),
    }.values(),
)
def test_a_commit_message_says_what_and_why(message: str, faults: list[str]) -> None:
    found = find_faults(message)
    assert len(found) == len(faults), found
    assert all(text.startswith(begin) for text, begin in zip(found, faults, strict=True))


def test_the_hook_prints_the_faults_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text("Wait\n")
    assert main([str(path)]) == 1
    assert "the subject is not 'area: imperative summary': 'Wait'" in capsys.readouterr().err
    path.write_text(f"roster: wait{BODY}")
    assert main([str(path)]) == 0
