"""What a visitor sees of a failure: a status, words, what to do. Never a stack trace.

| what failed | status | words |
|---|---|---|
| a request of the worker | that of the code, as the worker would answer | those of the worker |
| a check of the console | 400 to 429 | those of the check |
| anything else, a fault of ours | 500 | a number by which the log has the details |
"""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus

from aiohttp import web
from jinja2 import TemplateError

from rowtide.console.languages.texts import translate
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import language_of, render_status
from rowtide.console.web.routes import wants_json
from rowtide.core.values.errors import STATUS, OutcomeUnknown, StoreError, Unavailable

__all__ = ["answer_failure"]

logger = logging.getLogger(__name__)

CODES = {
    400: "BadRequest",
    401: "LoginNeeded",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "BodyTooLarge",
    421: "UnknownHost",
    429: "TooManyRequests",
    503: "Unavailable",
    504: "NotInTime",
}
"""Codes of the console's own failures; those of the worker begin with OTS."""

OWN_WORDS = {404: "failure.no_page", 405: "failure.method", 413: "failure.body"}
"""Texts in place of the words of aiohttp."""


def answer_failure(request: web.Request, error: Exception) -> web.StreamResponse:
    """Return the answer to a request that failed."""
    try:
        return _answer_known(request, error)
    except (AssertionError, KeyError, TypeError, ValueError, TemplateError) as fault:
        logger.error("the error page of %s failed", request.path, exc_info=fault)
        return web.Response(status=500, text="The console met an error of its own: see its log.")


def _answer_known(request: web.Request, error: Exception) -> web.StreamResponse:
    if isinstance(error, StoreError):
        return _show(
            request, STATUS.get(error.code, 500), error.code, error.message, _hint(request, error)
        )
    if isinstance(error, RequestRefused):
        words = translate(language_of(request), error.text, **error.values)
        reason = str(error.values.get("reason", ""))
        response = _show(request, error.status, CODES[error.status], words, reason=reason)
        if error.retry_after_s:
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response
    if isinstance(error, web.HTTPException):
        return error if error.status < 400 else _show_exception(request, error)
    number = secrets.token_hex(4)
    logger.error("request %s %s failed: %s", request.method, request.path, number, exc_info=error)
    words = translate(language_of(request), "failure.internal", number=number)
    return _show(request, 500, "InternalError", words)


def _show_exception(request: web.Request, error: web.HTTPException) -> web.Response:
    """Return the page of an error that aiohttp raised, or a handler with words of its own."""
    status, words = error.status, error.text or ""
    if words == f"{status}: {error.reason}" or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        name = OWN_WORDS.get(status)
        words = translate(language_of(request), name) if name else error.reason
    response = _show(request, status, CODES.get(status, "Failed"), words)
    for name in ("Retry-After", "Allow"):
        if name in error.headers:
            response.headers[name] = error.headers[name]
    return response


def _show(
    request: web.Request, status: int, code: str, message: str, hint: str = "", reason: str = ""
) -> web.Response:
    """Return a page or JSON. ``reason`` is the part of the message that is always English."""
    failure: dict[str, object] = {"status": status, "code": code, "message": message}
    if not wants_json(request):
        failure["reason"] = reason
    return render_status(request, status, "failure.html", error=failure, hint=hint)


def _hint(request: web.Request, error: StoreError) -> str:
    """Return the text that says what to do after a failure of the worker."""
    if isinstance(error, OutcomeUnknown) and request.method == "POST":
        return "failure.unknown"
    if isinstance(error, Unavailable | OutcomeUnknown):
        return "failure.later"
    return ""
