"""The exit codes of commands, and the failure of a call that leads to each.

    0    done; also ``up`` and ``stream tail`` after Ctrl-C
    1    rejected by the server, absent, or impossible
    2    wrong command line or setting
    3    no answer, or not available now: nothing was changed, try again later
    4    no answer in time: the change may have been made or not, check before you repeat it
    130  stopped by Ctrl-C

A failure is one sentence that says what happened, and a hint if we know what to do.
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

__all__ = [
    "EXIT_CODES",
    "CommandOutcomeUnknown",
    "CommandRefused",
    "Failure",
    "NotNow",
    "raise_failures",
]


class Failure(click.ClickException):
    """Ends the command. ``hint`` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence, and the hint on a separate line."""
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

_UNKNOWN = "The change may have been made or not: check before you repeat it."
_PARTLY_DONE = "Earlier changes of this command were made: check before you repeat it."
_TRY_AGAIN = "Nothing was changed: try again."

_KINDS: dict[type[StoreError], type[Failure]] = {
    errors.Rejected: CommandRefused,
    errors.Unavailable: NotNow,
    errors.OutcomeUnknown: CommandOutcomeUnknown,
}
"""The failure of a command by the client's class for the server's code."""

_HINTS = {
    "OTSAuthFailed": "Check the access key id, its secret and the instance.",
    "OTSNoPermissionAccess": "Use a key with this right: `rowtide key list` shows them.",
    "OTSConditionCheckFail": "The row does not meet --expect, or it is absent and the server "
    "generates keys.",
    "OTSQuotaExhausted": "Delete one that is no longer needed first.",
}

_ABSENT = {
    "table": "`rowtide table list` lists the tables.",
    "stream": "`rowtide stream list` lists the tables with a stream.",
    "instance": "`rowtide instance list` lists the instances.",
    "share token": "`rowtide token list` lists the share tokens.",
    "access key": "`rowtide key list` lists the keys.",
}


@contextmanager
def raise_failures(*, writes: bool, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn a call's failure into a ``Failure``; ``writes`` if it may have changed something.

    ``begun`` returns True if an earlier call of the command has changed something. Then no failure
    may say that nothing was changed.
    """
    try:
        yield
    except ServerError as error:
        failure = _refusal(error, writes=writes)
        if writes and begun() and isinstance(failure, NotNow):
            failure = CommandOutcomeUnknown(failure.message, _PARTLY_DONE)
        raise failure from error
    except NotConnected as error:
        if writes and begun():
            raise CommandOutcomeUnknown(_sentence(str(error)), _PARTLY_DONE) from error
        raise NotNow(_sentence(str(error)), "Is it running? `rowtide up` starts it.") from error
    except NoAnswer as error:
        if writes:
            raise CommandOutcomeUnknown(_sentence(str(error)), _UNKNOWN) from error
        raise NotNow(_sentence(str(error)), "Try again.") from error


def _refusal(error: ServerError, *, writes: bool) -> Failure:
    kind = _kind_of(error)
    if kind is CommandOutcomeUnknown and not writes:
        kind, hint = NotNow, "Try again; the server's log may have details."
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
        return CommandRefused  # From a proxy: probably a wrong address.
    failure = failure_of(error.code, error.message)
    return next(kind for known, kind in _KINDS.items() if isinstance(failure, known))


def _sentence(text: str) -> str:
    """Return a server's or a library's message as one sentence without its full stop."""
    text = " ".join(text.split()).rstrip(".")
    return text[:1].upper() + text[1:]
