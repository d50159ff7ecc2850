"""How a command ends: the exit codes, and from which failure of a call each comes.

    0    done; also ``up`` and ``stream tail`` ended by Ctrl-C
    1    refused by the server, absent, or impossible as asked
    2    the command line or a setting is wrong
    3    no answer, or not now: nothing was changed and trying again later may work
    4    no answer in time: a change may have been made or not, so look before repeating it
    130  ended by Ctrl-C

Every failure is one sentence that says what happened, and what to do where we know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from rowtide.cli.call_failures import NoAnswer, NotConnected, ServerError
from rowtide.client.failures import failure_of
from rowtide.core.values import errors
from rowtide.core.values.errors import StoreError

__all__ = ["EXIT_CODES", "CommandOutcomeUnknown", "CommandRefused", "Failure", "NotNow", "told"]


class Failure(click.ClickException):
    """Ends the command. ``hint`` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence, and the hint on a line of its own."""
        click.echo(f"Error: {self.message}", file=file, err=file is None)
        if self.hint:
            click.echo(f"  {self.hint}", file=file, err=file is None)


class CommandRefused(Failure):
    """The same command will fail again."""

    exit_code = 1


class NotNow(Failure):
    """Nothing was changed; the same command may work later."""

    exit_code = 3


class CommandOutcomeUnknown(Failure):
    """A change may have been made or not."""

    exit_code = 4


EXIT_CODES = {
    0: "done; also `up` and `stream tail` after Ctrl-C",
    CommandRefused.exit_code: "rejected by the server, absent, or impossible",
    click.UsageError.exit_code: "wrong command line or setting",
    NotNow.exit_code: "no answer, or not available now: nothing was changed, try again later",
    CommandOutcomeUnknown.exit_code: "unknown outcome: the change may have been made or not",
    130: "stopped by Ctrl-C",
}

_UNKNOWN = "The change may have been made or not: look before you repeat it."
_BEGUN = "What came before it was done: look before you repeat it."
_TRY_AGAIN = "Nothing was changed: try again."

_KINDS: dict[type[StoreError], type[Failure]] = {
    errors.Rejected: CommandRefused,
    errors.Unavailable: NotNow,
    errors.OutcomeUnknown: CommandOutcomeUnknown,
}
"""How a command ends by what the client makes of the server's code."""

_HINTS = {
    "OTSAuthFailed": "Check the access key id, its secret and the instance.",
    "OTSNoPermissionAccess": "Use a key that may: `rowtide key list` shows what each may.",
    "OTSConditionCheckFail": "The row is not as --expect wants it, or absent where the server "
    "numbers the rows.",
    "OTSQuotaExhausted": "Delete one that is no longer needed first.",
}

_ABSENT = {
    "table": "`rowtide table list` shows what tables there are.",
    "stream": "`rowtide stream list` shows which tables have a stream.",
    "instance": "`rowtide instance list` shows what instances there are.",
    "access key": "`rowtide key list` shows what keys there are.",
}


@contextmanager
def told(*, writes: bool, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn a call's failure into a ``Failure``; ``writes`` where it may have changed something.

    ``begun`` says whether an earlier call of the command has: nothing is told then of one that
    failed as if nothing had been changed.
    """
    try:
        yield
    except ServerError as error:
        failure = _refusal(error, writes=writes)
        if writes and begun() and isinstance(failure, NotNow):
            failure = CommandOutcomeUnknown(failure.message, _BEGUN)
        raise failure from error
    except NotConnected as error:
        if writes and begun():
            raise CommandOutcomeUnknown(_sentence(str(error)), _BEGUN) from error
        raise NotNow(_sentence(str(error)), "Is it running? `rowtide up` starts it.") from error
    except NoAnswer as error:
        if writes:
            raise CommandOutcomeUnknown(_sentence(str(error)), _UNKNOWN) from error
        raise NotNow(_sentence(str(error)), "Try again.") from error


def _refusal(error: ServerError, *, writes: bool) -> Failure:
    kind = _kind_of(error)
    if kind is CommandOutcomeUnknown and not writes:
        kind, hint = NotNow, "Try again; the server's log may tell more."
    elif kind is CommandOutcomeUnknown:
        hint = _UNKNOWN
    elif kind is NotNow:
        hint = _TRY_AGAIN
    elif error.code == "OTSObjectNotExist":
        hint = next((hint for thing, hint in _ABSENT.items() if thing in error.message.lower()), "")
    else:
        hint = _HINTS.get(error.code, "")
    return kind(f"{_sentence(error.message)} ({error.code})", hint)


def _kind_of(error: ServerError) -> type[Failure]:
    if error.code.startswith("HTTP4"):
        return CommandRefused  # Of a proxy: the address is wrong, most likely.
    failure = failure_of(error.code, error.message)
    return next(kind for known, kind in _KINDS.items() if isinstance(failure, known))


def _sentence(text: str) -> str:
    """Return a server's or a library's message as one sentence without its end."""
    text = " ".join(text.split()).rstrip(".")
    return text[:1].upper() + text[1:]
