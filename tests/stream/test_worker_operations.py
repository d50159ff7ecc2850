"""Each row of the operation table has its methods, among all parts of a worker."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, RequestDivision, Right
from rowtide.core.values.errors import Rejected
from rowtide.stream.api.row import RowOperations
from rowtide.stream.http.handlers import Role, answers, methods_of
from rowtide.stream.worker.worker_operations import WorkerOperations


def _empty(kind: type[Any]) -> Any:
    """Return a part that holds nothing: methods are found, none is called."""
    return (tuple if issubclass(kind, tuple) else object).__new__(kind)


@pytest.fixture(scope="module")
def operations() -> WorkerOperations:
    kinds = get_type_hints(WorkerOperations)
    return WorkerOperations(**{name: _empty(kinds[name]) for name in WorkerOperations._fields})


def test_every_operation_has_one_handler(operations: WorkerOperations) -> None:
    for_clients, among_workers = operations.handlers(Catalog()), operations.among_workers()
    assert for_clients.keys() | among_workers.keys() == OPERATIONS.keys()
    assert not for_clients.keys() & among_workers.keys()
    assert all(OPERATIONS[name].right is Right.WORKER for name in among_workers)


def test_every_divided_operation_is_checked_and_divided(operations: WorkerOperations) -> None:
    wanted = {
        name for name, spec in OPERATIONS.items() if spec.division is not RequestDivision.NONE
    }
    assert operations.make_divisions().keys() == wanted
    for role in (Role.CHECKS, Role.DIVIDES):
        assert methods_of(operations, role).keys() == wanted


def test_an_operation_without_a_row_has_no_handler() -> None:
    with pytest.raises(LookupError, match="no row for 'FutureOperation'"):
        answers("FutureOperation")


def test_an_operation_has_no_second_handler() -> None:
    rows = _empty(RowOperations)
    with pytest.raises(LookupError, match="two methods"):
        methods_of([rows, rows], Role.ANSWERS)


def test_a_missing_handler_is_named(operations: WorkerOperations) -> None:
    with pytest.raises(LookupError, match=r"no method @answers .*PutRow"):
        operations._replace(rows=_empty(object)).handlers(Catalog())


ADMINISTRATION = [name for name, spec in OPERATIONS.items() if spec.right is Right.ADMIN]


@pytest.mark.parametrize("name", ADMINISTRATION)
def test_a_key_without_the_admin_right_is_refused(operations: WorkerOperations, name: str) -> None:
    with pytest.raises(Rejected) as refused:
        operations.handlers(Catalog())[name](Identity("key-of-ann", "shop", b""), b"{}")
    assert refused.value.code == "OTSNoPermissionAccess"
