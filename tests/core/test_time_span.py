"""Spans of time in their two largest units."""

from __future__ import annotations

import pytest

from rowtide.core.values.time_span import span_text

SPANS = [
    (-5.0, "0 s"),
    (0.4, "0 s"),
    (59.4, "59 s"),
    (59.7, "1 min 0 s"),
    (3599.0, "59 min 59 s"),
    (3599.9, "1 h 0 min"),
    (90_000.0, "1 d 1 h"),
]


@pytest.mark.parametrize(("seconds", "text"), SPANS)
def test_a_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
