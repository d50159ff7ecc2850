"""Which exit code a failure has, and that its text says what to do."""

import click
import pytest

from rowtide.cli.client import NoAnswer, NotConnected, ServerError
from rowtide.cli.exits import EXIT_CODES, CommandOutcomeUnknown, Failure, raise_failures
from rowtide.core.values.errors import STATUS

READ, WRITE = False, True


def run_failing(error: Exception, *, writes: bool) -> tuple[int, str, str]:
    """Return exit code, sentence and hint of a call that failed so."""
    with pytest.raises(Failure) as raised, raise_failures(writes=writes):
        raise error
    return raised.value.exit_code, raised.value.message, raised.value.hint


def refusal(code: str, message: str = "No.") -> ServerError:
    return ServerError(code, message, STATUS.get(code, 500), "r1")


CODES = [
    ("OTSParameterInvalid", WRITE, 1),
    ("OTSAuthFailed", READ, 1),
    ("OTSConditionCheckFail", WRITE, 1),
    ("OTSServerBusy", WRITE, 3),
    ("OTSPartitionUnavailable", WRITE, 3),
    ("OTSTimeout", WRITE, 4),
    ("OTSTimeout", READ, 3),
    ("OTSInternalServerError", WRITE, 4),
    ("OTSInternalServerError", READ, 3),
    ("HTTP502", WRITE, 4),
    ("HTTP404", WRITE, 1),
]


@pytest.mark.parametrize(("code", "writes", "exit_code"), CODES)
def test_a_refusal_has_its_exit_code(code: str, writes: bool, exit_code: int) -> None:
    assert run_failing(refusal(code), writes=writes)[0] == exit_code


def test_a_write_without_an_answer_may_have_happened() -> None:
    code, message, hint = run_failing(NoAnswer("no answer from x: timed out"), writes=True)
    assert (code, message) == (4, "No answer from x: timed out")
    assert "check before you repeat it" in hint


def test_a_write_that_was_never_sent_did_not_happen() -> None:
    assert run_failing(NotConnected("no answer from x: refused"), writes=True)[0] == 3


def test_a_read_without_an_answer_may_be_repeated() -> None:
    assert run_failing(NoAnswer("no answer"), writes=False)[0] == 3


def test_a_quota_of_a_rate_passes_and_one_of_a_number_does_not() -> None:
    code, _, hint = run_failing(
        refusal("OTSQuotaExhausted", "Too frequent table operations."), writes=True
    )
    assert (code, hint) == (3, "Nothing was changed: try again.")
    many = "Number of tables exceeds the quota:64."
    code, _, hint = run_failing(refusal("OTSQuotaExhausted", many), writes=True)
    assert (code, hint) == (1, "Delete one that is no longer needed first.")


@pytest.mark.parametrize("thing", ["table", "stream", "instance", "access key"])
def test_what_is_absent_is_to_be_found_in_a_list(thing: str) -> None:
    code, message, hint = run_failing(
        refusal("OTSObjectNotExist", f"Requested {thing} does not exist."), writes=False
    )
    assert (code, message) == (1, f"Requested {thing} does not exist (OTSObjectNotExist)")
    assert f"`rowtide {thing.split()[-1]} list` lists" in hint


@pytest.mark.parametrize("code", sorted(STATUS))
def test_every_code_of_the_protocol_ends_with_a_documented_exit_code(code: str) -> None:
    assert run_failing(refusal(code), writes=True)[0] in EXIT_CODES


def test_a_failure_is_one_sentence_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("It broke", "Mend it.").show()
    assert capsys.readouterr().err == "Error: It broke\n  Mend it.\n"
    assert issubclass(Failure, click.ClickException)


@pytest.mark.parametrize("error", [refusal("OTSServerBusy"), NotConnected("no answer")])
def test_nothing_was_changed_is_not_told_behind_a_call_that_changed_something(
    error: Exception,
) -> None:
    with (
        pytest.raises(CommandOutcomeUnknown) as raised,
        raise_failures(writes=True, begun=lambda: True),
    ):
        raise error
    assert raised.value.hint == (
        "Earlier changes of this command were made: check before you repeat it."
    )
