"""The operation table: rows fit together, and clients learn from it what may be tried again."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from rowtide.core.protocol.authentication import STALE_KEY_PATHS
from rowtide.core.protocol.operations import (
    OPERATIONS,
    PUT_ONCE,
    READ_ROWS,
    Latency,
    OperationSpec,
    RequestDivision,
    Right,
    Route,
    is_read_only,
)

SPECS = pytest.mark.parametrize("spec", OPERATIONS.values(), ids=list(OPERATIONS))
READ_PREFIXES = ("BatchGet", "BulkExport", "Compute", "Describe", "Get", "List")


@SPECS
def test_an_operation_with_a_key_has_the_field_in_its_message(spec: OperationSpec) -> None:
    assert (spec.route is Route.KEY) == bool(spec.key_field)
    if spec.key_field:
        assert spec.key_field in spec.request.DESCRIPTOR.fields_by_name


@SPECS
def test_an_operation_has_both_messages_or_json_bodies(spec: OperationSpec) -> None:
    assert (spec.request is None) == (spec.response is None)
    if spec.right is Right.WORKER:
        assert spec.request.operation == spec.name
    elif spec.right is Right.ADMIN:
        assert spec.request is None
    elif spec.request is not None:
        assert issubclass(spec.request, Message)
        assert issubclass(spec.response, Message)
    if spec.division is not RequestDivision.NONE or spec.allows_stale:
        assert spec.request is not None


@SPECS
def test_the_name_of_an_operation_agrees_with_its_row(spec: OperationSpec) -> None:
    is_own = spec.name.startswith("Rowtide")
    is_of_rows = spec.name in (PUT_ONCE, READ_ROWS)
    if spec.right is not Right.WORKER:
        assert is_own == (spec.latency is Latency.ADMIN) or is_of_rows
    if spec.is_built and not is_own:
        assert is_read_only(spec.name) == spec.name.startswith(READ_PREFIXES)


def test_an_operation_that_is_not_known_may_have_changed_something() -> None:
    assert not is_read_only("FutureOperation")


def test_the_status_is_answered_while_keys_cannot_be_read() -> None:
    assert {b"/RowtideStatus", b"/RowtideClusterStatus"} == STALE_KEY_PATHS
