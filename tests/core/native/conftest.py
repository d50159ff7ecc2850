"""Prints how many inputs the long tests of kernels gave to each."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

__all__ = ["pytest_terminal_summary"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a line for each long test that passed, and their sums."""
    tallies: defaultdict[str, list[list[Any]]] = defaultdict(list)
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            for name, value in report.user_properties:
                tallies[name].append(value)
    for name, rows in tallies.items():
        terminalreporter.section(f"kernels {name}", sep="-")
        rows.append(["all", *map(sum, zip(*(row[1:] for row in rows), strict=True))])
        terminalreporter.write_line(f"{'':38}{'inputs':>10} {'answered':>10} {'damaged':>10}")
        for kernel, *counts in rows:
            numbers = " ".join(f"{count:>10,}" for count in counts)
            terminalreporter.write_line(f"{kernel:38}{numbers}")
