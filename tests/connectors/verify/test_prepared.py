"""Rows of which a connector makes something that can't be compared are refused, not different."""

from __future__ import annotations

import dataclasses

import pytest

from rowtide.connectors.fields import Fields
from rowtide.connectors.rows import SinkRow
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.connectors.verify.pairs import make_prepare
from rowtide.core.values.errors import Rejected
from tests.connectors.row_histories import MIXED, put, row_key

ROW = put(5, [1], {"n": 1, "m": 2})


def transforms(**document: object) -> Transforms:
    return Transforms.parse(Fields(document, "test"))


def elsewhere(given: SinkRow) -> SinkRow:
    """Be a function that gives a row another key."""
    key, key_bytes = row_key(MIXED[:1], [2])
    return dataclasses.replace(given, key=key, key_bytes=key_bytes)


def failing(given: SinkRow) -> SinkRow:
    """Be a function that fails."""
    raise KeyError("n")


def twice(given: SinkRow) -> list[SinkRow]:
    """Be a function that makes two rows."""
    return [given, given]


@pytest.mark.parametrize(
    ("name", "why"),
    [("elsewhere", "another key"), ("failing", "KeyError: 'n'"), ("twice", "several rows")],
)
def test_what_a_function_makes_of_a_row_is_refused(name: str, why: str) -> None:
    with pytest.raises(Rejected, match=why):
        make_prepare(transforms(transform=f"{__name__}:{name}"))(ROW)


def test_a_row_that_a_connector_parks_is_named() -> None:
    prepared = make_prepare(transforms(columns={"rename": {"n": "m"}}))
    with pytest.raises(Rejected, match=r"\{'id': 1\}.*gives two columns the name 'm'"):
        prepared(ROW)
