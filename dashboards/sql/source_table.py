"""The table that a query is over. It needs no parser of SQL, so it is loaded without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["CHANGE_COLUMNS", "SourceTable"]

CHANGE_COLUMNS = {"change_kind": "text", "change_stamp": "timestamp_us"}
"""Columns that every change has beside those of its row after it."""


class SourceTable(NamedTuple):
    """The table of a dashboard, and the declared types of its columns."""

    name: str
    types: Mapping[str, str]
