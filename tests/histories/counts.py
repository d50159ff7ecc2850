"""The lines of many runs as a table: ``python -m tests.histories.counts histories.jsonl ...``.

Printed as Markdown, a fault a row; then the distributions of the pauses of shards that were hit.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

HEAD = """\
| fault | runs | strikes | operations | unknown | unavailable | anomalies | longest write pause |
|---|---:|---:|---:|---:|---:|---:|---:|"""
PAUSES_HEAD = """\
| fault | of | pauses | p50 | p90 | max | for good |
|---|---|---:|---:|---:|---:|---:|"""

Line = dict[str, Any]


def main() -> None:
    """Print both tables."""
    lines = [
        json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines()
    ]
    by_fault: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_fault[line["fault"]].append(line)
    counts = [format_fault(fault, runs) for fault, runs in sorted(by_fault.items())]
    everything = format_fault("all", lines)
    pauses = [row for fault, runs in sorted(by_fault.items()) for row in format_pauses(fault, runs)]
    print("\n".join([HEAD, *counts, everything, "", PAUSES_HEAD, *pauses]))  # noqa: T201


def format_fault(fault: str, runs: Sequence[Line]) -> str:
    """Return the row of a fault."""
    strikes = [strike for run in runs for strike in run["strikes"]]
    outcomes = [run["told"] for run in runs]
    longest = [p or 0.0 for strike in strikes for p in strike["writes"].values()]
    cells = [
        fault,
        len(runs),
        len(strikes),
        f"{sum(run['operations'] for run in runs):,}",
        f"{sum(counts.get('unknown', 0) for counts in outcomes):,}",
        f"{sum(counts.get('unavailable', 0) for counts in outcomes):,}",
        sum(len(run["anomalies"]) for run in runs),
        f"{max(longest, default=0.0):.2f} s",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def format_pauses(fault: str, runs: Iterable[Line]) -> list[str]:
    """Return the rows of a fault's pauses: each shard that was hit, each strike."""
    rows = []
    strikes = [strike for run in runs for strike in run["strikes"]]
    for what in ("writes", "reads"):
        found = [strike[what].get(letter) for strike in strikes for letter in strike["hit"]]
        ended = [pause for pause in found if pause is not None]
        if len(ended) > 1:
            tenths = quantiles(ended, n=10, method="inclusive")
            cells = [fault, what, len(ended), f"{tenths[4]:.2f} s", f"{tenths[8]:.2f} s"]
            cells += [f"{max(ended):.2f} s", len(found) - len(ended)]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    return rows


if __name__ == "__main__":
    main()
