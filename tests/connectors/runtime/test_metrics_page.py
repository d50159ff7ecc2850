"""The metrics of connectors are those of the page, written whole to a file."""

from __future__ import annotations

from pathlib import Path

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_metrics import MetricsFile, families
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from tests.support.metrics_page import DocumentedMetric, documented_metrics


def test_every_metric_is_documented_with_its_kind_and_labels(tmp_path: Path) -> None:
    endpoint = Endpoint(
        "http://127.0.0.1:1", instance="i", access_key_id="k", access_key_secret="s"
    )
    document = {"table": "t", "sink": {"kind": "duckdb"}}
    run = SinkRun(parse_document("c", document), ProcessContext(endpoint, {}, str(tmp_path)))
    served = {
        f"rowtide_{family.name}" + ("_total" if family.kind == "counter" else ""): (
            DocumentedMetric(family.kind, frozenset(family.labels))
        )
        for family in families([run])
    }
    documented = {n: what for n, what in documented_metrics().items() if "_connector_" in n}
    assert served == documented
    file = MetricsFile(tmp_path / "metrics")
    file([run])
    text = (tmp_path / "metrics").read_text()
    assert 'rowtide_connector_state{connector="c",state="starting"} 1.0' in text
    assert "process_" not in text
