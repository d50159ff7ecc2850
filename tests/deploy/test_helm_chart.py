"""The chart: what helm and the schemas of Kubernetes say, and what its pods promise."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.settings import load_settings
from tests.deploy.image import image_settings
from tests.deploy.linters import DEPLOY, find_program, library, program, run

CHART = DEPLOY / "helm/rowtide"
KUBERNETES = "1.33"
GET_HELM = "make tools builds it (minutes, once)"
EVERYTHING = {
    "kafka.securitySecret": "kafka",
    "metrics.serviceMonitor.enabled": "true",
    "podAnnotations.a": "b",
    "persistence.storageClass": "fast",
    "nodeSelector.disk": "nvme",
}


def render_chart(**values: str) -> list[dict[str, Any]]:
    """Return the chart's resources."""
    given = {"kafka.bootstrap": "kafka:9092", **values}
    flags = [f"--set={name}={value}" for name, value in given.items()]
    output = run(
        program("helm", GET_HELM), "template", "r", CHART, f"--kube-version={KUBERNETES}.0", *flags
    )
    return [resource for resource in library("yaml").safe_load_all(output) if resource is not None]


def of_kind(kind: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one resource of a kind."""
    [found] = [resource for resource in resources if resource["kind"] == kind]
    return found


def test_helm_finds_nothing() -> None:
    output = run(program("helm", GET_HELM), "lint", "--strict", CHART, "--set=kafka.bootstrap=k:1")
    assert "0 chart(s) failed" in output


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["as it is", "with everything"])
def test_its_resources_are_as_kubernetes_has_them(values: dict[str, str]) -> None:
    validate = library("kubernetes_validate").validate
    kinds = []
    for resource in render_chart(**values):
        kinds.append(resource["kind"])
        if resource["apiVersion"] != "monitoring.coreos.com/v1":  # Of an operator.
            validate(resource, KUBERNETES, strict=True)
    assert {"StatefulSet", "Service", "PodDisruptionBudget", "ServiceAccount"} <= set(kinds)
    assert ("ServiceMonitor" in kinds) is bool(values)


def test_its_pods_have_probes_no_rights_and_time_to_drain() -> None:
    pod = of_kind("StatefulSet", render_chart())["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert pod["securityContext"]["runAsNonRoot"] is True
    rights = container["securityContext"]
    assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    environment = {e["name"]: e.get("value", "") for e in container["env"]}
    ours = {name: value for name, value in environment.items() if name.startswith("ROWTIDE_")}
    settings = load_settings(None, image_settings() | ours, {})
    assert settings.durability == "replicated"
    assert pod["terminationGracePeriodSeconds"] > settings.drain_notice_s + 75
    probe = container["readinessProbe"]
    assert settings.drain_notice_s > probe["periodSeconds"] * probe["failureThreshold"]
    # Kubernetes would set ROWTIDE_PORT to the address of a Service named rowtide.
    assert pod["enableServiceLinks"] is False


def test_workers_find_each_other_before_they_are_ready() -> None:
    resources = render_chart()
    name = of_kind("StatefulSet", resources)["spec"]["serviceName"]
    [peers] = [r for r in resources if r["kind"] == "Service" and r["metadata"]["name"] == name]
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"kafka.bootstrap": ""}, "kafka.bootstrap is needed"),
        ({"kafka.bootstrap": "no-port"}, "does not match pattern"),
        ({"drainNoticeSeconds": "60"}, "terminationGracePeriodSeconds must be above"),
        ({"replica": "3"}, "replica"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, str], why: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=re.escape(why)):
        render_chart(**values)


# What needs no helm.


def test_its_values_fit_their_schema() -> None:
    values = library("yaml").safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    library("jsonschema").validate(values, schema)
    assert set(values) <= set(schema["properties"])


def test_its_templates_use_values_that_there_are() -> None:
    values = library("yaml").safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values\.([\w.]+)", template.read_text(encoding="utf-8")):
            at: Any = values
            for name in path.split("."):
                assert name in at, f"{template.name}: {path}"
                at = at[name]


def test_helm_is_looked_for_where_it_is_built() -> None:
    found = find_program("helm")
    assert found is None or Path(found).name.startswith("helm")
