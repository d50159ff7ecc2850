"""Checks a commit message: ``area: imperative summary``, a blank line, then why.

    python -m tests.support.commit_message FILE

Exits with 1 and one line for each fault. Git's own messages (merge, revert, fixup) pass.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["find_faults"]

SUBJECT_MAX = 72
BODY_MAX = 72
SUBJECT = re.compile(r"[a-z0-9][\w ./,-]*: [a-z0-9`]")
FROM_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ?")
NOT_IMPERATIVE = re.compile(
    r": (?!(need|feed|seed|embed|bring|ping)\b)"
    r"(\w+(ed|ing)|adds|fixes|makes|says|uses|removes)\b"
)


def find_faults(message: str) -> list[str]:
    """Return a sentence for each fault of a message; its comment lines are passed over."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    subject, body = (lines[0] if lines else ""), lines[1:]
    if FROM_GIT.match(subject):
        return []
    faults = []
    if not SUBJECT.match(subject):
        faults.append(f"the subject is not 'area: imperative summary': {subject!r}")
    if len(subject) > SUBJECT_MAX:
        faults.append(f"the subject has {len(subject)} characters, at most {SUBJECT_MAX} are good")
    if NOT_IMPERATIVE.search(subject):
        faults.append(f"the summary does not begin with an imperative: {subject!r}")
    if body and body[0].strip():
        faults.append("the second line is not blank")
    if not any(line.strip() for line in body):
        faults.append("no body says why")
    faults += [
        f"line {at} of the body has {len(line)} characters, at most {BODY_MAX} are good"
        for at, line in enumerate(body)
        if len(line) > BODY_MAX and " " in line.strip()
    ]
    return faults


def main(arguments: list[str]) -> int:
    """Print the faults of the message in a file; return the exit code."""
    [path] = arguments
    faults = find_faults(Path(path).read_text(encoding="utf-8"))
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
