"""What an application may assume of a failed call, and which calls are repeated."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.client import (
    BatchFailed,
    ConditionFailed,
    LogTrimmed,
    OutcomeUnknown,
    PutRow,
    Rejected,
    StoreError,
    Unavailable,
)
from rowtide.client.failures import without_answer
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.client.forms import FORMS, Form, Step, open_form
from tests.client.scripted_server import SILENCE, Answer, Scripted, refusal, running

UNITS = pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=0, write=1))
PUT = Answer(pb.PutRowResponse(consumed=UNITS))
TABLE = pb.DescribeTableResponse(
    table_meta=pb.TableMeta(
        table_name="t", primary_key=[pb.PrimaryKeySchema(name="k", type=pb.STRING)]
    ),
    reserved_throughput_details=pb.ReservedThroughputDetails(
        capacity_unit=UNITS.capacity_unit, last_increase_time=0
    ),
    table_options=pb.TableOptions(time_to_live=-1, max_versions=1),
    table_status=pb.ACTIVE,
)
MADE_ANEW = pb.DescribeTableResponse.FromString(TABLE.SerializeToString())
MADE_ANEW.table_meta.primary_key[0].name = "n"
BUSY = refusal("OTSServerBusy")
WRONG_KEY = refusal("OTSInvalidPK", 400)
PATIENCE_S = 60.0
BUSY_ROW = "OTSServerBusy"


def run(form: str, scripted: Scripted, call: Any, patience_s: float = PATIENCE_S) -> Any:
    """Return what ``call`` returns of a client of a scripted server."""
    with running(scripted) as access, open_form(form, **access, patience_s=patience_s) as client:
        return call(client)


def put(client: Form) -> Any:
    return client.do("put", "t", {"k": "a", "v": 1})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("answers", "patience_s", "times", "raised", "code"),
    [
        ([PUT], PATIENCE_S, 1, None, ""),
        ([BUSY, BUSY, PUT], PATIENCE_S, 3, None, ""),
        ([refusal("OTSRowOperationConflict", 409), PUT], PATIENCE_S, 2, None, ""),
        ([BUSY], 0.0, 1, Unavailable, "OTSServerBusy"),
        (
            [refusal("OTSConditionCheckFail", 403)],
            PATIENCE_S,
            1,
            ConditionFailed,
            "OTSConditionCheckFail",
        ),
        ([refusal("OTSAuthFailed", 403)], PATIENCE_S, 1, Rejected, "OTSAuthFailed"),
        ([refusal("OTSTrimmedDataAccess", 404)], PATIENCE_S, 1, LogTrimmed, "OTSTrimmedDataAccess"),
        ([refusal("OTSTimeout"), PUT], PATIENCE_S, 1, OutcomeUnknown, "OTSTimeout"),
        (
            [refusal("OTSInternalServerError", 500), PUT],
            PATIENCE_S,
            1,
            OutcomeUnknown,
            "OTSInternalServerError",
        ),
        ([refusal("OTSNewCode", 400), PUT], PATIENCE_S, 1, OutcomeUnknown, "OTSNewCode"),
        ([SILENCE, PUT], PATIENCE_S, 1, OutcomeUnknown, "OTSTimeout"),
    ],
)
def test_a_write_is_repeated_only_if_it_was_not_applied(
    form: str, answers: Any, patience_s: float, times: int, raised: type[StoreError], code: str
) -> None:
    scripted = Scripted(DescribeTable=[Answer(TABLE)], PutRow=answers)
    if raised is None:
        assert run(form, scripted, put, patience_s) == {"k": "a"}
    else:
        with pytest.raises(raised) as failure:
            run(form, scripted, put, patience_s)
        assert type(failure.value) is raised
        assert failure.value.code == code
        assert failure.value.request_id == ("" if answers[0] is SILENCE else "r-2")
    assert scripted.operations.count("PutRow") == times


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_is_not_there_is_unavailable_at_once(form: str) -> None:
    with running(Scripted()) as access:
        pass
    with open_form(form, **access) as client, pytest.raises(Unavailable, match="no answer from"):
        put(client)


@pytest.mark.parametrize("form", FORMS)
def test_an_error_page_of_a_proxy_proves_nothing(form: str) -> None:
    page = Answer(pb.ListTableRequest(), 502)
    page.content = b"<html>Bad gateway</html>"
    with pytest.raises(OutcomeUnknown, match="HTTP502: <html>Bad") as failure:
        run(form, Scripted(DescribeTable=[Answer(TABLE)], PutRow=[page, PUT]), put)
    assert failure.value.code == "HTTP502"


@pytest.mark.parametrize("form", FORMS)
def test_the_key_of_a_table_is_asked_for_once(form: str) -> None:
    scripted = Scripted(DescribeTable=[Answer(TABLE)], PutRow=[PUT])
    run(form, scripted, lambda client: [put(client), put(client)])
    assert scripted.operations == ["DescribeTable", "PutRow", "PutRow"]


@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_was_made_anew_is_described_again(form: str) -> None:
    scripted = Scripted(
        DescribeTable=[Answer(TABLE), Answer(MADE_ANEW)], PutRow=[PUT, WRONG_KEY, PUT]
    )

    def twice(client: Form) -> Any:
        client.do("put", "t", {"k": "a", "n": "b"})
        return client.do("put", "t", {"k": "a", "n": "b"})

    assert run(form, scripted, twice) == {"n": "b"}
    assert scripted.operations == [
        *("DescribeTable", "PutRow"),
        *("PutRow", "DescribeTable", "PutRow"),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_key_is_not_sent_again(form: str) -> None:
    scripted = Scripted(DescribeTable=[Answer(TABLE)], PutRow=[PUT, WRONG_KEY])
    with pytest.raises(Rejected) as failure:
        run(form, scripted, lambda client: [put(client), put(client)])
    assert failure.value.code == "OTSInvalidPK"
    assert scripted.operations.count("PutRow") == 2


def batch(*codes: str) -> Answer:
    """Return the answer to a batch of rows of table ``t``: a code each, none for success."""
    message = pb.BatchWriteRowResponse()
    part = message.tables.add(table_name="t")
    for code in codes:
        part.rows.add(is_ok=not code, error=pb.Error(code=code, message="No.") if code else None)
    return Answer(message)


def write(client: Form) -> Any:
    return client.do("write", [PutRow("t", {"k": name}) for name in "abc"])


@pytest.mark.parametrize("form", FORMS)
def test_only_the_rows_that_were_not_applied_are_sent_again(form: str) -> None:
    scripted = Scripted(
        DescribeTable=[Answer(TABLE)],
        BatchWriteRow=[batch("", *[BUSY_ROW] * 2), batch("", BUSY_ROW), batch("")],
    )
    assert run(form, scripted, write) == [{"k": "a"}, {"k": "b"}, {"k": "c"}]
    sent = [
        [variant.decode(plainbuffer.decode_row(row.row_change).key[0][1]) for row in table.rows]
        for operation, body in scripted.asked
        if operation == "BatchWriteRow"
        for table in pb.BatchWriteRowRequest.FromString(body).tables
    ]
    assert sent == [["a", "b", "c"], ["b", "c"], ["c"]]


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_names_what_became_of_each_row(form: str) -> None:
    answer = batch("", "OTSConditionCheckFail", "OTSTimeout")
    scripted = Scripted(DescribeTable=[Answer(TABLE)], BatchWriteRow=[answer])
    with pytest.raises(BatchFailed, match="2 of 3 rows failed") as failure:
        run(form, scripted, write)
    kinds = [type(outcome.failure) for outcome in failure.value.outcomes]
    assert kinds == [type(None), ConditionFailed, OutcomeUnknown]
    assert failure.value.outcomes[0].key == {"k": "a"}
    ids = {outcome.failure.request_id for outcome in failure.value.outcomes if outcome.failure}
    assert ids == {failure.value.request_id} == {"r-2"}
    assert scripted.operations.count("BatchWriteRow") == 1


STARTED = Answer(pb.StartLocalTransactionResponse(transaction_id="s1-1"))
DONE = Answer(pb.CommitTransactionResponse())
GONE = refusal("OTSSessionNotExist", 404)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("answers", "patience_s", "raised"),
    [
        ([DONE], PATIENCE_S, None),
        ([SILENCE, refusal("OTSTimeout"), DONE], PATIENCE_S, None),
        ([SILENCE, GONE], PATIENCE_S, Rejected),
        ([refusal("OTSTimeout")], 0.5, OutcomeUnknown),
    ],
)
def test_the_outcome_of_a_commit_is_asked_for_again(
    form: str, answers: Any, patience_s: float, raised: type[StoreError] | None
) -> None:
    scripted = Scripted(
        DescribeTable=[Answer(TABLE)],
        StartLocalTransaction=[STARTED],
        PutRow=[PUT],
        CommitTransaction=answers,
    )

    def transact(client: Form) -> Any:
        return client.transact("t", "a", Step("put", [{"k": "a"}]))

    if raised is None:
        assert run(form, scripted, transact, patience_s) == [{"k": "a"}]
    else:
        with pytest.raises(raised):
            run(form, scripted, transact, patience_s)
    # Nothing is aborted that may have been committed.
    assert "AbortTransaction" not in scripted.operations


@pytest.mark.parametrize("form", FORMS)
def test_what_fails_within_a_transaction_aborts_it(form: str) -> None:
    scripted = Scripted(
        DescribeTable=[Answer(TABLE)],
        StartLocalTransaction=[STARTED],
        PutRow=[refusal("OTSConditionCheckFail", 403)],
        AbortTransaction=[refusal("OTSTimeout")],
    )
    with pytest.raises(ConditionFailed):
        run(form, scripted, lambda client: client.transact("t", "a", Step("put", [{"k": "a"}])))
    assert scripted.operations[-1] == "AbortTransaction"
    assert "CommitTransaction" not in scripted.operations


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "timed out"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
        (EOFError(), "EOFError"),
    ],
)
def test_a_call_without_an_answer_says_why(error: Exception, words: str) -> None:
    assert without_answer("http://h:1", error).message == f"no answer from http://h:1: {words}"
