"""Numbers of a dashboard as Prometheus reads them, parsed by its own library."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rowtide.console.numbers.number_metrics import SERIES_MAX, label_names, metrics_text


def column(name: str, kind: str = "BIGINT", *, is_group: bool = False) -> dict[str, object]:
    return {"name": name, "type": kind, "is_group": is_group, "is_approximate": False}


def document(columns: list[dict[str, object]], rows: list[list[object]]) -> dict[str, Any]:
    return {
        "name": "sales",
        "lag": {"records": 4},
        "positions": {"a": {"stamp": 1_000_000}, "b": {"stamp": 2_500_000}},
        "panels": {"cities": {"columns": columns, "rows": rows}},
    }


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        samples = [(dict(sample.labels), sample.value) for sample in family.samples]
        found.setdefault(family.name, []).extend(samples)
    return found


OWN = {"dashboard": "sales", "panel": "cities"}
CITY = column("city", "VARCHAR", is_group=True)


def test_each_number_is_a_series_with_the_labels_of_its_group() -> None:
    rows: list[list[object]] = [["Oslo", 2, 2.5], ['"\n\\', 1, None]]
    found = read(metrics_text(document([CITY, column("n"), column("mean", "DOUBLE")], rows)))
    assert found["rowtide_dashboard_value"] == [
        ({**OWN, "column": "n", "city": "Oslo"}, 2.0),
        ({**OWN, "column": "mean", "city": "Oslo"}, 2.5),
        ({**OWN, "column": "n", "city": '"\n\\'}, 1.0),
    ]
    assert found["rowtide_dashboard_as_of_seconds"] == [({"dashboard": "sales"}, 2.5)]
    assert found["rowtide_dashboard_lag_records"] == [({"dashboard": "sales"}, 4.0)]
    assert found["rowtide_dashboard_series_omitted"] == [(OWN, 0.0)]


def test_a_panel_has_a_thousand_series_and_says_how_many_it_left_out() -> None:
    rows: list[list[object]] = [[f"c{number}", number] for number in range(SERIES_MAX + 7)]
    found = read(metrics_text(document([CITY, column("n")], rows)))
    assert len(found["rowtide_dashboard_value"]) == SERIES_MAX
    assert found["rowtide_dashboard_series_omitted"] == [(OWN, 7.0)]


def test_a_number_that_is_a_key_is_a_label() -> None:
    rows: list[list[object]] = [[7, 1], [8, 2]]
    found = read(metrics_text(document([column("gate", is_group=True), column("n")], rows)))
    assert found["rowtide_dashboard_value"] == [
        ({**OWN, "column": "n", "gate": "7"}, 1.0),
        ({**OWN, "column": "n", "gate": "8"}, 2.0),
    ]


def test_no_series_is_there_twice() -> None:
    rows: list[list[object]] = [[1], [2]]
    found = read(metrics_text(document([column("n")], rows)))
    assert found["rowtide_dashboard_value"] == [({**OWN, "column": "n"}, 1.0)]


def test_infinities_and_nan_are_written_as_prometheus_writes_them() -> None:
    rows: list[list[object]] = [["a", "inf"], ["b", "-inf"], ["c", "nan"]]
    found = read(metrics_text(document([CITY, column("x", "DOUBLE")], rows)))
    values = [str(value) for _, value in found["rowtide_dashboard_value"]]
    assert values == ["inf", "-inf", "nan"]


def test_label_names_are_valid_and_differ() -> None:
    names = ["panel", "a b", "a-b", "1st", "__name__", "城市", "city"]
    found = label_names(names)
    assert found == ["group_panel", "a_b", "a_b_", "group_1st", "group_name__", "group_", "city"]
