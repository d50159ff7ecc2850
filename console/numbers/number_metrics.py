"""The numbers of a dashboard in the Prometheus text format.

Each numeric column of a row is a series of ``rowtide_dashboard_value``. Its labels are the
dashboard, the panel, the column, and the columns that say which group it is. Values of rows become
labels, so only those who may see the dashboard may read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["CONTENT_TYPE", "SERIES_MAX", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_MAX = 1000
"""Series of one panel. Prometheus keeps each for as long as it keeps anything."""

OWN_LABELS = ("dashboard", "panel", "column")
_NUMBERS = {"BIGINT", "INTEGER", "HUGEINT", "DOUBLE"}
_HEADS = {
    "rowtide_dashboard_value": "A number of a dashboard's panel.",
    "rowtide_dashboard_series_omitted": f"Series beyond {SERIES_MAX:,} of a panel.",
    "rowtide_dashboard_as_of_seconds": "Commit time of the newest change that is included.",
    "rowtide_dashboard_lag_records": "Records that are not counted yet.",
}

_Sample = tuple[Mapping[str, str], str]


def metrics_text(document: Mapping[str, Any]) -> str:
    """Return the page of one dashboard's document."""
    found: dict[str, list[_Sample]] = {name: [] for name in _HEADS}
    own = {"dashboard": document["name"]}
    for name, panel in document["panels"].items():
        labels = {**own, "panel": name}
        series = list(_series(panel, labels))
        found["rowtide_dashboard_value"] += series[:SERIES_MAX]
        omitted = max(0, len(series) - SERIES_MAX)
        found["rowtide_dashboard_series_omitted"].append((labels, str(omitted)))
    stamps = [at["stamp"] for at in document["positions"].values()]
    if stamps:
        as_of = str(max(stamps) / 1_000_000)
        found["rowtide_dashboard_as_of_seconds"].append((own, as_of))
    if document["lag"] is not None:
        found["rowtide_dashboard_lag_records"].append((own, str(document["lag"]["records"])))
    lines: list[str] = []
    for name, samples in found.items():
        lines += [f"# HELP {name} {_HEADS[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{_labels_text(labels)}}} {value}" for labels, value in samples]
    return "\n".join([*lines, ""])


def _series(panel: Mapping[str, Any], own: Mapping[str, str]) -> Iterator[_Sample]:
    """Yield the numbers of a panel. A number that is NULL has no series."""
    columns: Sequence[Mapping[str, Any]] = panel["columns"]
    names = label_names([c["name"] for c in columns if c["is_group"]])
    seen: set[tuple[str, ...]] = set()
    for row in panel["rows"]:
        cells = list(zip(columns, row, strict=True))
        values = ["" if v is None else str(v) for c, v in cells if c["is_group"]]
        group = dict(zip(names, values, strict=True))
        for column, value in cells:
            if column["is_group"] or column["type"] not in _NUMBERS or value is None:
                continue
            # SELECT may leave out the keys that tell two groups apart.
            identity = (column["name"], *values)
            if identity not in seen:
                seen.add(identity)
                yield {**own, "column": column["name"], **group}, _number_text(value)


def label_names(columns: Sequence[str]) -> list[str]:
    """Return names that Prometheus allows, each once, and none of ours."""
    taken = set(OWN_LABELS)
    names: list[str] = []
    for column in columns:
        name = re.sub(r"[^a-zA-Z0-9_]", "_", column)
        if not re.match(r"[a-zA-Z_]", name) or name.startswith("__") or name in OWN_LABELS:
            name = f"group_{name.lstrip('_')}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _number_text(value: object) -> str:
    special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    return special.get(str(value), str(value))


def _labels_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
