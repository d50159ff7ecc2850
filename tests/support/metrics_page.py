"""The metrics as the documents list them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["DocumentedMetric", "documented_metrics"]

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"
LINE = re.compile(r"^\| `(rowtide_\w+)` \| ([\w, ]*)\| (.*) \|$", re.MULTILINE)


class DocumentedMetric(NamedTuple):
    """``kind`` is as Prometheus names it."""

    kind: str
    labels: frozenset[str]


def documented_metrics() -> dict[str, DocumentedMetric]:
    """Return each metric of the page by its name."""
    return {
        name: DocumentedMetric(
            _kind(name, meaning), frozenset(filter(None, re.split(r"[, ]+", labels)))
        )
        for name, labels, meaning in LINE.findall(PAGE.read_text(encoding="utf-8"))
    }


def _kind(name: str, meaning: str) -> str:
    if name.endswith("_total"):
        return "counter"
    return "histogram" if "(histogram)" in meaning else "gauge"
