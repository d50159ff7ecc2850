"""The metrics of connectors are those of the page, written whole to a file."""

from __future__ import annotations

import re
from pathlib import Path

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_metrics import MetricsFile, families
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/metrics.md"
LINE = re.compile(r"\| `rowtide_(connector_\w+)` \| (\w+) \| ([\w, ]+) \|")


def test_every_metric_is_documented_with_its_kind_and_labels(tmp_path: Path) -> None:
    endpoint = Endpoint(
        "http://127.0.0.1:1", instance="i", access_key_id="k", access_key_secret="s"
    )
    document = {"table": "t", "sink": {"kind": "duckdb"}}
    run = SinkRun(parse_document("c", document), ProcessContext(endpoint, {}, str(tmp_path)))
    served = {
        family.name + ("_total" if family.kind == "counter" else ""): (
            family.kind,
            ", ".join(family.labels),
        )
        for family in families([run])
    }
    found = LINE.findall(PAGE.read_text(encoding="utf-8"))
    assert served == {name: (kind, labels) for name, kind, labels in found}
    file = MetricsFile(tmp_path / "metrics")
    file([run])
    text = (tmp_path / "metrics").read_text()
    assert 'rowtide_connector_state{connector="c",state="starting"} 1.0' in text
    assert "process_" not in text
