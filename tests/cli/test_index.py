"""How far an index is behind its table, as ``rowtide index list`` says it."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.cli.index import behind_text

FOLLOWING = {"type": "global", "behind": 40, "behind_s": 1.25, "failed": None}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "40 records, 1.2 s"),
        ({"type": "local"}, ""),
        ({"behind": None}, "unknown: it is not open"),
        ({"failed": "the log is trimmed"}, "40 records, stopped: the log is trimmed"),
    ],
)
def test_an_index_says_how_far_it_is_behind_or_why_it_can_not_go_on(
    fields: dict[str, Any], text: str
) -> None:
    assert behind_text({**FOLLOWING, **fields}) == text
